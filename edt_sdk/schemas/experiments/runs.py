"""Projects, their experiments, and the table of runs. All three exist only as labels of jobs, see `JobSettings`."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

KINDS = ("job", "argument", "metric")
TIMES = frozenset({"started"})


class ExperimentView(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment of a project.

    Attributes:
        runs: number of its jobs.
        changed: when one of them last changed its state, seconds since the epoch.
    """

    name: str
    runs: int
    changed: float


class ProjectView(ExperimentView, frozen=True, kw_only=True):
    """A project of the user, with all its jobs.

    Attributes:
        runs: number of its jobs, with those that are in no experiment.
        changed: when one of them last changed its state, seconds since the epoch.
        experiments: those that have jobs, the one that changed last first.
    """

    experiments: tuple[ExperimentView, ...]


class RunColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the table of runs.

    Attributes:
        name: its key in the rows. An argument named like a setting or a metric has its dashes: --seed.
        kind: job for what the server knows of it, argument for a word of the command line or a value of a trial,
            metric for one of the last validation.
        direction: maximize or minimize where the name of a metric says what is better.
    """

    name: str
    kind: Annotated[str, Meta(extra_json_schema={"enum": list(KINDS)})]
    direction: Annotated[str, Meta(extra_json_schema={"enum": ["", "maximize", "minimize"]})] = ""


class RunTable(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a project or of one of its experiments.

    Attributes:
        project: its name.
        experiment: its name, empty for the whole project.
        columns: those with a value in any row, in the order in which people read them.
        same: the columns with one value in all rows, and that value. Empty for a single run.
        rows: the values of each run by the name of their column. What a run has not is left out. `started` is in
            seconds since the epoch and `duration` in seconds.
        total: number of runs, of which the rows may be a part.
    """

    project: str
    experiment: str
    columns: tuple[RunColumn, ...]
    same: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    total: int

    def csv(self) -> str:
        """Return it as comma-separated values with a head. Times are ISO 8601, in UTC."""
        text = io.StringIO()
        names = [column.name for column in self.columns]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_cell(name, row.get(name, "")) for name in names] for row in self.rows)
        return text.getvalue()


def _cell(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return ", ".join(value)
    if name in TIMES and value != "":
        return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
    return value
