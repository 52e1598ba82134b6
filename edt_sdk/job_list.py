"""A list of jobs that reads well at the end of a cell: a table in a notebook, one line a job elsewhere."""

from __future__ import annotations

from edt_sdk.card import jobs_table, sentence
from edt_sdk.job import Job


class JobList(list[Job]):
    """Jobs as they were when they were listed; an ordinary list in everything else."""

    def __repr__(self) -> str:
        return "\n".join(sentence(job.view) for job in self) or "No jobs."

    def _repr_html_(self) -> str:
        """The table."""
        return jobs_table([job.view for job in self])
