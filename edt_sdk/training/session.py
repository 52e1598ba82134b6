"""The driver's session: what `FabricModel.train()` needs to know of the process it is called in.

The driver program makes one before it runs the user's script; `fabric.py` asks for it. A module of its own, because the
driver runs as `__main__` and would otherwise exist twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from edt_sdk.schemas.context import JobContext
from edt_sdk.training.link import Link

_current: Session | None = None


@dataclass(slots=True)
class Session:
    """One driver. `trainings` counts the calls of `train()` so far."""

    job: JobContext
    link: Link
    trainings: int = 0


def begin(session: Session) -> None:
    """Make `session` the one of this process."""
    global _current
    _current = session


def current() -> Session | None:
    """The session of this process, None when it is not a job's driver."""
    return _current
