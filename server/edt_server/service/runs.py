"""Make the table of runs: a row for each job, a column for each argument and metric. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.experiments.runs import RunColumn, RunTable
from edt_sdk.schemas.fields import did_you_mean
from edt_sdk.schemas.frameworks import SHELL
from edt_sdk.schemas.search.spec import direction_of
from edt_server.store import JobRow

_LARGEST = 1 << 53  # whole numbers above that are not exact in a browser
_WHOLE = re.compile(r"[+-]?(?:0|[1-9]\d*)\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z", re.ASCII)
_OPTION = re.compile(r"--?(?P<name>[^\W\d][^=]*)(?:=(?P<value>.*))?\Z", re.DOTALL)
# lr=0.1, as Hydra's programs read their arguments.
_ASSIGNED = re.compile(r"\+*(?P<name>[^\W\d][\w.]*)=(?P<value>.*)\Z", re.DOTALL)
# What the server knows of a job: the columns before the arguments and metrics, and those behind.
_BEFORE = ("job", "name", "experiment", "state")
_BEHIND = ("duration", "started", "max_workers", "seed", "owner", "tags", "notes", "versions")
_FIRST_METRICS = ("test_loss", "test_accuracy")

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A job as a row of the table.

    Attributes:
        job: what the server knows of it, by column.
        arguments: see `arguments_of`, with the values of a trial.
        metrics: of the last validation, without those that are no numbers.
    """

    job: Values
    arguments: Values
    metrics: Values


def run_of(
    row: JobRow, config: Mapping[str, Any], metrics: Mapping[str, float | None], versions: Sequence[str], now: float
) -> Run:
    """Return the row of a job. `config` are the values of a trial, `versions` those made of it."""
    until = now if row.ended is None else row.ended
    duration = None if row.started is None else round(max(0.0, until - row.started), 3)
    job = {
        "job": row.id,
        "name": row.spec.name,
        "experiment": row.settings.experiment,
        "state": row.state.value,
        "duration": duration,
        "started": row.started,
        "max_workers": row.settings.max_workers,
        "seed": row.spec.seed,
        "owner": row.owner,
        "tags": list(row.settings.tags),
        "notes": row.settings.notes,
        "versions": list(versions),
    }
    arguments = arguments_of(row.spec.args or _words_of(row.spec.command))
    arguments |= {name: _scalar(value) for name, value in config.items()}
    return Run(_there(job), _there(arguments), _there(metrics))


def arguments_of(words: Sequence[str]) -> Values:
    """Return the arguments of a command line by name.

    `--lr 0.1`, `--lr=0.1` and `lr=0.1` are lr, an option without a value is True, and other words are arg0, arg1, ….
    Numbers are numbers. Of an option that is given several times the values stand in one text.
    """
    given: list[tuple[str, str | bool]] = []
    rest = list(reversed(words))
    place = 0
    options = True
    while rest:
        word = rest.pop()
        if word == "--" and options:
            options = False
        elif options and (option := _OPTION.match(word)):
            value: str | bool | None = option["value"]
            if value is None:
                value = rest.pop() if rest and not _is_option(rest[-1]) else True
            given.append((option["name"], value))
        elif assigned := _ASSIGNED.match(word):
            given.append((assigned["name"], assigned["value"]))
        else:
            given.append((f"arg{place}", word))
            place += 1
    found: Values = {}
    for name, value in given:
        found[name] = f"{found[name]} {value}" if name in found else value if value is True else _scalar(value)
    return found


def table_of(project: str, experiment: str, runs: Sequence[Run], sort: str, *, desc: bool, limit: int) -> RunTable:
    """Return the table of these runs, sorted by a column, "" for the given order.

    Raises InvalidRequest for a column that there is not.
    """
    metrics = _names((run.metrics for run in runs), _FIRST_METRICS)
    fixed = {*_BEFORE, *_BEHIND, *metrics}
    shown = {name: f"--{name}" if name in fixed else name for name in _names(run.arguments for run in runs)}
    before, behind = (
        [name for name in names if name != "experiment" or not experiment] for names in (_BEFORE, _BEHIND)
    )
    rows = [
        {name: run.job[name] for name in (*before, *behind) if name in run.job}
        | {shown[name]: value for name, value in run.arguments.items()}
        | run.metrics
        for run in runs
    ]
    columns = [
        *(RunColumn(name=name, kind="job") for name in before),
        *(RunColumn(name=name, kind="argument") for name in shown.values()),
        *(RunColumn(name=name, kind="metric", direction=direction_of(name)) for name in metrics),
        *(RunColumn(name=name, kind="job") for name in behind),
    ]
    if sort and sort not in {column.name for column in columns}:
        hint = did_you_mean(sort, [column.name for column in columns])
        raise InvalidRequest(f"The runs have no column {sort!r:.120}.", hint=hint, field="sort")
    rows = _sorted(rows, sort, desc=desc)[:limit]
    return RunTable(
        project=project,
        experiment=experiment,
        columns=tuple(column for column in columns if any(column.name in row for row in rows)),
        same=_same(rows),
        rows=tuple(rows),
        total=len(runs),
    )


def _sorted(rows: list[Values], name: str, *, desc: bool) -> list[Values]:
    """Return the rows by a column: numbers, then texts, and last the rows without a value."""
    there = [row for row in rows if name in row]
    return sorted(there, key=lambda row: _rank(row[name]), reverse=desc) + [row for row in rows if name not in row]


def _rank(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0.0, (", ".join(value) if isinstance(value, list) else str(value)).casefold()


def _same(rows: Sequence[Values]) -> Values:
    if len(rows) < 2:
        return {}
    first, *others = rows
    return {name: value for name, value in first.items() if all(row.get(name) == value for row in others)}


def _names(given: Iterable[Values], first: Sequence[str] = ()) -> list[str]:
    """Return all names in the order in which they appear, those of `first` before the others."""
    found = {name: None for values in given for name in values}
    return [*(name for name in first if name in found), *(name for name in found if name not in first)]


def _there(values: Mapping[str, Any]) -> Values:
    return {name: value for name, value in values.items() if value is not None and value != "" and value != []}


def _is_option(word: str) -> bool:
    return word == "--" or _OPTION.match(word) is not None


def _scalar(value: Any) -> Any:
    """Return a number for a text that is one, and a text for what is no single value."""
    if isinstance(value, str):
        if _WHOLE.match(value):
            return int(value) if len(value) < 17 and abs(int(value)) <= _LARGEST else value
        # 007 is a name, 1e999 no number of JSON.
        number = float(value) if _NUMBER.match(value) and not re.match(r"[+-]?0\d", value) else float("inf")
        return value if number in (float("inf"), float("-inf")) else number
    return value if isinstance(value, int | float) else msgspec.json.encode(value).decode()


def _words_of(command: Sequence[str]) -> Sequence[str]:
    """Return the words of a command, also of one that is a text for a shell."""
    if tuple(command[: len(SHELL)]) != SHELL:
        return command
    try:
        return shlex.split(command[len(SHELL)])
    except ValueError:  # a quote that is not closed
        return command[len(SHELL) :]
