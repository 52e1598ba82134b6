"""The driver's session: what `FabricModel.train()` needs to know of the process it is called in.

The driver program makes one before it runs the user's script; `fabric.py` asks for it. A module of its own, because the
driver runs as `__main__` and would otherwise exist twice.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas.wire.context import JobContext
from edt_sdk.training.member.link import Link

_current: Session | None = None


@dataclass(slots=True)
class Session:
    """One driver.

    Attributes:
        path: what `sys.path` held before the script began.
        trainings: trainings that calls of `train()` have asked for so far.
        calls: of `train()` so far in a validation, of which one asks for something.
    """

    job: JobContext
    link: Link
    path: tuple[str, ...] = ()
    trainings: int = 0
    calls: int = 0

    def folders_of_code(self) -> list[Path]:
        """Where modules of the user's may lie that workers cannot import: the code folder, and what the script added.

        WMLA's console, for one, put the module with a model's parameters beside its results.
        """
        added = (Path(entry).resolve() for entry in sys.path if entry and entry not in self.path)
        # A path made of an empty argument and "/../" is the root of the file system, and means nothing.
        return [self.job.paths.code_dir(self.job.code_dir), *(path for path in added if path != path.parent)]


def begin(session: Session) -> None:
    """Make `session` the one of this process."""
    global _current
    _current = session


def current() -> Session | None:
    """The session of this process, None when it is not a job's driver."""
    return _current
