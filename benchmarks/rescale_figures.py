"""The figures of `rescale.py`: its table and its targets, from the changes that were measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from benchmarks.changes import Change
from benchmarks.summary import Check, Summary, duration, ratio, summarize

PATH = (1, 2, 4, 3, 1)
NAMES = {
    "warm": "ours, warm",
    "train_own_loop.py": "ours, own loop",
    "train_hugging_face.py": "ours, Hugging Face",
    "train_lightning.py": "ours, Lightning",
    "cold": "ours, cold",
    "nothing": "ours, from nothing",
    "best": "torchrun, best settings",
    "defaults": "torchrun, defaults",
}
WAYS = tuple(name for name in NAMES if name.endswith(".py"))
HEADING = ["side", "state", "change", "n", "stall", "worst", "request → first", "worst", "of it updates", "repeated"]
STALL_TARGETS = {8: 0.050, 150: 0.150}
# "nothing" has none: it is a start of Python and the import of torch, which no design of ours makes shorter.
JOIN_TARGETS = {"warm": 0.3, **dict.fromkeys(WAYS, 0.3), "cold": 1.5}
RATIO_TARGETS = {("defaults", True): 40.0, ("defaults", False): 40.0, ("best", True): 20.0, ("best", False): 60.0}


@dataclass(frozen=True, slots=True)
class Measured:
    """Changes of one side (a key of `NAMES`) with that much model and optimizer."""

    key: str
    megabytes: int
    changes: tuple[Change, ...]


def rows(measured: Sequence[Measured]) -> list[list[str]]:
    """The table: a row for each size, side and change that was measured."""
    lines = [HEADING]
    for megabytes in sorted({some.megabytes for some in measured}):
        for key, name in NAMES.items():
            for before, after in pairwise(PATH):
                found = [
                    change
                    for change in _select(measured, key, megabytes)
                    if (change.request.before, change.request.after) == (before, after)
                ]
                stall, delay = _stalls(found), _delays(found)
                if stall is not None and delay is not None:
                    times = [duration(value) for value in (stall.median, stall.worst, delay.median, delay.worst)]
                    repeated = sum(change.repeated for change in found) / len(found)
                    what = [name, f"{megabytes} MB", f"{before} → {after}", str(stall.n)]
                    floor = duration(median(change.updates for change in found))
                    lines.append([*what, *times, floor, f"{repeated:.1f}"])
    return lines


def checks(measured: Sequence[Measured], sides: Sequence[str] = tuple(NAMES)) -> list[Check]:
    """What was measured against the targets.

    Args:
        measured: everything.
        sides: that were to be measured; one of these that is missing misses its targets.
    """
    found: list[Check] = []
    for megabytes, target in STALL_TARGETS.items():
        for key, join_target in JOIN_TARGETS.items():
            if key not in sides:
                continue
            some = _select(measured, key, megabytes)
            what = f"stall, {megabytes} MB, {NAMES[key]}, largest of the medians of the changes, s"
            found.append(Check(what, max(_medians(some), default=None), target, "at most"))
            joined = _delays(change for change in some if change.request.grows)
            what = f"request → first update with the joiner, {megabytes} MB, {NAMES[key]}, s"
            found.append(Check(what, joined.median if joined else None, join_target, "at most"))
        for (key, grows), target_ratio in RATIO_TARGETS.items():
            # What torchrun's defaults wait for does not depend on the size of the state: measured with the small one.
            if key not in sides or (key == "defaults" and megabytes != min(STALL_TARGETS)):
                continue
            theirs, own = (
                _stalls(change for change in _select(measured, side, megabytes) if change.request.grows == grows)
                for side in (key, "warm")
            )
            what = f"stall {'growing' if grows else 'shrinking'}, {megabytes} MB, {NAMES[key]} ÷ ours"
            found.append(Check(what, ratio(theirs, own), target_ratio, "at least"))
    return found


def _select(measured: Iterable[Measured], key: str, megabytes: int) -> list[Change]:
    return [change for some in measured if (some.key, some.megabytes) == (key, megabytes) for change in some.changes]


def _medians(some: Sequence[Change]) -> list[float]:
    """The median stall of each kind of change."""
    kinds = {(change.request.before, change.request.after) for change in some}
    of_kinds = (_stalls(c for c in some if (c.request.before, c.request.after) == kind) for kind in kinds)
    return [stall.median for stall in of_kinds if stall is not None]


def _stalls(some: Iterable[Change]) -> Summary | None:
    return summarize([change.stall for change in some])


def _delays(some: Iterable[Change]) -> Summary | None:
    return summarize([change.delay for change in some])
