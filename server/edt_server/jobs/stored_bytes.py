"""Measure what the files of jobs take on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.store import JobRow


class StoredBytes:
    """The bytes of jobs on disk. Those of an ended job are measured once. Blocks."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._ended: dict[tuple[str, float], int] = {}

    def of(self, row: JobRow) -> int:
        """Return the bytes of its package, results and checkpoints."""
        end = row.id, row.state_since if row.ended is None else row.ended
        found = self._ended.get(end)
        if found is None:
            paths = JobPaths(self._data_dir, row.owner, row.id)
            found = size_of((paths.result_dir, paths.job_dir))
            if row.state.final:
                self._ended[end] = found
        return found


def size_of(folders: Collection[Path]) -> int:
    """Return the bytes on disk of all files below. A file with several names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for folder in folders:
        for status in _files(folder):
            # By inode: packages and weights are hard links where the file system can, and blocks count what is really
            # freed.
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def _files(folder: Path) -> Iterator[os.stat_result]:
    if folder.is_dir():
        # By descriptors: a job's code may put a link in the place of a folder at any time.
        for _, _, names, descriptor in os.fwalk(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    yield os.stat(name, dir_fd=descriptor, follow_symlinks=False)
