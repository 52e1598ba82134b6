"""What a job answers with: metrics, story, timeline, checkpoints, workers.

Each is plain data that also reads well at the end of a notebook cell. They hold what was fetched and never fetch more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edt_sdk.display.timeline_table import timeline_table
from edt_sdk.formatting.number_words import clock, figures, lost_words, size, stamp
from edt_sdk.schemas.events import Event


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
        from edt_sdk.display.shown import metrics_html

        return metrics_html(self.train, self.test)


class Story(list[Event]):
    """The events of a job; its repr is the story they tell."""

    def __repr__(self) -> str:
        return "\n".join(f"{clock(event.time)}  {event.text or event.kind}" for event in self) or "Nothing yet."

    def _repr_html_(self) -> str:
        """The last of them as a table."""
        from edt_sdk.display.shown import story_html

        return story_html(self)


class Checkpoints(list[dict[str, Any]]):
    """The checkpoints of a job, as the server lists them; at the end of a cell a table."""

    def __repr__(self) -> str:
        return "\n".join(f"{c['name']}  {size(c['bytes'])}  {stamp(c['time'])}" for c in self) or "No checkpoint yet."

    def _repr_html_(self) -> str:
        """The newest of them as a table."""
        from edt_sdk.display.shown import checkpoints_html

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
        from edt_sdk.display.shown import workers_html

        return workers_html(self)


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
        from edt_sdk.display.shown import timeline_html

        return timeline_html(self.rows, self.names, self.capacity, self.until, self.table())
