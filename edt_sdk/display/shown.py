"""Display the answers about a job as HTML: tables, and pictures where they are easier to read.

Pure functions of the fetched data. A picture is an `<img>`, and nothing needs a style or a script. Of an endless list
only the useful part is shown, with a note about the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from edt_sdk.formatting.html_table import left_out, note, table
from edt_sdk.formatting.number_words import figures, lost_words, size, stamp
from edt_sdk.pictures.allocation import AllocationChart, Band, draw_allocation
from edt_sdk.pictures.curves import Loss
from edt_sdk.pictures.losses import Losses, draw_losses
from edt_sdk.pictures.parts.embedded import image
from edt_sdk.pictures.parts.look import Look
from edt_sdk.schemas.events import Event

MOST = 100
_WIDTH = 640
_CHECKPOINT_HEAD = ("Name", "Kind", "Epoch", "Update", "Size", "Written")
_CHECKPOINT_KINDS = {"weights": "weights, for anybody", "exact": "exact, to resume from"}
NO_CHECKPOINT = "No checkpoint yet: one is written at the end of an epoch, and when the job is suspended."
_WORKER_HEAD = ("Worker", "Rank", "Slot", "Host", "Process", "Generation")
_WORKER_KEYS = ("worker", "rank", "slot", "host", "pid", "generation")
NO_WORKER = "No worker runs now."


def metrics_html(train: Sequence[Mapping[str, Any]], test: Sequence[Mapping[str, Any]]) -> str:
    """Return the loss curve over updates, and the last validations."""
    if not train and not test:
        return "<p>No figures yet: the first come with the first update.</p>"
    changes = [
        (float(point["update"]), int(point["world"]))
        # None stands before the first point, so that the first number of workers counts as a change.
        for before, point in pairwise([None, *train])
        if point is not None and "world" in point and (before is None or before.get("world") != point["world"])
    ]
    losses = Losses(
        name="This training",
        train=tuple(Loss(float(point["update"]), _number(point["loss"])) for point in train),
        test=tuple(Loss(float(point["update"]), _number(point["loss"])) for point in test),
        workers=tuple(changes),
        axis="updates",
    )
    svg = draw_losses(losses, Look(width=_WIDTH), smooth=0.3)
    rows = [(point["epoch"] + 1, point["update"] + 1, figures(point["loss"], point.get("accuracy"))) for point in test]
    validations = table(("Epoch", "Update", "Validation"), rows[-10:], empty="No validation yet.")
    return image(svg, losses.says()) + validations + note(lost_words(train))


def story_html(events: Sequence[Event]) -> str:
    """Return a table of events with their times and causes."""
    rows = [(stamp(event.time), event.text or event.kind) for event in events[-MOST:]]
    before = note(left_out(len(events), MOST))
    return before + table(("Time", "What happened"), rows, empty="Nothing has happened yet.")


def timeline_html(
    rows: Sequence[Mapping[str, Any]], names: Mapping[str, str], capacity: int, until: float, text: str
) -> str:
    """Return the picture of slots over time, with the table of every change folded below it."""
    if not rows:
        return "<p>No slot has been given to a job yet.</p>"
    times = [float(row["time"]) for row in rows]
    jobs = list(dict.fromkeys(job for row in rows for job, held in row["slots"].items() if held))
    held = AllocationChart(
        # The last row is in force also where its time is later than `until`.
        edges=(*times, max(until, times[-1])),
        bands=tuple(
            Band(job, names.get(job, job), tuple(float(row["slots"].get(job, 0)) for row in rows)) for job in jobs
        ),
        capacity=tuple(int(row.get("capacity", capacity)) for row in rows),
    )
    picture = image(draw_allocation(held, Look(width=_WIDTH)), held.says())
    lines = text.split("\n")
    # The first line is the table's head and always stays.
    told = "\n".join([lines[0], *lines[1:][-MOST:]])
    rest = left_out(len(lines) - 1, MOST)
    return f"{picture}<details><summary>every change</summary><pre>{_escaped(told)}</pre>{note(rest)}</details>"


def checkpoints_html(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the checkpoints, newest first."""
    newest = sorted(found, key=lambda each: each["time"], reverse=True)
    rows = [
        (
            each["name"],
            _CHECKPOINT_KINDS.get(each["kind"], each["kind"]),
            _or_dash(each["epoch"]),
            _or_dash(each["update"]),
            size(each["bytes"]),
            stamp(each["time"]),
        )
        for each in newest[:MOST]
    ]
    return table(_CHECKPOINT_HEAD, rows, empty=NO_CHECKPOINT) + note(left_out(len(newest), MOST))


def workers_html(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the running workers and their places."""
    rows = [[_or_dash(each.get(key)) for key in _WORKER_KEYS] for each in found]
    return table(_WORKER_HEAD, rows, empty=NO_WORKER)


def _number(loss: float | None) -> float:
    return math.nan if loss is None else loss


def _or_dash(value: object) -> object:
    return "–" if value is None else value


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
