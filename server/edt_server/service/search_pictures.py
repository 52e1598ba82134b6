"""The data of a search's pictures, from what its core knows of its trials. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from edt_sdk.pictures.history import ValueHistory
from edt_sdk.pictures.parallel import ParallelTrials, ValueAxis
from edt_sdk.pictures.parts.trials import TrialDot
from edt_sdk.pictures.rungs import RungChart, RungRow
from edt_sdk.schemas.search.space import Choice, Parameter, Uniform, Value
from edt_sdk.schemas.search.views import TrialState
from edt_server.searching.core import SearchCore
from edt_server.store.search_rows import TrialRow

_FATES = {
    TrialState.WAITING: "held",
    TrialState.RUNNING: "running",
    TrialState.HELD: "held",
    TrialState.FINISHED: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.STOPPED: "pruned",
    TrialState.FAILED: "failed",
}
_MOST_VALUES = 400  # trials above which texts leave out the parameters


def history(core: SearchCore, rows: Mapping[int, TrialRow], axis: str) -> ValueHistory:
    """Return the data of the history over the numbers of trials, or over the times at which they ended."""
    spec = core.spec
    dots = tuple(
        replace(dot, at=row.number if axis == "number" else row.ended or row.created)
        for row, dot in _valued(core, rows)
        if axis == "number" or row.ended is not None
    )
    return ValueHistory(spec.job.name, spec.metric, spec.direction == "maximize", dots, axis)


def parallel(core: SearchCore, rows: Mapping[int, TrialRow]) -> ParallelTrials:
    """Return the data of the parallel coordinates: the values of each trial that has reported."""
    spec = core.spec
    lines = tuple(
        (dot, tuple(_place(each, row.params.get(name)) for name, each in spec.space.items()))
        for row, dot in _valued(core, rows)
    )
    axes = tuple(_axis(name, each) for name, each in spec.space.items())
    return ParallelTrials(spec.job.name, spec.metric, spec.direction == "maximize", axes, lines)


def _valued(core: SearchCore, rows: Mapping[int, TrialRow]) -> Iterator[tuple[TrialRow, TrialDot]]:
    """Yield the trials that have a value, each with its dot by number."""
    brief = len(rows) > _MOST_VALUES
    for row in rows.values():
        trial, value, epochs = core.trials[row.number], row.value, row.epochs
        if trial.open and trial.compared:
            # What it reports now counts at its next comparison.
            value, epochs = trial.score, trial.compared
        if value is not None:
            text = _text(row, value, epochs, brief)
            yield row, TrialDot(row.number, value, _FATES[row.state], trial.compared, text)


def _axis(name: str, parameter: Parameter) -> ValueAxis:
    if isinstance(parameter, Choice):
        return ValueAxis(name, choices=tuple(str(value) for value in parameter.values))
    powers = isinstance(parameter, Uniform) and parameter.base is not None
    return ValueAxis(name, parameter.real(parameter.low), parameter.real(parameter.high), powers or parameter.log)


def _place(parameter: Parameter, value: Value | None) -> float:
    """Return where a value lies on its axis. Without one, as in a trial of an older space, it lies at the low end."""
    if isinstance(parameter, Choice):
        return parameter.values.index(value) if value in parameter.values else 0
    return value if isinstance(value, int | float) else math.nan


def rung_chart(core: SearchCore, rows: Mapping[int, TrialRow]) -> RungChart:
    """Return the data of the comparisons. A trial stands in each that it has reached or trains for."""
    spec, brief = core.spec, len(rows) > _MOST_VALUES
    rungs = {bracket: list(views) for bracket, views in groupby(core.rungs(), lambda view: view.bracket)}
    dots: dict[int, list[list[TrialDot]]] = {bracket: [[] for _ in views] for bracket, views in rungs.items()}
    for row in rows.values():
        trial = core.trials[row.number]
        for at, view in enumerate(rungs.get(trial.bracket, [])[: trial.rung + 1]):
            gone = at < trial.rung
            compared = spec.kind.rungs and (gone or not trial.open) and view.budget in trial.reports
            value = trial.reports[view.budget] if compared else None if gone else row.value
            if value is not None:
                epochs = view.budget if compared else row.epochs
                fate = "promoted" if gone else _FATES[row.state]
                text = _text(row, value, epochs, brief)
                dots[trial.bracket][at].append(TrialDot(row.number, value, fate, view.budget, text))
    found = tuple(
        RungRow(view.bracket, view.budget, view.trials, view.reported, view.promoted, tuple(dots[bracket][at]))
        for bracket, views in rungs.items()
        for at, view in enumerate(views)
    )
    return RungChart(spec.job.name, spec.metric, spec.direction == "maximize", found)


def _text(row: TrialRow, value: float, epochs: int, brief: bool) -> str:
    params = {} if brief else row.params
    values = "".join(f", {name}={f'{each:.4g}' if isinstance(each, float) else each}" for name, each in params.items())
    after = f" after {epochs} epoch{'s' * (epochs != 1)}" if epochs else ""
    return f"trial {row.number}: {value:.4g}{after}{values}"
