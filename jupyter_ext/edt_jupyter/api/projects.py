"""Projects: list them with their experiments, and the table of their runs."""

from __future__ import annotations

from urllib.parse import quote

from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.errors import InvalidRequest

_PAGE = 1000
_MOST = 10_000


class _ProjectsHandler(EdtHandler, path="/projects", resource="edt:jobs"):
    async def get(self) -> None:
        """List the projects of the user's jobs."""
        self.reply({"projects": await self.service.projects.projects(self.user)})


class _RunsHandler(EdtHandler, path="/projects/{project}/runs", resource="edt:jobs"):
    async def get(self, project: str) -> None:
        """Return the runs of the project, or of one `experiment`, as JSON or as comma-separated values."""
        form = self.get_query_argument("format", "json")
        if form not in ("json", "csv"):
            raise InvalidRequest(f"format is json or csv, not {form!r:.60}.", field="format")
        table = await self.service.projects.runs(
            self.user,
            project,
            self.get_query_argument("experiment", ""),
            sort=self.get_query_argument("sort", ""),
            desc=self.flag("desc"),
            limit=self.number("limit", _PAGE, low=1, high=_MOST),
        )
        if form == "json":
            self.reply(table)
            return
        name = "-".join(filter(None, (table.project, table.experiment)))
        self.set_header("Content-Disposition", f"attachment; filename*=utf-8''{quote(name)}.csv")
        self.finish(table.csv(), set_content_type="text/csv; charset=utf-8")
