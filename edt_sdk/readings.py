"""What a job answers with: log text, metrics, story, timeline.

Each is plain data that also reads well at the end of a notebook cell. They hold what was fetched and never fetch more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from edt_sdk.schemas.events import Event
from edt_sdk.timeline_table import timeline_table


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a job's log; str() of it is what a terminal shows.

    Attributes:
        time: seconds since the epoch.
        stream: "stdout" or "stderr" of the driver, "elog", or "worker".
        worker: the worker's number, None for the driver.
        err: True when it was written to stderr.
    """

    time: float
    stream: str
    worker: int | None = None
    err: bool = False
    text: str

    def __str__(self) -> str:
        return self.text if self.worker is None else f"worker {self.worker} | {self.text}"


class LogText(str):
    """A log as one string. `lines` has the lines with their times and origins."""

    __slots__ = ("lines",)
    lines: tuple[LogLine, ...]

    def __new__(cls, lines: Iterable[LogLine]) -> LogText:
        """The text of `lines`, each ended by a line break."""
        kept = tuple(lines)
        text = super().__new__(cls, "".join(f"{line}\n" for line in kept))
        text.lines = kept
        return text

    def __repr__(self) -> str:
        return str(self).rstrip("\n") or "(the log is empty)"


@dataclass(frozen=True, slots=True)
class Metrics:
    """Curves of a job.

    Attributes:
        train: `{"update", "epoch", "samples", "loss", "accuracy", "world", "time"}` per point; updates from 0.
        test: `{"epoch", "update", "loss", "accuracy", "time"}` per validation.
    """

    train: list[dict[str, Any]]
    test: list[dict[str, Any]]

    @property
    def loss(self) -> float | None:
        """Training loss of the last point."""
        return self.train[-1]["loss"] if self.train else None

    @property
    def test_loss(self) -> float | None:
        """Loss of the last validation."""
        return self.test[-1]["loss"] if self.test else None

    @property
    def test_accuracy(self) -> float | None:
        """Accuracy of the last validation, 0 … 1; None where labels are not classes."""
        return self.test[-1]["accuracy"] if self.test else None

    def __repr__(self) -> str:
        if not self.train and not self.test:
            return "Metrics: none yet."
        lines = [f"Metrics: {len(self.train)} training points, {len(self.test)} validations."]
        if self.train:
            last = self.train[-1]
            lines.append(f"  last update {last['update'] + 1}: {figures(last['loss'], last.get('accuracy'))}")
        lines += [f"  test, epoch {t['epoch'] + 1}: {figures(t['loss'], t.get('accuracy'))}" for t in self.test[-10:]]
        return "\n".join(lines)


class Story(list[Event]):
    """The events of a job; its repr is the story they tell."""

    def __repr__(self) -> str:
        return "\n".join(f"{clock(event.time)}  {event.text or event.kind}" for event in self) or "Nothing yet."


@dataclass(frozen=True, slots=True)
class Timeline:
    """Who held how many slots when.

    Attributes:
        capacity: slots of the machine.
        rows: one per change, see `timeline_table`.
        names: job id → name.
        total: changes there were.
        thinned: some of them are not among the rows; a shorter window has them all.
    """

    capacity: int
    rows: Sequence[Mapping[str, Any]]
    names: Mapping[str, str]
    total: int = 0
    thinned: bool = False

    def table(self, *, settled_only: bool = False) -> str:
        """The text table, see `timeline_table`."""
        return timeline_table(self.rows, self.names, settled_only=settled_only)

    def __repr__(self) -> str:
        return self.table()


def figures(loss: float | None, accuracy: float | None) -> str:
    """What is known of: loss 0.1234, accuracy 97.2 %."""
    known = []
    if loss is not None:
        known.append(f"loss {loss:.4g}")
    if accuracy is not None:
        known.append(f"accuracy {100 * accuracy:.1f} %")
    return ", ".join(known) or "no figures"


def stamp(seconds: float) -> str:
    """Seconds since the epoch as "2026-11-21 14:02:31 UTC": what is read on another day needs its date."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(seconds: float) -> str:
    """Seconds since the epoch as "14:02:31" UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S")
