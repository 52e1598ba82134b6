"""The files of jobs on a host with files of its own: fetch what a job needs, and keep content for later jobs.

The server offers a list of files with their digests. What is here already stays, what an earlier job had is copied, and
only the rest is asked for, in parts, several at once. A file is complete and of the right content before it gets its
name.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from edt_sdk.schemas.wire.agent import PART, WINDOW, JobFile
from edt_sdk.schemas.wire.regular import make_folder, make_way, remove_file
from edt_server.files import job_trees
from edt_server.files.job_trees import Digests, JobTree
from edt_server.system.private_files import make_private_dir

Fetch = Callable[[str, int], Awaitable[bytes]]
"""Returns the bytes of a file (path, offset), a whole part unless it is at the end."""
# Larger files are of one job only, as a rule: a state, or the results of a training.
_LARGEST_KEPT = 256 << 20


class HostFiles:
    """The files of jobs below `data_dir`, and the content that is kept, at most `cache_bytes` of it."""

    def __init__(self, data_dir: Path, cache_bytes: int) -> None:
        self._data_dir = data_dir
        self._cache = data_dir / "cache"
        self._most = cache_bytes
        self.digests = Digests()
        make_private_dir(self._cache)

    async def have(self, tree: JobTree, entries: Iterable[JobFile], fetch: Fetch) -> None:
        """Have all these files of a job here, and no other ones.

        EdtError when one cannot be had, or is no file that a job may have. OSError when it cannot be written, or has
        changed in the meantime.
        """
        entries = tuple(entries)
        # Every path is checked before anything is written.
        places = {entry.path: tree.checked(entry.path) for entry in entries}
        await asyncio.to_thread(self._clear, tree, places)
        room = asyncio.Semaphore(WINDOW)
        wrong: list[Exception] = []

        async def fetch_one(entry: JobFile) -> None:
            place = places[entry.path]
            if await asyncio.to_thread(self._is_here, tree, entry, place):
                return
            beside = job_trees.unfinished(place)
            for offset in range(0, max(entry.size, 1), PART):
                async with room:
                    if wrong:
                        return
                    data = await fetch(entry.path, offset) if entry.size else b""
                await asyncio.to_thread(
                    job_trees.write_at, beside, tree.within(place), offset, data, entry.mode, fresh=offset == 0
                )
            await asyncio.to_thread(self._finish, entry, beside, place)

        async def fetched(entry: JobFile) -> None:
            try:
                await fetch_one(entry)
            except Exception as error:
                wrong.append(error)

        # No task is cancelled: its thread would still write after this returned.
        await asyncio.gather(*(fetched(entry) for entry in entries if entry.digest))
        if wrong:
            raise ExceptionGroup("files of the job", wrong)

    def remove(self, tree: JobTree) -> None:
        """Remove all files of a job. Blocks."""
        for root in tree.roots:
            shutil.rmtree(root, ignore_errors=True)

    def trim(self) -> None:
        """Remove the content that was unused for longest, until what is left is small enough. Blocks."""
        kept = sorted(((found := path.stat()).st_mtime, found.st_size, path) for path in self._cache.iterdir())
        size = sum(each for _, each, _ in kept)
        for _, each, path in kept:
            if size <= self._most:
                break
            path.unlink(missing_ok=True)
            size -= each

    def _clear(self, tree: JobTree, wanted: Mapping[str, Path]) -> None:
        """Remove files of an earlier attempt that the server does not have, and what is in the way of the others."""
        for path, _ in list(tree.files()):
            if path not in wanted:
                with contextlib.suppress(OSError):
                    (self._data_dir / path).unlink()
        for place in wanted.values():
            within = tree.within(place)
            make_way(place, within=within)
            with contextlib.suppress(FileNotFoundError):
                remove_file(job_trees.unfinished(place), within=within)

    def _is_here(self, tree: JobTree, entry: JobFile, place: Path) -> bool:
        """Return whether the file is here with this content, copied from what is kept if necessary."""
        with contextlib.suppress(OSError):
            if place.lstat().st_size == entry.size and self.digests.of(place, tree.within(place)) == entry.digest:
                place.chmod(entry.mode & 0o777 | 0o600)
                return True
        kept = self._cache / entry.digest
        try:
            os.utime(kept)
        except OSError:
            return False
        make_folder(place.parent, within=tree.within(place))
        beside = job_trees.unfinished(place)
        # A copy and no link: a job may write to its files.
        shutil.copyfile(kept, beside)
        beside.chmod(entry.mode & 0o777 | 0o600)
        os.replace(beside, place)
        return True

    def _finish(self, entry: JobFile, beside: Path, place: Path) -> None:
        with beside.open("rb") as file:
            digest = job_trees.content_digest(file)
        if digest != entry.digest:
            beside.unlink()
            # It was still being written on the server when it was announced.
            raise OSError(errno.EAGAIN, f"{entry.path} arrived with another content than it was announced with")
        if entry.size <= _LARGEST_KEPT and not (self._cache / digest).exists():
            fresh = self._cache / f".{digest}.{id(entry)}"
            shutil.copyfile(beside, fresh)
            os.replace(fresh, self._cache / digest)
        os.replace(beside, place)
