"""Own submission, the stored package of a job, and retention: from package to job, to another job, to removal.

Never: HTTP, processes or the order of changes.

Read first: `submission.py`, then `retention.py`.
"""

from edt_server.jobs import submission
from edt_server.jobs.retention import Retention, RetentionLimits
from edt_server.jobs.stored_bytes import StoredBytes
from edt_server.jobs.stored_package import Stored, gone, stored
from edt_server.jobs.submission import UncommittedSubmissions, check_change, main_file, sized

__all__ = [
    "Retention",
    "RetentionLimits",
    "Stored",
    "StoredBytes",
    "UncommittedSubmissions",
    "check_change",
    "gone",
    "main_file",
    "sized",
    "stored",
    "submission",
]
