"""`Project` and `Experiment`: runs that belong together, compared in one table. `ProjectClient` makes them.

Both are labels of jobs. They are there with their first run and go with their last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, overload
from urllib.parse import quote

import msgspec

from edt_sdk.client.job import Job
from edt_sdk.client.session import ServerSession
from edt_sdk.display.picture import Picture
from edt_sdk.display.runs_view import NO_PROJECTS, PROJECT_HEAD, is_number, project_cells, runs_html, runs_text
from edt_sdk.formatting.tables import html_table, text_table
from edt_sdk.http.connection import Connection, Params
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.experiments.runs import ProjectView, RunTable
from edt_sdk.schemas.fields import did_you_mean, names_checked
from edt_sdk.schemas.job import check_label

if TYPE_CHECKING:
    from edt_sdk.client.client import Client, SubmitOptions
    from edt_sdk.packing.sources import Source

_MOST_COMPARED = 5  # jobs in one picture


class Runs(Sequence[dict[str, Any]]):
    """The runs of a project or an experiment as of the time of the request: a sequence of rows, values by column.

    Attributes:
        table: everything the server says about them.
    """

    def __init__(self, connection: Connection, table: RunTable) -> None:
        self._connection = connection
        self.table = table

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns. A row has no key for what its run has not."""
        return tuple(column.name for column in self.table.columns)

    def best(self, metric: str, direction: str = "") -> Job:
        """Return the job with the best value of a metric.

        Args:
            metric: a column with numbers, such as test_accuracy.
            direction: "maximize" or "minimize". By default by the name of the metric.

        Raises:
            InvalidRequest: no run has such a number, or its name does not say what is better.
        """
        rows = [row for row in self if is_number(row.get(metric))]
        if not rows:
            hint = did_you_mean(metric, [each.name for each in self.table.columns if each.kind == "metric"])
            raise InvalidRequest(f"No run has a number {metric!r}.", hint=hint, field="metric")
        known = {each.name: each.direction for each in self.table.columns}
        order = {"maximize": max, "minimize": min}.get(direction or known[metric])
        if order is None:
            raise InvalidRequest(
                f"Is more or less of {metric!r} better?",
                hint="Give direction='maximize' or direction='minimize'.",
                field="direction",
            )
        return Job(self._connection, order(rows, key=lambda row: row[metric])["job"])

    def to_pandas(self) -> Any:
        """Return them as a pandas.DataFrame, a row for each run. `started` are times in UTC. It needs pandas."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        frame = pandas.DataFrame(list(self), columns=list(self.columns))
        if "started" in self.columns:
            frame["started"] = pandas.to_datetime(frame["started"], unit="s", utc=True)
        return frame

    def to_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write them to a file of comma-separated values, and return its path. Times are ISO 8601, in UTC."""
        target = Path(path).expanduser()
        target.write_text(self.table.csv(), encoding="utf-8", newline="")
        return target

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[dict[str, Any]]: ...

    def __getitem__(self, place: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        return self.table.rows[place]

    def __len__(self) -> int:
        return len(self.table.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.table.rows)

    def __repr__(self) -> str:
        return runs_text(self.table)

    def _repr_html_(self) -> str:
        return runs_html(self.table)


class _Labelled:
    """Runs with the same labels. `Project` and `Experiment` describe the arguments."""

    def __init__(self, client: Client, project: str, experiment: str) -> None:
        self._client = client
        self._project, self._experiment = project, experiment

    def submit(self, source: Source, *, progress: bool = True, **options: Unpack[SubmitOptions]) -> Job:
        """Submit a run. Arguments and errors are those of `Client.submit`, without `project` and `experiment`."""
        if "project" in options or "experiment" in options:
            hint = "Leave project and experiment out, or call client.submit()."
            raise InvalidRequest(f"The run is in {self} already.", hint=hint, field="project")
        labels = {"project": self._project, "experiment": self._experiment}
        return self._client.submit(source, progress=progress, **labels, **options)

    def runs(self, *, sort: str = "", desc: bool = False, limit: int | None = None) -> Runs:
        """Return the table of its runs, with trials of searches: the newest first, or by a column.

        Args:
            sort: a column, such as "test_accuracy" or an argument of the script. Runs without a value come last.
            desc: the largest first.
            limit: at most this many, up to 10,000. None for the first 1,000.

        Raises:
            NotFound: it has no run yet, or it is called otherwise.
            InvalidRequest: there is no such column.
        """
        asked: Params = {"sort": sort, "desc": 1 if desc else None, "limit": limit, "experiment": self._experiment}
        connection = self._client.connection
        answer = connection.json("GET", f"projects/{quote(self._project, safe='')}/runs", params=asked)
        return Runs(connection, msgspec.convert(answer, RunTable))

    def compare(self, *, sort: str = "", desc: bool = False, **how: Any) -> Picture:
        """Draw the losses of its first five runs in that order. The other arguments are those of `Client.compare`."""
        return self._client.compare(
            [row["job"] for row in self.runs(sort=sort, desc=desc, limit=_MOST_COMPARED)], **how
        )


class Experiment(_Labelled):
    """Runs of a project that are compared with each other. Made by `Project.experiment()`."""

    @property
    def project(self) -> str:
        """Return the name of its project."""
        return self._project

    @property
    def name(self) -> str:
        """Return its name."""
        return self._experiment

    def __repr__(self) -> str:
        return f"Experiment {self._project} / {self._experiment}"


class Project(_Labelled):
    """The runs with the name of a project. Made by `Client.project()` and `Client.projects()`.

    Attributes:
        view: as listed by `Client.projects()`, None for a project that was only named.
    """

    def __init__(self, client: Client, name: str, view: ProjectView | None = None) -> None:
        super().__init__(client, name, "")
        self.view = view

    @property
    def name(self) -> str:
        """Return its name."""
        return self._project

    def experiment(self, name: str) -> Experiment:
        """Return the experiment of that name. It need not have a run yet."""
        check_label(name, "experiment")
        if not name:
            raise InvalidRequest("The name of an experiment is empty.", field="experiment")
        return Experiment(self._client, self._project, name)

    def experiments(self) -> list[Experiment]:
        """Return its experiments that have runs, the one that changed last first."""
        views = [each.view for each in self._client.projects() if each.name == self.name]
        return [self.experiment(each.name) for view in views if view is not None for each in view.experiments]

    def __repr__(self) -> str:
        return f"Project {self.name}"


class ProjectList(list[Project]):
    """Lists projects as of the time of the request. Behaves like a list otherwise."""

    def __repr__(self) -> str:
        return text_table(PROJECT_HEAD, self._cells()) if self else NO_PROJECTS

    def _repr_html_(self) -> str:
        return html_table(PROJECT_HEAD, self._cells(), empty=NO_PROJECTS)

    def _cells(self) -> list[tuple[str, ...]]:
        return [project_cells(each.view) for each in self if each.view is not None]


@names_checked
class ProjectClient(ServerSession):
    """A client for the projects of a server."""

    def project(self, name: str) -> Project:
        """Return the project of that name. It need not have a run yet: its first one makes it.

        `client.project("mnist").experiment("rates").submit("digits", args=["--lr", "0.1"])` submits a run, and
        `client.project("mnist").experiment("rates").runs()` compares it with the others.
        """
        check_label(name, "project")
        if not name:
            raise InvalidRequest("The name of a project is empty.", field="project")
        return Project(cast("Client", self), name)

    def projects(self) -> ProjectList:
        """Return the projects that my jobs are in, the one that changed last first."""
        views = msgspec.convert(self._connection.json("GET", "projects")["projects"], list[ProjectView])
        return ProjectList(Project(cast("Client", self), view.name, view) for view in views)
