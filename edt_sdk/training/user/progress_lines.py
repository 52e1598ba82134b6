"""Make the lines by which people follow a training in its log: few, whatever its length.

There is a line when an epoch ends, and one a minute within an epoch that takes longer. Only the latter names the
update, so that a line fits into the output of a notebook. After the first 20 lines at least ten seconds lie between
two, and the first line after an epoch without one says so. The last epoch always has its line. Pure: time is that of
the metrics. So a restarted driver that recalls the metrics goes on as its predecessor would have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edt_sdk.formatting.number_words import figures
from edt_sdk.training.records.recorder import TestLine, TrainLine, epoch_behind

EVERY_EPOCH = 20  # lines
INTERVAL = 10.0
WITHIN_EPOCH = 60.0


@dataclass(slots=True)
class ProgressLines:
    """Makes the lines of one training of `epochs` epochs. Each method returns a line, "" for none."""

    epochs: int
    _made: int = 0
    _made_at: float | None = None
    _sparse: bool = False  # whether an epoch had no line
    _said_so: bool = False
    _newest: TrainLine | None = None
    _means: Mapping[str, float] | None = None
    _ended: bool = False  # whether the newest update ended an epoch that has had neither a line nor a validation
    _tested: TestLine | None = None
    _samples: int = 0
    _since: float | None = None

    def begin(self) -> None:
        """Measure samples per second from the next update on: the training may have been suspended until now."""
        self._since = None

    def train(self, line: TrainLine, means: Mapping[str, float]) -> str:
        """Take the metrics of an update, and their means over the epoch so far."""
        # An epoch waits with its line for the validation after it. Where another update comes first, there is none.
        text = self._end_of_epoch(line.time) if self._ended else ""
        self._newest, self._means, self._ended = line, means, epoch_behind(line) > line.epoch
        if self._since is None:
            self._since, self._samples = line.time, 0
        else:
            self._samples += line.samples
        if self._made_at is None:
            self._made_at = line.time
        within = not self._ended and line.time - self._made_at >= WITHIN_EPOCH
        return text or (self._line(line.time, within=True) if within else "")

    def test(self, line: TestLine) -> str:
        """Take the metrics of a validation."""
        self._tested = line
        return self._end_of_epoch(line.time) if self._ended else ""

    def end(self) -> str:
        """Return the line of an epoch that still waits for its validation."""
        return self._end_of_epoch(self._newest.time) if self._ended and self._newest is not None else ""

    def _end_of_epoch(self, now: float) -> str:
        assert self._newest is not None, "an epoch ends with an update"
        self._ended = False
        last = self._newest.epoch + 1 == self.epochs
        early = self._made < EVERY_EPOCH
        if last or early or now - (self._made_at or 0.0) >= INTERVAL:
            return self._line(now)
        self._sparse = True
        return ""

    def _line(self, now: float, *, within: bool = False) -> str:
        newest, means = self._newest, dict(self._means or {})
        assert newest is not None, "a line is about an update"
        known = figures(means.pop("loss", None), means.pop("accuracy", None))
        own = "".join(f", {name} {value:.4g}" for name, value in means.items())
        update = f", update {newest.update + 1:,} of {self.epochs * newest.updates_per_epoch:,}" if within else ""
        parts = [f"Epoch {newest.epoch + 1} of {self.epochs}{update}: {known}{own}"]
        if self._tested is not None:
            # A validation of an epoch without a line is shown in the next line.
            earlier = f" (epoch {self._tested.epoch + 1})" if self._tested.epoch != newest.epoch else ""
            parts.append(f"test{earlier} {figures(self._tested.loss, self._tested.accuracy, self._tested.metrics)}")
        workers = f"{newest.world} worker{'' if newest.world == 1 else 's'}"
        passed = 0.0 if self._since is None else newest.time - self._since
        speed = f"{self._samples / passed:,.0f} samples/s, " if passed > 0 and self._samples else ""
        self._made, self._made_at, self._tested = self._made + 1, now, None
        self._samples, self._since = 0, newest.time
        parts.append(speed + workers)
        if self._sparse and not self._said_so:
            self._said_so = True
            parts.append(f"from now on a line every {INTERVAL:g} s")
        return "; ".join(parts)
