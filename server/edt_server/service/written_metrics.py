"""Read the metrics that a script writes itself: `val_dict_list.json` in its RESULT_DIR, as WMLA's scripts do.

It is a JSON list of objects. Each has metrics by name, and may have a `step` or `steps`. The script is user code, so
the file may be anything. What is no such list has no reports, and an entry that makes no sense is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from edt_sdk.schemas.search.spec import LONGEST_METRIC, MOST_EPOCHS, SearchSpec
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import open_regular
from edt_server.searching import Trial
from edt_server.searching.events import Reported

FILE = "val_dict_list.json"
LARGEST = 8 << 20
# Each report is a row of the store and a transaction. An epoch's or a thousandth part's validations are far fewer.
MOST_ENTRIES = 1000
MOST_METRICS = 100
_STEPS = ("step", "steps")
Metrics = dict[str, float | None]


class Entry(NamedTuple):
    """One entry of the list: its metrics after a step, None for one that is NaN or infinite."""

    step: int
    metrics: Metrics


def read(paths: JobPaths) -> list[Entry]:
    """Return what the script of a job has written, nothing where there is no such file. Blocks."""
    try:
        with open_regular(paths.result_dir / FILE, within=paths.results_root) as file:
            data = file.read(LARGEST + 1)
    except OSError:
        return []
    return parse(data) if len(data) <= LARGEST else []


def parse(data: bytes) -> list[Entry]:
    """Return the entries of such a file by their steps. Of several with one step the last counts. Pure."""
    try:
        # Python's reader, because Python's writer has made the file: it writes NaN, which is no JSON.
        found = json.loads(data)
    except (ValueError, RecursionError):  # the latter for brackets in brackets
        return []
    entries: dict[int, Metrics] = {}
    for place, each in enumerate(found if isinstance(found, list) else (), 1):
        if isinstance(each, dict) and (metrics := _metrics(each)):
            entries[_step(each, place)] = metrics
    return [Entry(step, entries[step]) for step in sorted(entries)]


def reports(entries: Sequence[Entry], trial: Trial, spec: SearchSpec) -> list[Reported]:
    """Return what a trial with these entries reports. Pure.

    Where the search counts the epochs of a trial, that is one report after them: the last entry or the best. The
    script's own steps may count something else.
    """
    signed = [(_signed(each, spec), each) for each in entries]
    best = min(signed, key=lambda pair: pair[0])[1] if signed else None
    budget = trial.budget or trial.values.get(spec.resource, 0)
    if isinstance(budget, int) and budget > 0:
        chosen = entries[-1] if spec.value == "last" and entries else best
        return [] if chosen is None else [Reported(trial.number, budget, chosen.metrics)]
    kept = list(entries[-MOST_ENTRIES:])
    if best is not None and best not in kept:
        kept[0] = best
    return [Reported(trial.number, each.step, each.metrics) for each in kept]


def _signed(entry: Entry, spec: SearchSpec) -> float:
    value = entry.metrics.get(spec.metric)
    return math.inf if value is None else -value if spec.direction == "maximize" else value


def _metrics(entry: dict[str, Any]) -> Metrics:
    found: Metrics = {}
    for name, value in entry.items():
        if name in _STEPS or not 0 < len(name) <= LONGEST_METRIC or len(found) == MOST_METRICS:
            continue
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = _finite(value)
    return found


def _finite(value: float) -> float | None:
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number that is larger than any float
        return None


def _step(entry: dict[str, Any], place: int) -> int:
    for name in _STEPS:
        step = entry.get(name)
        if isinstance(step, float) and step.is_integer():
            step = int(step)
        if isinstance(step, int) and not isinstance(step, bool) and 1 <= step <= MOST_EPOCHS:
            return step
    return place
