"""A list of jobs that reads well at the end of a cell: a table in a notebook, one line a job elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edt_sdk.display.card import jobs_table, sentence
from edt_sdk.formatting.tables import left_out, note

if TYPE_CHECKING:
    from edt_sdk.client.job import Job

# Most jobs that a repr lists: ten thousand lines at the end of a cell cannot be read.
_MOST = 100


class JobList(list["Job"]):
    """Jobs as they were when they were listed. Otherwise an ordinary list.

    Args:
        jobs: newest first.
        more: the server has older ones than these.

    Attributes:
        more: as given.
    """

    def __init__(self, jobs: Iterable[Job] = (), *, more: bool = False) -> None:
        super().__init__(jobs)
        self.more = more

    def __repr__(self) -> str:
        lines = [sentence(job.view) for job in self[:_MOST]]
        return "\n".join(filter(None, [*lines, left_out(len(self), _MOST), self._older()])) or "No jobs."

    def _repr_html_(self) -> str:
        """Return the table."""
        return "<br/>".join(filter(None, [jobs_table([job.view for job in self]), note(self._older())]))

    def _older(self) -> str:
        if not (self.more and self):
            return ""
        return (
            f"There are older ones than these {len(self):,}: client.jobs(limit=10_000) lists more at once, "
            f'client.jobs(before="{self[-1].id}") those that come next.'
        )
