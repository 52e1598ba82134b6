"""The projects of a user with their experiments, and the table of their runs. Both are labels of jobs and nothing else.

A run that has ended does not change any more. What its files say is kept in memory, so that a table that is looked at
while others train opens no file twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterable
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edt_sdk.schemas.errors import NotFound
from edt_sdk.schemas.experiments.runs import ExperimentView, ProjectView, RunTable
from edt_sdk.schemas.fields import did_you_mean
from edt_sdk.schemas.wire.regular import read_regular
from edt_server.files import job_files
from edt_server.service.last_metrics import last_metrics
from edt_server.service.runs import run_of, table_of
from edt_server.store import JobRow

if TYPE_CHECKING:
    from edt_server.service.service import Service

MOST = 10_000  # runs of a table, the newest
_KEPT = 20_000  # ended runs whose files are not read again
_SHOWN = 10


class _Files(NamedTuple):
    """What the files of a run say, and since when the run is in its state. It may be resumed after its end."""

    since: float
    config: dict[str, Any]
    metrics: dict[str, float | None]


class _Labelled(NamedTuple):
    """A project and an experiment ("" for runs in none), how many runs it has, and when one changed its state."""

    project: str
    experiment: str
    runs: int
    changed: float


class Projects:
    """The verbs of a service for projects."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._files: OrderedDict[str, _Files] = OrderedDict()
        self._lock = Lock()

    async def projects(self, user: str) -> list[ProjectView]:
        """Return the user's projects, the one that changed last first."""
        labels = await asyncio.to_thread(self._labels, user)
        found = [_project(name, list(each)) for name, each in groupby(labels, key=lambda each: each.project)]
        return sorted(found, key=lambda project: -project.changed)

    async def runs(
        self, user: str, project: str, experiment: str = "", *, sort: str = "", desc: bool = False, limit: int = MOST
    ) -> RunTable:
        """Return the runs of a project, or of one of its experiments, the newest first or by a column.

        Raises:
            NotFound: no job of the user is in such a project or experiment.
            InvalidRequest: there is no column `sort`.
        """
        versions = await self._service.versions.of_jobs(user)

        def read() -> RunTable:
            store, now = self._service.store, self._service.now()
            rows = store.jobs(owner=user, project=project, experiment=experiment or None, limit=MOST)
            if not rows:
                raise _unknown(self._labels(user), project, experiment)
            runs = []
            for row in rows:
                files = self._read(row)
                runs.append(run_of(row, files.config, files.metrics, versions.get(row.id, ()), now))
            return table_of(project, experiment, runs, sort, desc=desc, limit=limit)

        return await asyncio.to_thread(read)

    def _labels(self, user: str) -> list[_Labelled]:
        return [_Labelled(*each) for each in self._service.store.labels(user)]

    def _read(self, row: JobRow) -> _Files:
        with self._lock:
            known = self._files.get(row.id)
            if known is not None and row.state.final and known.since == row.state_since:
                self._files.move_to_end(row.id)
                return known
        paths = self._service.paths(row)
        config: dict[str, Any] = {}
        if row.spec.search:
            with contextlib.suppress(FileNotFoundError):  # its files may be being removed
                config = msgspec.json.decode(read_regular(paths.job_dir / job_files.CONFIG), type=dict[str, Any])
        found = _Files(row.state_since, config, last_metrics(paths))
        with self._lock:
            if row.state.final:
                self._files[row.id] = found
            while len(self._files) > _KEPT:
                self._files.popitem(last=False)
        return found


def _project(name: str, labels: list[_Labelled]) -> ProjectView:
    named = [
        ExperimentView(name=each.experiment, runs=each.runs, changed=each.changed)
        for each in sorted(labels, key=lambda each: -each.changed)
        if each.experiment
    ]
    return ProjectView(
        name=name,
        runs=sum(each.runs for each in labels),
        changed=max(each.changed for each in labels),
        experiments=tuple(named),
    )


def _unknown(labels: Iterable[_Labelled], project: str, experiment: str) -> NotFound:
    """Return the error for a project, or an experiment of a project, that no job is in."""
    here = [each for each in labels if each.project == project]
    if here:
        what, wanted, names = "experiment", experiment, [each.experiment for each in here if each.experiment]
    else:
        what, wanted, names = "project", project, sorted({each.project for each in labels})
    there = f"There are {', '.join(names[:_SHOWN])}." if names else f"A job that is submitted with its {what} is in it."
    message = f"No run is in {'a project' if what == 'project' else 'an experiment'} {wanted!r:.120}."
    return NotFound(message, hint=did_you_mean(wanted, names) or there, field=what)
