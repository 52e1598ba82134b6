"""A list of jobs that reads well at the end of a cell: a table in a notebook, one line a job elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edt_sdk.card import jobs_table, sentence
from edt_sdk.html_table import left_out

if TYPE_CHECKING:
    from edt_sdk.job import Job

# Ten thousand lines at the end of a cell are nobody's to read.
_MOST = 100


class JobList(list["Job"]):
    """Jobs as they were when they were listed; an ordinary list in everything else."""

    def __repr__(self) -> str:
        lines = [sentence(job.view) for job in self[:_MOST]]
        return "\n".join(filter(None, [*lines, left_out(len(self), _MOST)])) or "No jobs."

    def _repr_html_(self) -> str:
        """The table."""
        return jobs_table([job.view for job in self])
