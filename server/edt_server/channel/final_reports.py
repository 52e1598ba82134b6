"""The final reports of a dead supervisor: the undelivered ones in its journal, and the last lines of its log.

They count like reports that arrived. The job has lost its supervisor only if it has not ended after they are taken.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass

import msgspec

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.job import JobProgress, JobState
from edt_sdk.schemas.wire.control import Numbered
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import read_regular
from edt_server.ledger import Change, recovery, reports
from edt_server.supervisor.journal import read_journal

log = logging.getLogger(__name__)

_LOG_LINES = 10


@dataclass(frozen=True, slots=True)
class FinalReports:
    """What a dead supervisor left: the reports in its journal, some perhaps taken before, and its last log lines.

    `trouble` is why the journal cannot be read, "" when it can. `lost_host` is the host that it was lost with, "" when
    it ended by itself.
    """

    reports: tuple[Numbered, ...]
    trouble: str
    said: str
    lost_host: str = ""


def read_final_reports(paths: JobPaths, lost_host: str = "") -> FinalReports:
    """Read what the dead supervisor left in the job's folder."""
    said = ""
    with contextlib.suppress(FileNotFoundError):
        said = "\n".join(read_regular(paths.supervisor_log).decode(errors="replace").splitlines()[-_LOG_LINES:])
    try:
        return FinalReports(tuple(read_journal(paths.journal)), "", said, lost_host)
    except msgspec.MsgspecError as wrong:
        return FinalReports((), f"Its journal cannot be read: {wrong}.", said, lost_host)


def finalize(
    change: Change, job: str, left: FinalReports, progress: JobProgress | None, *, stopping: str | None
) -> bool:
    """Take the final reports of the supervisor of a job, which may be deleted. Return whether the job is over now.

    `progress` is the newest received, and `stopping` why the job is to be stopped, None when it is not.
    """
    if change.tx.job(job) is None:
        return True
    trouble = left.trouble
    try:
        for numbered in left.reports:
            reports.take(change, job, numbered, progress)
    except Conflict as gap:
        trouble = f"Its journal has a gap: {gap.message}"
    if trouble and not change.row(job).state.final:
        # The journal cannot be trusted, and with a gap in the numbers no report of a next supervisor could be taken.
        log.error("%s job=%s", trouble, job)
        reports.end(change, job, JobState.FAILED, f"Its supervisor ended unexpectedly. {trouble}\n{left.said}")
    elif not change.row(job).state.final:
        recovery.supervisor_lost(change, job, left.said, stopping=stopping, progress=progress, host=left.lost_host)
    return change.row(job).state.final
