"""Whether a file lies on a network file system, where SQLite's WAL does not work.

WAL shares memory between processes through a mapped file, which hosts of a network file system do not share
(https://sqlite.org/wal.html, "all processes using a database must be on the same host").
"""

from __future__ import annotations

import os
from pathlib import Path

_NETWORK = frozenset(
    {
        *(
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "glusterfs",
            "gpfs",
            "lustre",
            "ncpfs",
            "nfs",
            "nfs4",
            "smb3",
            "smbfs",
        ),
        *("fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"),
    }
)
_MOUNTS = Path("/proc/self/mountinfo")


def network_filesystem(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the type of the network file system that holds `path`.

    None for a local one, or where the system has no answer.
    """
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    # The mount of the file itself counts, not of a link to it.
    kind = _filesystem(os.path.realpath(path), lines)
    return kind if kind in _NETWORK else None


def _filesystem(path: str, mountinfo: list[str]) -> str:
    """Return the type of the deepest mount above `path`. proc(5), /proc/pid/mountinfo, has the format of the lines."""
    best, kind = "", ""
    for line in mountinfo:
        left, _, right = line.partition(" - ")
        point = left.split()[4].encode().decode("unicode_escape")  # a space in a mount point is written \040
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # The last of equals counts: it is mounted over the earlier one.
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind
