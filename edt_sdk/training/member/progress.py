"""Report progress to the supervisor as rank 0, at most about twice a second."""

from __future__ import annotations

import math
import time

from edt_sdk.schemas.wire.link import Progress
from edt_sdk.training.member.link import Link
from edt_sdk.training.member.training_state import TrainingState

INTERVAL = 0.5


class ProgressReporter:
    """Sends progress, and keeps the time of the last report. `inexact` is what the self-check has found."""

    def __init__(self, link: Link, worker: int, training: int) -> None:
        self._link = link
        self._worker = worker
        self._training = training
        self._last = time.monotonic()
        self._samples = 0
        self._rate: float | None = None
        self.inexact = ""

    def advanced(self, current: TrainingState, samples: int) -> None:
        """Report after a step of that many samples if the last report is old enough."""
        self._samples += samples
        passed = time.monotonic() - self._last
        # Limited by time and not by updates: an update may take a few ms, and the supervisor need not see each of them.
        if passed >= INTERVAL:
            self._rate = self._samples / passed
            self.report(current)

    def report(self, current: TrainingState) -> None:
        """Report now."""
        # Without samples there was no update, or no complete validation yet.
        cursor, test = current.cursor, current.test
        # As in the log: an epoch's last update may have few samples, and says little about the model.
        train = current.epoch if current.epoch.samples else current.ended
        schedule, (done, total) = cursor.schedule, cursor.done
        self._last = time.monotonic()
        self._samples = 0
        self._link.send(
            Progress(
                worker=self._worker,
                training=self._training,
                update=done,
                total_updates=total,
                # A validation job has no updates, so its updates per epoch are 0.
                epoch=min(cursor.updates // max(1, schedule.updates_per_epoch), schedule.epochs - 1),
                epochs=schedule.epochs if schedule.updates_per_epoch else 0,
                loss=train.loss if train.samples else None,
                accuracy=train.accuracy if train.samples else None,
                test_loss=test.loss if test.samples else None,
                test_accuracy=test.accuracy if test.samples else None,
                samples_per_second=self._rate,
                inexact=self.inexact,
                not_a_number=bool(train.samples) and not math.isfinite(train.loss),
            )
        )
