"""Decide how a job is ended, and which process its message names when it failed. Pure.

When a worker dies, the others fail a moment later because of that death, and the order of arrival is chance. So the
message is composed when all workers are gone: a process that died without a message outranks a process that could
still report an error, and among equals the first counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import link
from edt_server.supervisor.state_machines.events import DRIVER, End, Instruction, SendMessage
from edt_server.supervisor.state_machines.generation import TrainingRun
from edt_server.supervisor.state_machines.worker_group import Driver, Worker, WorkerPhase

# Seconds. A process that exits closes its link a moment before: its own exit code arrives within this time.
EXIT_GRACE: Final = 1.0
# Seconds for a process that has reported why it failed, and only has to write its traceback.
FAILED_GRACE: Final = 5.0


@dataclass(slots=True)
class Ending:
    """The end that a job is coming to: FINISHED, KILLED, FAILED or ERROR.

    `reported` is False when the server refused this supervisor, and `driver_told` is True once the driver was asked to
    exit.
    """

    state: JobState
    reported: bool = True
    driver_told: bool = False
    _messages: list[tuple[int, str]] = field(default_factory=list)

    def blame(self, message: str, *, silent: bool = False) -> None:
        """Add a candidate message. `silent` means that its process died without reporting an error."""
        self._messages.append((0 if silent else 1, message))

    @property
    def message(self) -> str:
        """The message of the most likely cause."""
        return min(self._messages, key=lambda entry: entry[0])[1] if self._messages else ""

    def wind_up(self, workers: Collection[Worker], driver: Driver, training: TrainingRun | None) -> list[Instruction]:
        """Return the instructions that end the job's processes now: workers first, then the driver."""
        out: list[Instruction] = []
        for worker in workers:
            if worker.phase is not WorkerPhase.ENDING:
                worker.phase = WorkerPhase.ENDING
                out.append(End(worker.number, FAILED_GRACE if worker.failed is not None else 0.0))
        at_once = self.state is JobState.KILLED
        if not driver.runs or self.driver_told or (workers and not at_once):
            return out
        self.driver_told = True
        if training is not None and not at_once:
            out.append(SendMessage(DRIVER, link.TrainingFailed(training=training.number, message=self.message)))
            out.append(End(DRIVER, FAILED_GRACE))
        else:
            out.append(End(DRIVER, 0.0))
        return out
