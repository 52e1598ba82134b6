"""Keep the driver's session: what `FabricModel.train()` needs to know about its process.

The driver program creates the session before it runs the user's script, and `fabric.py` reads it. This is a separate
module because the driver runs as `__main__`, and importing it by name would create a second session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from edt_sdk.schemas.wire.context import JobContext
from edt_sdk.training.member.link import Link

if TYPE_CHECKING:
    from torch import nn

_current: Session | None = None


@dataclass(slots=True)
class Session:
    """Holds what `train()` calls need to know about their driver.

    Attributes:
        path: what `sys.path` held before the script began.
        trainings: trainings that `train()` calls have requested so far.
        calls: number of `train()` calls so far in a validation or a replica. Only one of them does anything.
        takes_over: in a replica, what goes on with the model of that call. The call does not return.
    """

    job: JobContext
    link: Link
    path: tuple[str, ...] = ()
    trainings: int = 0
    calls: int = 0
    takes_over: Callable[[nn.Module], NoReturn] | None = None

    def folders_of_code(self) -> list[Path]:
        """Return folders with user modules that workers cannot import: the code folder, and additions of the script.

        WMLA's console, for example, puts the module with a model's parameters next to its results.
        """
        added = (Path(entry).resolve() for entry in sys.path if entry and entry not in self.path)
        # A path made from an empty argument and "/../" is the root of the file system. It carries no code.
        return [self.job.paths.code_dir(self.job.code_dir), *(path for path in added if path != path.parent)]


def begin(session: Session) -> None:
    """Make `session` the session of this process."""
    global _current
    _current = session


def current() -> Session | None:
    """Return the session of this process, None outside a job's driver."""
    return _current
