"""Own the files of a job on disk: unpacking its package, finding its weights, which of them travel, removing all.

Never: the store. A caller has decided already that a file may go.

Read first: `job_files.py`, then `package.py` for what a hostile archive may try.
"""

from edt_server.files import job_files, job_trees
from edt_server.files.job_files import PACKAGE, WARM_START, keep, new_id, newest_weights, remove, weights_of
from edt_server.files.package import members, read_tar, unpack

__all__ = [
    "PACKAGE",
    "WARM_START",
    "job_files",
    "job_trees",
    "keep",
    "members",
    "new_id",
    "newest_weights",
    "read_tar",
    "remove",
    "unpack",
    "weights_of",
]
