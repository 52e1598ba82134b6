"""Wait in a driver for the end of a training, and pass its metrics to the loggers meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from edt_sdk.schemas.errors import JobFailed
from edt_sdk.schemas.wire.link import TrainingDone, TrainingFailed
from edt_sdk.training.calls.session import Session
from edt_sdk.training.records.full_disk import wait_for_lines
from edt_sdk.training.records.recorder import MetricsFollower, epoch_behind
from edt_sdk.training.state.preallocation import release_freed
from edt_sdk.training.user.logging_hooks import DriverLoggers

# Seconds between two reads of the metrics while the driver waits. The end of the training wakes it immediately.
_INTERVAL = 0.2


def follow(
    own: Session,
    training: int,
    loggers: DriverLoggers,
    epochs: int,
    *,
    each: Callable[[int], None] = lambda epoch: None,
) -> None:
    """Return when the training is over.

    `each` gets the running epoch again and again.

    Raises:
        JobFailed: a worker failed. The message is the worker's.
    """
    release_freed()  # what the submission needed
    paths = own.job.paths
    # The position of delivered lines is kept on disk, so that a restarted driver continues after them.
    reader = MetricsFollower(paths.metrics(training), delivered=paths.job_dir / f"training-{training}.delivered")
    epoch = 0
    # The previous driver has delivered these lines. Only the sums of the loggers are restored from them.
    for line in reader.delivered_before():
        loggers.recall(line)
        epoch = epoch_behind(line)
    each(epoch)
    validates = own.job.validates is not None
    if not validates:
        loggers.begin()
    verdict = None
    while verdict is None:
        verdict = own.link.take(TrainingDone, TrainingFailed, timeout=_INTERVAL)
        # All lines were written before the verdict was sent, so this reads all of them.
        for line in reader.read():
            wait_for_lines(paths.result_dir)
            loggers.deliver(line)
            epoch = epoch_behind(line)
        each(epoch)
    if isinstance(verdict, TrainingFailed):
        raise JobFailed(verdict.message, job=own.job.job_id)
    if not validates:
        loggers.end(epochs)
