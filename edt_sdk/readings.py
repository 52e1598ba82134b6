"""What a job answers with: log text, metrics, story, timeline, checkpoints, workers.

Each is plain data that also reads well at the end of a notebook cell. They hold what was fetched and never fetch more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from edt_sdk.html_table import left_out
from edt_sdk.schemas.events import Event
from edt_sdk.timeline_table import timeline_table

_REPR_LINES = 1000
_REPR_WIDTH = 2000


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
        """The end of it; `print` and the string itself have every character."""
        shown = [str(line) for line in self.lines[-_REPR_LINES:]]
        text = "\n".join(map(_cut, shown))
        if rest := left_out(len(self.lines), _REPR_LINES):
            text = f"({rest} print() shows every line.)\n{text}"
        return text.rstrip("\n") or "(the log is empty)"

    def _repr_html_(self) -> str:
        from edt_sdk.monitor.log_lines import LogLines, log_html, log_words

        log = LogLines()
        log.add(self.lines)
        found = log.matching("")
        return log_html(found) + log_words(log, len(found), "")


@dataclass(frozen=True, slots=True)
class Metrics:
    """Curves of a job.

    Attributes:
        train: `{"update", "epoch", "samples", "loss", "accuracy", "world", "time"}` per point; updates from 0.
        test: `{"epoch", "update", "loss", "accuracy", "time"}` per validation.
        speeds: `{"workers", "samples", "seconds"}` for each number of workers that its last training has run with, the
            smallest first; pauses between updates are left out.
    """

    train: list[dict[str, Any]]
    test: list[dict[str, Any]]
    speeds: list[dict[str, Any]] = field(default_factory=list)

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
        if said := lost_words(self.train):
            lines.append(f"  {said}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The curve, and the last validations."""
        from edt_sdk.shown import metrics_html

        return metrics_html(self.train, self.test)


class Story(list[Event]):
    """The events of a job; its repr is the story they tell."""

    def __repr__(self) -> str:
        return "\n".join(f"{clock(event.time)}  {event.text or event.kind}" for event in self) or "Nothing yet."

    def _repr_html_(self) -> str:
        """The last of them as a table."""
        from edt_sdk.shown import story_html

        return story_html(self)


class Checkpoints(list[dict[str, Any]]):
    """The checkpoints of a job, as the server lists them; at the end of a cell a table."""

    def __repr__(self) -> str:
        return "\n".join(f"{c['name']}  {size(c['bytes'])}  {stamp(c['time'])}" for c in self) or "No checkpoint yet."

    def _repr_html_(self) -> str:
        """The newest of them as a table."""
        from edt_sdk.shown import checkpoints_html

        return checkpoints_html(self)


class Workers(list[dict[str, Any]]):
    """The workers that run, as the server lists them; at the end of a cell a table."""

    def __repr__(self) -> str:
        said = (
            f"worker {w['worker']}, rank {w['rank']}: slot {w['slot']} of {w['host']}, pid {w['pid']}" for w in self
        )
        return "\n".join(said) or "No worker runs now."

    def _repr_html_(self) -> str:
        """The table."""
        from edt_sdk.shown import workers_html

        return workers_html(self)


def _cut(line: str) -> str:
    """The line, or its beginning and how long it is."""
    if len(line) <= _REPR_WIDTH:
        return line
    return f"{line[:_REPR_WIDTH]} … (cut; the line has {len(line):,} characters, print() shows them)"


@dataclass(frozen=True, slots=True)
class Timeline:
    """Who held how many slots when.

    Attributes:
        capacity: slots of the machine.
        rows: one per change, see `timeline_table`.
        names: job id → name.
        total: changes there were.
        thinned: some of them are not among the rows; a shorter window has them all.
        until: up to when the last row holds, seconds since the epoch; when it was asked for by default.
    """

    capacity: int
    rows: Sequence[Mapping[str, Any]]
    names: Mapping[str, str]
    total: int = 0
    thinned: bool = False
    until: float = field(default_factory=time.time)

    def table(self, *, settled_only: bool = False) -> str:
        """The text table, see `timeline_table`."""
        return timeline_table(self.rows, self.names, settled_only=settled_only)

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """The picture, and below it, folded, the table."""
        from edt_sdk.shown import timeline_html

        return timeline_html(self.rows, self.names, self.capacity, self.until, self.table())


def lost_words(train: Sequence[Mapping[str, Any]]) -> str:
    """How many points of a training have no loss, and what to do; "" for none."""
    lost = sum(1 for point in train if point["loss"] is None)
    if not lost:
        return ""
    return (
        f"{lost:,} of {len(train):,} training points are no numbers (NaN or infinite): try a smaller learning rate or "
        'clip_grad_norm; train(..., on_nan="stop") ends a training at the first.'
    )


def figures(loss: float | None, accuracy: float | None) -> str:
    """What is known of: loss 0.1234, accuracy 97.2 %."""
    known = []
    if loss is not None:
        known.append(f"loss {loss:.4g}")
    if accuracy is not None:
        known.append(f"accuracy {100 * accuracy:.1f} %")
    return ", ".join(known) or "no figures"


def size(count: float) -> str:
    """Bytes as people say them: "1.2 MB"."""
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if count < 1000:
            break
        count, unit = count / 1000, larger
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def stamp(seconds: float) -> str:
    """Seconds since the epoch as "2026-11-21 14:02:31 CET", on this machine's clock; read later, it needs its date."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def zone() -> str:
    """What this machine's clock is called now, for people: "CET"."""
    return f"{datetime.now().astimezone():%Z}"


def clock(seconds: float) -> str:
    """Seconds since the epoch as "14:02:31", on this machine's clock."""
    return datetime.fromtimestamp(seconds).strftime("%H:%M:%S")
