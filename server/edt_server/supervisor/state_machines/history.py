"""Restore what a job did before this supervisor, from the journal of the earlier attempts. Pure.

A number that was announced but not reported, such as that of a generation that never formed, must not be used again.
So generations continue well above the highest one known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.control import Numbered
from edt_server.supervisor.state_machines.generation import TrainingRun

GENERATION_MARGIN = 1000


@dataclass(slots=True)
class History:
    """The past of a job.

    Attributes:
        reports: number of the last report, 0 when there is none.
        trainings: committed updates of each finished training.
        running: the unfinished training, None between trainings.
        committed: its updates that are known to be committed.
        workers: how many worker numbers were used.
        generations: the highest number of a formed generation, over all trainings.
        size_held: the reason in its last `SizeHeld`.
        runs: how often all processes of a plain job were started.
    """

    reports: int = 0
    trainings: tuple[int, ...] = ()
    running: TrainingRun | None = None
    committed: int = 0
    workers: int = 0
    driver_ran: bool = False
    generations: int = 0
    size_held: str = ""
    runs: int = 0


def history_of(reports: Iterable[Numbered], payload: Callable[[int], str]) -> History:
    """Return the past that these reports describe, in order. `payload` returns the path of a training's payload."""
    past = History()
    for numbered in reports:
        past.reports = numbered.number
        match numbered.report:
            case control.DriverStarted():
                past.driver_ran = True
            case control.SizeHeld(why=why):
                past.size_held = why
            case control.RunStarted():
                past.runs += 1
            case control.WorkerStarted(worker=worker):
                past.workers = max(past.workers, worker + 1)
            case control.TrainingStarted(training=training, shards=shards, epochs=epochs):
                past.committed = 0
                past.running = TrainingRun(training, payload(training), shards, epochs, generation=GENERATION_MARGIN)
            case control.EpochValidated(epoch=epoch) if past.running is not None:
                past.running.validated = epoch
            case control.GenerationFormed(number=number, update=update):
                past.generations = max(past.generations, number)
                if past.running is not None:
                    past.running.generation = max(past.running.generation, number + GENERATION_MARGIN)
                    past.committed = max(past.committed, update or 0)
            case control.WorkerLost(update=update) if past.running is not None:
                past.committed = max(past.committed, update or 0)
            case control.TrainingEnded(updates=updates):
                past.trainings += (updates,)
                past.running = None
    return past
