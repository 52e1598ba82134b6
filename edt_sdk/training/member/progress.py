"""Report progress to the supervisor as rank 0, at most about twice a second."""

from __future__ import annotations

import math
import time

from edt_sdk.schemas.wire.link import Progress
from edt_sdk.training.member.link import Link
from edt_sdk.training.member.training_state import MemberState

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

    def advanced(self, current: MemberState, samples: int) -> None:
        """Report after a step of that many samples if the last report is old enough."""
        self._samples += samples
        passed = time.monotonic() - self._last
        # Limited by time and not by updates: an update may take a few ms, and the supervisor need not see each of them.
        if passed >= INTERVAL:
            self._rate = self._samples / passed
            self.report(current)

    def report(self, current: MemberState) -> None:
        """Report now."""
        # Without samples there was no update, or no complete validation yet.
        reached, test = current.reached, current.test
        # As in the log: an epoch's last update may have few samples, and says little about the model.
        train = current.epoch if current.epoch.samples else current.ended
        self._last = time.monotonic()
        self._samples = 0
        self._link.send(
            Progress(
                worker=self._worker,
                training=self._training,
                update=reached.update,
                total_updates=reached.total_updates,
                epoch=reached.epoch,
                epochs=reached.epochs,
                loss=train.loss if train.samples else None,
                accuracy=train.accuracy if train.samples else None,
                test_loss=test.loss if test.samples else None,
                test_accuracy=test.accuracy if test.samples else None,
                samples_per_second=self._rate,
                inexact=self.inexact,
                not_a_number=bool(train.samples) and not math.isfinite(train.loss),
            )
        )
