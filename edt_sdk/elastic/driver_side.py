"""Be the driver of a script: go on to the first updates, ask for the workers that make them, and wait for their end."""

from __future__ import annotations

from typing import NoReturn

from edt_sdk.elastic.run_state import RunState
from edt_sdk.elastic.sides import Alone
from edt_sdk.schemas.wire.link import TrainRequest
from edt_sdk.training.calls.following import follow
from edt_sdk.training.calls.session import Session
from edt_sdk.training.member.script_worker import SCRIPT
from edt_sdk.training.user import payload
from edt_sdk.training.user.logging_hooks import DriverLoggers
from edt_sdk.training.user.progress_lines import ProgressLines


class DriverSide(Alone):
    """Ends the driver's script where its work begins. The driver itself computes nothing."""

    def __init__(self, current: RunState, own: Session) -> None:
        super().__init__(current, "cpu")
        self.first = False
        self._own = own

    def opened(self, shards: int | None, updates: int, epochs: int) -> NoReturn:
        """Request the workers, wait for the end of the training, and end the script."""
        path = self._own.job.paths.payload(0)
        # Where the first updates come later, they may have any number of parts.
        shards = shards or self._own.job.max_workers
        # An earlier driver, now dead, may have requested it.
        if not path.exists():
            payload.write(path, payload.dump({SCRIPT: {"shards": shards}}, []))
        self._own.trainings += 1
        self._own.link.send(TrainRequest(training=0, payload=str(path), shards=shards, epochs=epochs or 1))
        lines = ProgressLines(max(1, epochs)) if self._own.job.quiet else None
        follow(self._own, 0, DriverLoggers(None, None, lines), max(1, epochs))
        raise SystemExit(0)
