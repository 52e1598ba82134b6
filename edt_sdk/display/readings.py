"""Define the answers about a job: metrics, story, timeline, checkpoints, workers.

Each is plain data that displays itself at the end of a notebook cell. It holds what was fetched and never fetches more.
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
    """Holds the curves of a job.

    Attributes:
        train: `{"update", "epoch", "samples", "loss", "accuracy", "world", "time"}` per point. Updates count from 0.
        test: `{"epoch", "update", "loss", "accuracy", "time"}` per validation.
        speeds: `{"workers", "samples", "seconds"}` for each number of workers of its last training, the smallest first,
            without pauses between updates.
    """

    train: list[dict[str, Any]]
    test: list[dict[str, Any]]
    speeds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def loss(self) -> float | None:
        """Return the training loss of the last point."""
        return self.train[-1]["loss"] if self.train else None

    @property
    def test_loss(self) -> float | None:
        """Return the loss of the last validation."""
        return self.test[-1]["loss"] if self.test else None

    @property
    def test_accuracy(self) -> float | None:
        """Return the accuracy of the last validation, 0 … 1. None where labels are not classes."""
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
        """Return the curve, and the last validations."""
        from edt_sdk.display.shown import metrics_html

        return metrics_html(self.train, self.test)


class Story(list[Event]):
    """Lists the events of a job. Its repr is the story in lines."""

    def __repr__(self) -> str:
        return "\n".join(f"{clock(event.time)}  {event.text or event.kind}" for event in self) or "Nothing yet."

    def _repr_html_(self) -> str:
        """Return the last events as a table."""
        from edt_sdk.display.shown import story_html

        return story_html(self)


class Checkpoints(list[dict[str, Any]]):
    """Lists the checkpoints of a job from the server, as a table at the end of a cell."""

    def __repr__(self) -> str:
        return "\n".join(f"{c['name']}  {size(c['bytes'])}  {stamp(c['time'])}" for c in self) or "No checkpoint yet."

    def _repr_html_(self) -> str:
        """Return the newest checkpoints as a table."""
        from edt_sdk.display.shown import checkpoints_html

        return checkpoints_html(self)


class Workers(list[dict[str, Any]]):
    """Lists the running workers from the server, as a table at the end of a cell."""

    def __repr__(self) -> str:
        said = (
            f"worker {w['worker']}, rank {w['rank']}: slot {w['slot']} of {w['host']}, pid {w['pid']}" for w in self
        )
        return "\n".join(said) or "No worker runs now."

    def _repr_html_(self) -> str:
        """Return the table."""
        from edt_sdk.display.shown import workers_html

        return workers_html(self)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Holds the allocation of slots over time.

    Attributes:
        capacity: slots of the machine.
        rows: one per change, see `timeline_table`.
        names: job id → name.
        total: number of changes.
        thinned: the rows leave some changes out. A shorter window has them all.
        until: end of the last row, seconds since the epoch. Default: the time of the request.
    """

    capacity: int
    rows: Sequence[Mapping[str, Any]]
    names: Mapping[str, str]
    total: int = 0
    thinned: bool = False
    until: float = field(default_factory=time.time)

    def table(self, *, settled_only: bool = False) -> str:
        """Return the text table, see `timeline_table`."""
        return timeline_table(self.rows, self.names, settled_only=settled_only)

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """Return the picture, and below it the table, folded."""
        from edt_sdk.display.shown import timeline_html

        return timeline_html(self.rows, self.names, self.capacity, self.until, self.table())
