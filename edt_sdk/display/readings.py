"""Define the answers about a job: metrics, story, timeline, checkpoints, workers, the effect of a change.

Each is plain data that displays itself at the end of a notebook cell. It holds what was fetched and never fetches more.
In HTML a picture is an `<img>`, and nothing needs a style or a script. A long list is cut, with a note about the rest.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from itertools import pairwise
from typing import Any

from edt_sdk.formatting.control_characters import one_line
from edt_sdk.formatting.number_words import clock, figures, lost_words, size, stamp
from edt_sdk.formatting.tables import html_table, left_out, note, text_table
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import image
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.forecast import WhatIf

_MOST = 100
_LAST_TESTS = 10
# Of the table of slots, which has a line per change: those that `print` shows, and how wide they may be.
_LAST_CHANGES = 40
_WIDE = 120
_WIDTH = 640
_CHECKPOINT_KINDS = {"weights": "weights, for anybody", "exact": "exact, to resume from"}
# Letters instead of shades: the bar can be read without colours and by a screen reader.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FREE = "·"
_WIDEST_BAR = 64
_NEARLY_NOW = 120.0  # seconds


@dataclass(frozen=True, slots=True)
class Metrics:
    """Holds the curves of a job.

    Attributes:
        train: `{"update", "epoch", "samples", "loss", "accuracy", "world", "time"}` per point. Updates count from 0.
        test: `{"epoch", "update", "loss", "accuracy", "time", "metrics", "name", "drawn"}` per validation. Of several
            evaluations in a script's own loop each has its name, and figures draw one.
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
        return self._drawn[-1]["loss"] if self._drawn else None

    @property
    def test_accuracy(self) -> float | None:
        """Return the accuracy of the last validation, 0 … 1. None where labels are not classes."""
        return self._drawn[-1]["accuracy"] if self._drawn else None

    @property
    def _drawn(self) -> list[dict[str, Any]]:
        return [each for each in self.test if each.get("drawn", True)]

    def __repr__(self) -> str:
        if not self.train and not self.test:
            return "Metrics: none yet."
        lines = [f"Metrics: {len(self.train)} training points, {len(self.test)} validations."]
        if self.train:
            last = self.train[-1]
            lines.append(f"  last update {last['update'] + 1:,}: {figures(last['loss'], last.get('accuracy'))}")
        tests = self.test[-_LAST_TESTS:]
        if len(self.test) > len(tests):
            lines.append(f"  … the tests of {len(self.test) - len(tests)} earlier validations are in .test")
        lines += [f"  {t.get('name') or 'test'}, epoch {t['epoch'] + 1}: {_measured(t)}" for t in tests]
        if said := lost_words(self.train):
            lines.append(f"  {said}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the loss curve over updates, and the last validations."""
        from edt_sdk.pictures.curves import Loss
        from edt_sdk.pictures.losses import Losses, draw_losses

        if not self.train and not self.test:
            return "<p>No figures yet: the first come with the first update.</p>"

        def points(of: Sequence[Mapping[str, Any]]) -> tuple[Loss, ...]:
            return tuple(Loss(float(p["update"]), math.nan if p["loss"] is None else p["loss"]) for p in of)

        changes = [
            (float(point["update"]), int(point["world"]))
            # None stands before the first point, so that the first number of workers counts as a change.
            for before, point in pairwise([None, *self.train])
            if point is not None and "world" in point and (before is None or before.get("world") != point["world"])
        ]
        losses = Losses("This training", points(self.train), points(self._drawn), tuple(changes), axis="updates")
        svg = draw_losses(losses, Look(width=_WIDTH), smooth=0.3)
        rows = [(t["epoch"] + 1, t["update"] + 1, t.get("name") or "test", _measured(t)) for t in self.test]
        before = note(left_out(len(rows), _LAST_TESTS))
        columns = "Epoch", "Update", "Name", "Validation"
        validations = html_table(columns, rows[-_LAST_TESTS:], empty="No validation yet.")
        return image(svg, losses.says()) + before + validations + note(lost_words(self.train))


class Story(list[Event]):
    """Lists the events of a job. Its repr is the story in lines."""

    def __repr__(self) -> str:
        return "\n".join(f"{clock(event.time)}  {event.text or event.kind}" for event in self) or "Nothing yet."

    def _repr_html_(self) -> str:
        """Return the last events as a table, with their times and causes."""
        rows = [(stamp(event.time), event.text or event.kind) for event in self[-_MOST:]]
        before = note(left_out(len(self), _MOST))
        return before + html_table(("Time", "What happened"), rows, empty="Nothing has happened yet.")


class Checkpoints(list[dict[str, Any]]):
    """Lists the checkpoints of a job from the server, as a table at the end of a cell."""

    def __repr__(self) -> str:
        return "\n".join(f"{c['name']}  {size(c['bytes'])}  {stamp(c['time'])}" for c in self) or "No checkpoint yet."

    def _repr_html_(self) -> str:
        """Return the newest checkpoints as a table, newest first."""
        rows = [
            (
                each["name"],
                _CHECKPOINT_KINDS.get(each["kind"], each["kind"]),
                _or_dash(each["epoch"]),
                _or_dash(each["update"]),
                size(each["bytes"]),
                stamp(each["time"]),
            )
            for each in sorted(self, key=lambda each: each["time"], reverse=True)[:_MOST]
        ]
        none = "No checkpoint yet: one is written at the end of an epoch, and when the job is suspended."
        shown = html_table(("Name", "Kind", "Epoch", "Update", "Size", "Written"), rows, empty=none)
        return shown + note(left_out(len(self), _MOST))


class Workers(list[dict[str, Any]]):
    """Lists the running workers from the server, as a table at the end of a cell."""

    def __repr__(self) -> str:
        said = (
            f"worker {w['worker']}, rank {w['rank']}: slot {w['slot']} of {w['host']}, pid {w['pid']}" for w in self
        )
        return "\n".join(said) or "No worker runs now."

    def _repr_html_(self) -> str:
        """Return the table."""
        keys = ("worker", "rank", "slot", "host", "pid", "generation")
        rows = [[_or_dash(each.get(key)) for key in keys] for each in self]
        head = ("Worker", "Rank", "Slot", "Host", "Process", "Generation")
        return html_table(head, rows, empty="No worker runs now.")


@dataclass(frozen=True, slots=True)
class Timeline:
    """Holds the allocation of slots over time.

    Attributes:
        capacity: slots of the machine.
        rows: `{"time", "slots": {job: n}, "leaving": {job: n}, "free", "capacity", "cause", "text", "settled"}` per
            change, times in seconds. `leaving` counts the slots that a job must release.
        names: job id → name. A job without a name is shown by its id.
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
        """Return the timeline as text: the slots of each job over time, and the cause of each change.

        One line per change: time since the first, slots of each job, a letter per slot in the order of the jobs (lower
        case while the slot is being released), and the cause. `settled_only` leaves out changes in which a slot was
        still in transfer between jobs, which are marked with `~` otherwise.
        """
        return "\n".join(self._lines([row for row in self.rows if row.get("settled", True) or not settled_only]))

    def _lines(self, shown: Sequence[Mapping[str, Any]], *, width: int | None = None) -> list[str]:
        """Return the lines of the table. Above `width` a legend replaces the columns of jobs."""
        if not shown:
            return ["No slot has been given to a job yet."]
        jobs = list(
            dict.fromkeys(job for row in shown for job, held in row["slots"].items() if held or len(shown) == 1)
        )
        labels = _labels(jobs, self.names)
        # The first of all rows and not of the shown rows, so that a time means the same with `settled_only`.
        start = self.rows[0]["time"]
        bars = [_bar(row, jobs) for row in shown]
        bar_width = max(len("slots"), *(len(bar) for bar in bars))
        columns, legend = list(zip(jobs, labels, strict=True)), ""
        causes = [one_line(str(row.get("text") or row.get("cause") or "")) for row in shown]
        whole = 9 + sum(2 + len(label) for label in labels) + 8 + bar_width + max(map(len, causes))
        # Where the bars are too long to be drawn, the columns alone have the slots of each job.
        if width is not None and whole > width and all(bars):
            columns, legend = [], ", ".join(labels)
        lines = ["  ".join(["     time", *(label for _, label in columns), "free", f"{'slots':<{bar_width}}", "cause"])]
        for row, bar, cause in zip(shown, bars, causes, strict=True):
            counts = [f"{row['slots'].get(job) or '-':>{len(label)}}" for job, label in columns]
            mark = " " if row.get("settled", True) else "~"
            cells = [f"{mark}{_since(row['time'] - start):>8}", *counts, f"{row['free']:>4}", f"{bar:<{bar_width}}"]
            lines.append("  ".join([*cells, cause]).rstrip())
        if not all(row.get("settled", True) for row in shown):
            lines.append("~ and small letters: slots that a job is about to release.")
        return [*textwrap.wrap(legend, width or _WIDE), *lines]

    def __repr__(self) -> str:
        shown = self.rows[-_LAST_CHANGES:]
        earlier = len(self.rows) - len(shown)
        note = [f"… {earlier:,} earlier changes: .table() has them all."] if earlier else []
        return "\n".join([*note, *self._lines(shown, width=_WIDE)])

    def _repr_html_(self) -> str:
        """Return the picture of slots over time, with the table of every change folded below it."""
        from edt_sdk.pictures.allocation import AllocationChart, Band, draw_allocation

        if not self.rows:
            return "<p>No slot has been given to a job yet.</p>"
        times = [float(row["time"]) for row in self.rows]
        jobs = dict.fromkeys(job for row in self.rows for job, held in row["slots"].items() if held)
        chart = AllocationChart(
            # The last row is in force also where its time is later than `until`.
            edges=(*times, max(self.until, times[-1])),
            bands=tuple(
                Band(job, self.names.get(job, job), tuple(float(row["slots"].get(job, 0)) for row in self.rows))
                for job in jobs
            ),
            capacity=tuple(int(row.get("capacity", self.capacity)) for row in self.rows),
        )
        picture = image(draw_allocation(chart, Look(width=_WIDTH)), chart.says())
        # The first line is the table's head and always stays.
        head, *lines = self.table().split("\n")
        told = escape("\n".join([head, *lines[-_MOST:]]), quote=False)
        rest = note(left_out(len(lines), _MOST))
        return f"{picture}<details><summary>every change</summary><pre>{told}</pre>{rest}</details>"


def _measured(test: Mapping[str, Any]) -> str:
    return figures(test["loss"], test.get("accuracy"), test.get("metrics"))


def _or_dash(value: object) -> object:
    return "–" if value is None else value


def _labels(jobs: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return column heads: letter and name, cut to stay narrow. Equal names get the end of the id."""
    called = [one_line(names.get(job) or job) for job in jobs]
    labels = []
    for at, (job, name) in enumerate(zip(jobs, called, strict=True)):
        twice = called.count(name) > 1 and name != job
        name = f"{name[:10]}…{job[-4:]}" if twice else name
        labels.append(f"{_letter(at)} {name if len(name) <= 16 else name[:15] + '…'}")
    return labels


def _letter(at: int) -> str:
    return _LETTERS[at % len(_LETTERS)]


def _bar(row: Mapping[str, Any], jobs: Sequence[str]) -> str:
    bar = ""
    for at, job in enumerate(jobs):
        held, leaving = int(row["slots"].get(job, 0)), int(row.get("leaving", {}).get(job, 0))
        bar += _letter(at) * (held - leaving) + _letter(at).lower() * leaving
    bar += _FREE * int(row["free"])
    # A longer bar would wrap. The columns have its numbers anyway.
    return bar if len(bar) <= _WIDEST_BAR else ""


def _since(seconds: float) -> str:
    """Format like 0:07.4 below an hour, 1:02:09 above."""
    # Rounded before the split: 59.96 s is 1:00.0 and not 0:60.0.
    tenths = round(max(0.0, seconds) * 10)
    minutes, rest = divmod(tenths, 600)
    if minutes < 60:
        return f"{minutes}:{rest // 10:02d}.{rest % 10}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest // 10:02d}"


class WhatIfAnswer(WhatIf, frozen=True, kw_only=True):
    """Holds a `WhatIf` with a repr of a small table and a sentence. See there for its fields."""

    def __repr__(self) -> str:
        rows = [(each.job, each.name, each.now, each.then) for each in self.shares]
        shown = text_table(("JOB", "NAME", "NOW", "THEN"), rows)
        why = self.reason.text if self.reason else ""
        if self.shares and all(each.now == each.then for each in self.shares):
            why = "No slot would change its job now: " + (why or "this one has all it can use.")
        return "\n".join(filter(None, (shown, self._ends(), why)))

    def _ends(self) -> str:
        if self.ends_now is None and self.ends_then is None:
            return "When it would end is not known yet."
        if self.ends_then is None:
            return f"As things are, its training ends {_about(self.ends_now)}; when it would end then is not known."
        if self.ends_now is None:
            return f"Its training would end {_about(self.ends_then)}; when it ends as things are is not known."
        return f"Its training would end {_about(self.ends_then)}; as things are, {_about(self.ends_now)}."


def _about(seconds: float | None) -> str:
    if seconds is None:
        return ""
    # A computed time that is far away is not exact to the second.
    if seconds - time.time() < _NEARLY_NOW:
        return f"about {datetime.fromtimestamp(seconds):%a %H:%M:%S}"
    return f"about {datetime.fromtimestamp(60 * round(seconds / 60)):%a %H:%M}"
