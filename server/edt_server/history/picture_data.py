"""Convert rows, points and events of the server into the data of `edt_sdk.pictures`. Pure.

The result has at most a few hundred points, however long a job is or how many jobs there are: callers pass rows and
points that are thinned already, and this module merges neighbours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from edt_sdk.pictures.allocation import OTHERS, AllocationChart, Band
from edt_sdk.pictures.comparison import Compared
from edt_sdk.pictures.curves import Loss
from edt_sdk.pictures.efficiency import Efficiency, MeasuredSpeed
from edt_sdk.pictures.losses import NO_UPDATE, Losses
from edt_sdk.pictures.parts.look import job_colour
from edt_sdk.pictures.parts.marks import Mark
from edt_sdk.pictures.shares import GroupShare, Shares
from edt_sdk.pictures.slots_map import SlotCell, SlotsMap
from edt_sdk.pictures.spark import Spark
from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobState, JobView
from edt_server.history.timeline import TimelineRow
from edt_server.outputs.results import Checkpoint
from edt_server.outputs.training_curve import Curve, TrainPoint

# A picture's size is bounded for any number of jobs: all others share one grey band (docs/decisions/028).
MOST_BANDS = 10
_SHORTEST = 0.5  # seconds, too short to measure a speed
_WIDE, _STRETCH = 10.0, 1.0  # seconds, the least width of a timeline and of a zoomed part
FAILURES = frozenset({kinds.WORKER_LOST, kinds.DRIVER_LOST, kinds.SUPERVISOR_LOST})
MARKED = FAILURES | {kinds.SLOT_GRANTED, kinds.SLOT_REVOKED} | kinds.INPUTS


def allocation_of(
    rows: Sequence[TimelineRow],
    names: Mapping[str, str],
    *,
    until: float,
    start: float | None = None,
    mine: str = "",
    marks: Sequence[Mark] = (),
    total: int = 0,
    brief: bool = False,
) -> AllocationChart:
    """Convert rows of a timeline into an allocation.

    Args:
        rows: oldest first, each in force until the next one.
        names: names of the jobs for people.
        until: to when the last row holds.
        start: from when on it is drawn, the first row by default.
        mine: the job that is emphasised, which is the lowest band.
        marks: events to mark. Events outside of the picture are left out.
        total: how many rows there were, when these are a part of them.
        brief: as in `AllocationChart`.
    """
    edges = [max(row["time"], start or -math.inf) for row in rows]
    edges = [min(edge, until) for edge in edges] + [until]
    edges = [max(edges[: at + 1]) for at in range(len(edges))]  # a clock that was set back must not draw a time twice
    columns = [at for at, (left, right) in enumerate(pairwise(edges)) if right > left]
    if not columns:
        return AllocationChart((), (), ())
    kept = [rows[at] for at in columns]
    wide = [edges[at + 1] - edges[at] for at in columns]
    shown = _banded(kept, wide, mine)
    bands = tuple(
        Band(job, names.get(job, job), *(_column(kept, job, key) for key in ("slots", "leaving"))) for job in shown
    )
    others = _others(kept, set(shown), names)
    begin, last = edges[columns[0]], edges[columns[-1] + 1]
    note = f"{len(rows)} of {total} changes are drawn; zoom in to see the others." if total > len(rows) else ""
    return AllocationChart(
        edges=(*(edges[at] for at in columns), last),
        bands=(*bands, *others),
        capacity=tuple(row["capacity"] for row in kept),
        marks=tuple(mark for mark in marks if begin <= mark.at <= last),
        mine=mine,
        note=note,
        shortest=_WIDE if start is None else _STRETCH,
        brief=brief,
    )


def held_by(jobs: Collection[str], row: TimelineRow) -> TimelineRow:
    """Return the row with the slots of these jobs only."""
    slots, leaving = (
        {job: count for job, count in held.items() if job in jobs} for held in (row["slots"], row["leaving"])
    )
    return {**row, "slots": slots, "leaving": leaving}


def _banded(rows: Sequence[TimelineRow], wide: Sequence[float], mine: str) -> list[str]:
    """Return the jobs with a band of their own: `mine`, then the largest holders, in order of arrival."""
    held: dict[str, float] = defaultdict(float)
    for row, seconds in zip(rows, wide, strict=True):
        for job, slots in row["slots"].items():
            held[job] += slots * seconds
    most = sorted((job for job in held if job != mine), key=lambda job: (-held[job], job))[:MOST_BANDS]
    chosen = set(most)
    return [job for job in (mine,) if job] + [job for job in held if job in chosen]


def _column(rows: Sequence[TimelineRow], job: str, key: str) -> tuple[float, ...]:
    counts = tuple(float((row["slots"] if key == "slots" else row["leaving"]).get(job, 0)) for row in rows)
    return counts if key == "slots" or any(counts) else ()


def _others(rows: Sequence[TimelineRow], shown: set[str], names: Mapping[str, str]) -> tuple[Band, ...]:
    # One band for all other jobs: a picture of a thousand jobs stays small and legible.
    rest = {job for row in rows for job in row["slots"]} - shown
    if not rest:
        return ()
    slots = tuple(float(sum(held for job, held in row["slots"].items() if job not in shown)) for row in rows)
    return (Band(OTHERS, f"{len(rest)} other jobs" if len(rest) > 1 else names.get(min(rest), "another job"), slots),)


def marks_of(events: Iterable[Event]) -> list[Mark]:
    """Convert a job's events into marks of its slots and processes.

    Slots that leave because of the job itself (its maximum, the end of a training) are marked as fewer. Slots that
    another job needs are marked as taken away.
    """
    own: set[int] = set()
    told: dict[tuple[int, str], list[Event]] = defaultdict(list)
    marks: list[Mark] = []
    for event in events:
        # All events are this job's, so a cause among them is the job's own.
        if event.kind in kinds.INPUTS:
            own.add(event.seq)
        elif event.kind in FAILURES and "moved_to" not in event.data:
            marks.append(Mark(event.time, "failure", event.text))
        elif event.kind == kinds.SLOT_GRANTED:
            # One mark for all slots that a single decision moved.
            told[event.cause or event.seq, "grow"].append(event)
        elif event.kind == kinds.SLOT_REVOKED:
            told[event.cause or event.seq, "shrink" if event.cause in own else "preempt"].append(event)
    for (_, kind), group in told.items():
        text = group[0].text if len(group) == 1 else f"{len(group)} slots: {group[0].text}"
        marks.append(Mark(group[0].time, kind, text))
    return sorted(marks, key=lambda mark: mark.at)


def losses_of(
    curve: Curve,
    name: str,
    *,
    axis: str,
    marks: Sequence[Mark] = (),
    checkpoints: Sequence[Checkpoint] = (),
    empty: str = NO_UPDATE,
) -> Losses:
    """Convert the curve of a job's last training into its loss picture.

    Args:
        curve: the thinned points.
        name: of the job.
        axis: samples, updates or time.
        marks: failures of the job, at their times. Changes of the workers come from the points.
        checkpoints: all checkpoints. Only those of the last training are marked.
        empty: the reason shown when there is no point.
    """
    x = _PLACES[axis]
    train = curve.train
    if not train:
        return Losses(name, (), axis=axis, empty=empty)
    place = _timed(train, x)
    changes = [*_changes(curve, x), *_failures(marks, train, place), *_saved(checkpoints, curve, place)]
    return Losses(
        name=name,
        train=tuple(Loss(x(point), _loss(point.loss)) for point in train),
        test=tuple(Loss(place(point.update, point.time), _loss(point.loss)) for point in curve.test),
        workers=tuple((x(point), point.world) for point in curve.sizes),
        marks=tuple(sorted(changes, key=lambda mark: mark.at)),
        axis=axis,
    )


def columns_of(losses: Losses, job: str) -> dict[str, Any]:
    """Convert the losses of a job into columns of numbers, for a chart in a browser."""
    return {
        "axis": losses.axis,
        "text": losses.says(),
        "colour": job_colour(job),
        "train": _columns(losses.train),
        "test": _columns(losses.test),
        "workers": {"x": [x for x, _ in losses.workers], "count": [count for _, count in losses.workers]},
        "marks": losses.marks,
    }


def _columns(points: Sequence[Loss]) -> dict[str, list[float]]:
    # JSON has no NaN: it is encoded as null.
    return {"x": [point.x for point in points], "loss": [point.loss for point in points]}


_PLACES: dict[str, Callable[[TrainPoint], float]] = {
    "samples": lambda point: float(point.samples),
    "updates": lambda point: float(point.update + 1),
    "time": lambda point: point.time,
}


def _loss(value: float | None) -> float:
    return math.nan if value is None else value


def _timed(train: Sequence[TrainPoint], x: Callable[[TrainPoint], float]) -> Callable[[int, float], float]:
    """Return a function that interpolates the x of an update and its commit time between the points."""
    updates = [point.update for point in train]

    def place(update: int, time: float) -> float:
        if x is _PLACES["time"]:
            return time
        after = min(bisect_left(updates, update), len(train) - 1)
        before = max(0, after - 1)
        left, right = train[before], train[after]
        if right.update <= left.update or update >= right.update:
            return x(right)
        share = max(0.0, (update - left.update) / (right.update - left.update))
        return x(left) + share * (x(right) - x(left))

    return place


def _changes(curve: Curve, x: Callable[[TrainPoint], float]) -> list[Mark]:
    return [
        Mark(
            x(now),
            "grow" if now.world > before.world else "shrink",
            f"{before.world} to {now.world} workers from update {now.update + 1:,} on",
        )
        for before, now in pairwise(curve.sizes)
    ]


def _failures(marks: Sequence[Mark], train: Sequence[TrainPoint], place: Callable[[int, float], float]) -> list[Mark]:
    found = []
    for mark in marks:
        if mark.kind == "failure" and mark.at >= train[0].time:
            near = next((point.update for point in train if point.time >= mark.at), train[-1].update)
            # At an update, because an axis of updates has no place for a time. A failure after the last update is drawn
            # there.
            found.append(Mark(place(near, min(mark.at, train[-1].time)), "failure", mark.text))
    return found


def _saved(checkpoints: Sequence[Checkpoint], curve: Curve, place: Callable[[int, float], float]) -> list[Mark]:
    return [
        # A checkpoint counts committed updates, and points number updates from 0.
        Mark(place(each.update - 1, min(each.time, curve.train[-1].time)), "checkpoint", f"checkpoint {each.name}")
        for each in checkpoints
        if each.update and each.training == curve.training
    ]


def compared(job: str, curve: Curve, name: str, axis: str) -> Compared:
    """Convert a curve into one job of a comparison. Time counts in seconds since its first update."""
    found = losses_of(curve, name, axis=axis)
    # Trainings of different days can only be compared from their own starts.
    begun = curve.train[0].time if curve.train and axis == "time" else 0.0
    return Compared(job, name, *(tuple(Loss(p.x - begun, p.loss) for p in some) for some in (found.train, found.test)))


def efficiency_of(curve: Curve, name: str) -> Efficiency:
    """Convert the speeds of a curve into an efficiency picture, without sizes measured too briefly."""
    return Efficiency(
        name,
        tuple(
            MeasuredSpeed(workers, samples / seconds, seconds)
            for workers, (samples, seconds) in curve.speeds.items()
            if seconds >= _SHORTEST
        ),
    )


def spark_of(view: JobView, curve: Curve, result: str | None = None) -> Spark:
    """Convert a view and a curve into a small picture. `result` is that of a validation, None for a training."""
    progress = view.progress
    done = progress.update / progress.total_updates if progress is not None and progress.total_updates else 0.0
    living = not view.state.final
    return Spark(
        name=view.name,
        state=view.state.shown,
        done=1.0 if view.state is JobState.FINISHED else done,
        slots=view.slots if living else 0,
        most=view.max_workers if living else 0,
        losses=tuple(_loss(point.loss) for point in curve.train),
        # The file of the curve is written later than progress is reported, and a card has both.
        loss=None if progress is None else progress.loss,
        result=result,
    )


def slots_of(cluster: Mapping[str, Any], named: Mapping[str, int], *, mine: str = "") -> SlotsMap:
    """Convert the answer of `cluster.standing` into the map of slots, with the job `mine` emphasised.

    `named` has the configured hosts with the slots of each. A host that has none now is lost.
    """
    names = cluster["names"]
    fenced = {each["device"] for each in cluster["elsewhere"]}
    hosts: dict[str, list[SlotCell]] = {host: [] for host in named}
    for slot in cluster["slots"]:
        job = slot["job"] or ""
        state = "held" if job else "fenced" if slot["device"] in fenced else "idle"
        if job and slot["leaving"]:
            state = "leaving"
        cell = SlotCell(slot["id"], slot["device"], state, job, names.get(job, job))
        hosts.setdefault(slot["host"], []).append(cell)
    lost = {host: [SlotCell(None, "-", "lost")] * count for host, count in named.items() if not hosts[host]}
    rows = tuple((host, tuple(lost.get(host, cells))) for host, cells in hosts.items())
    return SlotsMap(rows, mine, arrived=tuple(names))


def shares_of(cluster: Mapping[str, Any]) -> Shares:
    """Convert the answer of `cluster.standing` into the shares of groups, each after its parent."""
    groups = cluster["groups"]
    inside: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for group in groups:
        inside[group["parent"]].append(group)
    return Shares(tuple(_below("", 0, inside)))


def _below(parent: str, depth: int, inside: Mapping[str, list[Mapping[str, Any]]]) -> Iterator[GroupShare]:
    for group in inside.get(parent, ()):
        yield GroupShare(
            name=group["name"],
            depth=depth,
            slots=group["slots"],
            entitled=group["entitled"],
            held=group["held"],
            borrowed=sum(group["lenders"].values()),
            lent=group["lent"],
            jobs=group["jobs"],
            waiting=len(group["waiting"]),
            wanting=len(group["wanting"]),
        )
        yield from _below(group["name"], depth + 1, inside)
