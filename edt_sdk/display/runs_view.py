"""Display projects and the table of runs: the columns that differ as a table, the others in a sentence below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from textwrap import shorten
from typing import Any

from edt_sdk.formatting.number_words import duration, stamp
from edt_sdk.formatting.tables import left_out, note, text_table
from edt_sdk.schemas.experiments.runs import ProjectView, RunColumn, RunTable
from edt_sdk.schemas.job import JobState

PROJECT_HEAD = ("PROJECT", "RUNS", "EXPERIMENTS", "CHANGED")
NO_PROJECTS = 'No projects yet: client.project("mnist").experiment("rates").submit(…) begins one.'
_MOST = 100  # rows at the end of a cell
_LONGEST = 60
_CELL = 'style="text-align: {}; vertical-align: top; padding: 0 14px 0 0; font-weight: {}"'


def project_cells(view: ProjectView) -> tuple[str, ...]:
    """Return the columns of a project."""
    named = ", ".join(f"{each.name} ({each.runs})" for each in view.experiments)
    return (view.name, str(view.runs), named or "-", stamp(view.changed))


def runs_text(table: RunTable) -> str:
    """Return the table as text, with the best value of each metric marked by a star."""
    columns, best = _differing(table), best_values(table)
    rows = [
        [_words(column.name, row) + "*" * _is_best(best, column, row) for column in columns]
        for row in table.rows[:_MOST]
    ]
    return "\n".join([text_table([column.name for column in columns], rows), *_below(table)])


def runs_html(table: RunTable) -> str:
    """Return the table as HTML, with the best value of each metric in bold."""
    columns, best = _differing(table), best_values(table)
    heads = "".join(f'<th scope="col" {_CELL.format("left", 600)}>{escape(column.name)}</th>' for column in columns)
    rows = ""
    for row in table.rows[:_MOST]:
        cells = ""
        for column in columns:
            side = "right" if is_number(row.get(column.name)) else "left"
            style = _CELL.format(side, 700 if _is_best(best, column, row) else 400)
            cells += f"<td {style}>{escape(_words(column.name, row))}</td>"
        rows += f"<tr>{cells}</tr>"
    whole = f'<table style="line-height: 1.5"><tr>{heads}</tr>{rows}</table>'
    return "<br/>".join([whole, *map(note, _below(table))])


def best_values(table: RunTable) -> dict[str, float]:
    """Return the best value of each metric, where its name says what is better and the runs differ in it."""
    found: dict[str, float] = {}
    for column in table.columns:
        values = [row[column.name] for row in table.rows if is_number(row.get(column.name))]
        if column.direction and len(set(values)) > 1:
            found[column.name] = max(values) if column.direction == "maximize" else min(values)
    return found


def _is_best(best: Mapping[str, float], column: RunColumn, row: Mapping[str, Any]) -> bool:
    return column.name in best and row.get(column.name) == best[column.name]


def _differing(table: RunTable) -> Sequence[RunColumn]:
    return [column for column in table.columns if column.name not in table.same]


def _below(table: RunTable) -> list[str]:
    """Return the sentences below a table: what is the same in all runs, and what is not shown."""
    names = [column.name for column in table.columns if column.name in table.same]
    same = ", ".join(f"{name} {_words(name, table.same)}" for name in names)
    return list(filter(None, [f"The same in all runs: {same}." if same else "", left_out(table.total, shown(table))]))


def shown(table: RunTable) -> int:
    """Return how many rows a cell shows."""
    return min(len(table.rows), _MOST)


def _words(name: str, row: Mapping[str, Any]) -> str:
    value = row.get(name)
    if value is None:
        return "-"
    if name == "started":
        return stamp(value)
    if name == "duration":
        return duration(value)
    if name == "state":
        return JobState(value).shown
    if isinstance(value, list | tuple):
        return ", ".join(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return shorten(str(value), _LONGEST, placeholder=" …")


def is_number(value: Any) -> bool:
    """Return True for a number of a row, and False for a flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)
