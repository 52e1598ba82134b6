"""Send what a job writes on this host to the server, and know what the server has.

A job's programs write plain files. They are looked at again and again: a file that has grown is sent from where it was
sent to, any other change sends the whole file, and a removed file is removed there too. What the server has not
answered is sent again on the next connection. So nothing is lost with a connection, and with the server's machine
everything waits on this host's disk.

Logs are sent before checkpoints. A checkpoint on the server never contains an update that the commit log there lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.regular import open_regular
from edt_server.files.job_trees import Digests, JobTree, content_digest

log = logging.getLogger(__name__)

Send = Callable[[wire.FilePart | wire.Gone, bytes], bool]
"""Sends a message and the bytes behind it. Returns False while there is no connection."""
INTERVAL = 0.25
_REFUSED = 0.05
# A look takes at most this share of the time: a job with very many files is looked at less often.
_SHARE = 0.05
# A file that was changed this recently may change again within one tick of the file system's clock.
_TICK = 0.05
_MARK = 4096
# Files that nothing but an append changes: logs and streams. Their last bytes are enough to look at.
_APPENDED = (".jsonl", ".log", ".stdout", ".stderr")


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the server has of a file: the content up to `size`, from inode `inode` when it had `changed` as its mtime.

    `mark` is the checksum of its last bytes, which shows whether a longer file has only grown, and `whole` that of all.
    `changed` is 0 where the file was still being written. `unsure` where the server may have more than that, because an
    answer was lost.
    """

    inode: int
    size: int
    changed: int
    mark: int
    whole: int
    unsure: bool = False


# The server may have anything under this name.
_UNKNOWN = _Sent(inode=0, size=-1, changed=0, mark=0, whole=0, unsure=True)


class AttemptRefused(Exception):
    """The server takes nothing more of this attempt."""


@dataclass(slots=True)
class _File:
    """A file that is being sent: its state once all parts are answered. `grown` where only new bytes are sent."""

    after: _Sent | None
    grown: bool = False
    open: int = 0
    again: bool = False
    complete: bool = False
    lost: bool = False
    """The connection over which it was sent is gone, and the rest of it is of no use on the next one."""


@dataclass(slots=True)
class Spool:
    """The files of an attempt of a job on this host, from when they are complete here.

    `supervises` is as in `Prepare`, and `engine` as of `JobTree.of_member`. `room` bounds the parts that are under way
    from this host.
    """

    tree: JobTree
    attempt: int
    supervises: bool
    engine: bool
    send: Send
    room: asyncio.Semaphore
    connected: asyncio.Event
    refused: str = ""
    _sent: dict[str, _Sent] = field(default_factory=dict)
    _open: dict[str, _File] = field(default_factory=dict)
    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _missed: bool = False
    """Something that was sent in this round has to be sent again."""
    _rounds: int = 0
    _round_over: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: bool = False
    _unreadable: set[str] = field(default_factory=set)

    @property
    def job(self) -> str:
        """The job's id."""
        return self.tree.paths.job_id

    def compare(self, entries: Iterable[wire.JobFile], digests: Digests) -> None:
        """Know what the server has from a list of its files. Blocks."""
        for entry in entries:
            place = self.tree.paths.data_dir / entry.path
            with contextlib.suppress(OSError):
                found = place.lstat()
                same = found.st_size == entry.size
                if same and (not entry.digest or digests.of(place, self.tree.within(place)) == entry.digest):
                    self._sent[entry.path] = self._state(place, found)
                elif found.st_size > entry.size and self._begins(place, entry):
                    self._sent[entry.path] = self._state(place, found, end=entry.size)

    async def run(self) -> None:
        """Send until cancelled, or until the server refuses."""
        try:
            while not self.refused:
                await self.connected.wait()
                self._woken.clear()
                begun = time.monotonic()
                changes, gone = await asyncio.to_thread(self._look)
                took = time.monotonic() - begun
                self._missed = False
                complete = await self._send_all(changes, gone)
                if complete:
                    self._rounds += 1
                    over, self._round_over = self._round_over, asyncio.Event()
                    over.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(INTERVAL, took / _SHARE)):
                        await self._woken.wait()
        except AttemptRefused as why:
            log.warning("the server takes no files of job %s, attempt %d: %s", self.job, self.attempt, why)
        finally:
            self.disconnected()  # other jobs need the room
            self._ended = True
            self._round_over.set()

    async def flushed(self) -> None:
        """Return when the server has everything that is here now, or refuses it, or nothing more is sent."""
        # The round under way may have looked at a file already, so the next whole round counts.
        goal = self._rounds + 2
        while self._rounds < goal and not self._ended:
            self._woken.set()
            await self._round_over.wait()

    def taken(self, answer: wire.Taken) -> None:
        """Take the server's answer to a part."""
        file = self._open.get(answer.path)
        if file is None:
            return
        self.room.release()
        file.open -= 1
        file.again |= answer.again
        if answer.refused:
            self.refused = answer.refused
        self._close(answer.path, file)

    def disconnected(self) -> None:
        """Forget the parts that were not answered: they are sent again."""
        for path, file in self._open.items():
            self._give_up(path, file)
        self._open.clear()
        self._missed = True
        self._answered.set()

    def _give_up(self, path: str, file: _File) -> None:
        before = self._sent.get(path)
        self._sent[path] = replace(before, unsure=True) if file.grown and before is not None else _UNKNOWN
        for _ in range(file.open):
            self.room.release()
        file.open, file.lost = 0, True

    def _close(self, path: str, file: _File) -> None:
        if file.complete and file.open == 0:
            del self._open[path]
            self._missed |= file.again
            if file.again:
                self._sent[path] = _UNKNOWN
            elif file.after is None:
                self._sent.pop(path, None)
            else:
                self._sent[path] = file.after
        self._answered.set()

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _send_all(self, changes: list[str], gone: list[str]) -> bool:
        """Send these files. Return whether the server has all of them."""
        logs = [path for path in changes if not path.endswith(".ckpt")]
        for path in logs:
            if not await self._send_file(path):
                return False
        # A checkpoint is on its way only when the server has the lines that precede it.
        if len(logs) < len(changes) and not await self._all_taken():
            return False
        for path in changes[len(logs) :]:
            if not await self._send_file(path):
                return False
        for path in gone:
            if not await self._part(path, _File(None), wire.Gone(job=self.job, attempt=self.attempt, path=path), b""):
                return False
            self._open[path].complete = True
        return await self._all_taken()

    async def _all_taken(self) -> bool:
        """Return whether the server has everything that was sent in this round, once it has answered."""
        while self._open:
            self._answered.clear()
            await self._answered.wait()
            if self.refused:
                raise AttemptRefused(self.refused)
        return self.connected.is_set() and not self._missed

    async def _send_file(self, path: str) -> bool:
        place = self.tree.paths.data_dir / path
        before = self._sent.get(path)
        try:
            with open_regular(place, within=self.tree.within(place)) as file:
                now, opened = os.fstat(file.fileno()), time.time()
                start = whole = 0
                if before is not None and await asyncio.to_thread(self._has_grown, path, before, now):
                    start, whole = before.size, before.whole
                file.seek(start)
                offset, state = start, _File(None, grown=start > 0)
                # To the size it has now. What is written meanwhile is for the next round.
                while True:
                    data = file.read(min(wire.PART, now.st_size - offset))
                    last = not data or offset + len(data) >= now.st_size
                    part = wire.FilePart(
                        job=self.job,
                        attempt=self.attempt,
                        path=path,
                        offset=offset,
                        mode=stat.S_IMODE(now.st_mode),
                        whole=start == 0,
                        last=last,
                    )
                    if not await self._part(path, state, part, data):
                        return False
                    offset, whole = offset + len(data), zlib.crc32(data, whole)
                    if last:
                        break
        except FileNotFoundError:
            return True  # removed, or replaced by something that is no file
        except OSError as wrong:
            # The other files must not wait for one that the job has made so that it cannot be read.
            if path not in self._unreadable:
                self._unreadable.add(path)
                log.warning("%s cannot be sent to the server: %s", path, wrong)
            return True
        changed = 0 if abs(opened - now.st_mtime) < _TICK else now.st_mtime_ns
        state.after = _Sent(now.st_ino, offset, changed, self._mark_at(place, offset), whole)
        state.complete = True
        if path in self._open:
            self._close(path, state)
        return True

    async def _part(self, path: str, file: _File, message: wire.FilePart | wire.Gone, data: bytes) -> bool:
        await self.room.acquire()
        if self.refused:
            self.room.release()
            raise AttemptRefused(self.refused)
        file.open += 1
        self._open[path] = file
        while not file.lost and self.connected.is_set():
            if self.send(message, data):
                return True
            # The connection takes nothing more just now. The parts before this one are still to be answered, so this
            # one waits, too, until it can be sent or all of them are lost.
            await asyncio.sleep(_REFUSED)
        self._open.pop(path, None)
        self._give_up(path, file)
        return False

    # --- looking ------------------------------------------------------------------------------------------------------

    def _look(self) -> tuple[list[str], list[str]]:
        """Return the files that have changed, those first that others build on, and the removed ones. Blocks."""
        # Checkpoints are listed first and logs after them, so that the logs are at least as new, and sent the other way
        # round.
        found = [(path, status) for path, status in self.tree.files() if self._ours(path)]
        changed: list[tuple[bool, str]] = []
        for path, status in found:
            if path.endswith(".ckpt"):
                if self._changed(path, status):
                    changed.append((True, path))
                continue
            with contextlib.suppress(OSError):
                status = os.lstat(self.tree.paths.data_dir / path)
            if self._changed(path, status):
                changed.append((False, path))
        there = {path for path, _ in found}
        return [path for _, path in sorted(changed)], [path for path in self._sent if path not in there]

    def _ours(self, path: str) -> bool:
        return self.supervises or self.tree.of_member(path, engine=self.engine)

    def _changed(self, path: str, found: os.stat_result) -> bool:
        before = self._sent.get(path)
        if before is None or before.unsure or before.inode != found.st_ino or before.size != found.st_size:
            return True
        if before.changed == found.st_mtime_ns:
            return False
        # Only its clock shows a change, or it was sent while it was written: its content tells.
        state = self._state(self.tree.paths.data_dir / path, found)
        if state.whole == before.whole:
            self._sent[path] = state
            return False
        return True

    def _state(self, place: Path, found: os.stat_result, *, end: int | None = None) -> _Sent:
        """Return the state of a file, or of its first `end` bytes, once they are sent."""
        size, whole, left = (found.st_size, 0, found.st_size) if end is None else (end, 0, end)
        with contextlib.suppress(OSError), open_regular(place, within=self.tree.within(place)) as file:
            while left > 0 and (data := file.read(min(left, wire.PART))):
                whole, left = zlib.crc32(data, whole), left - len(data)
        changed = 0 if end is not None or abs(time.time() - found.st_mtime) < _TICK else found.st_mtime_ns
        return _Sent(found.st_ino, size, changed, self._mark_at(place, size), whole)

    def _has_grown(self, path: str, before: _Sent, now: os.stat_result) -> bool:
        """Return whether a file begins with all that was sent of it. Blocks."""
        place = self.tree.paths.data_dir / path
        longer = before.size < now.st_size
        if before.inode != now.st_ino or not (longer or (before.unsure and before.size == now.st_size)):
            return False
        if longer and path.endswith(_APPENDED):
            return self._mark_at(place, before.size) == before.mark
        # Some formats change what they have written when they append to it, far from the end.
        return self._state(place, now, end=before.size).whole == before.whole

    def _mark_at(self, place: Path, end: int) -> int:
        """Return the checksum of the bytes before an offset, 0 when they cannot be read."""
        try:
            with open_regular(place, within=self.tree.within(place)) as file:
                file.seek(max(0, end - _MARK))
                return zlib.crc32(file.read(min(end, _MARK)))
        except OSError:
            return 0

    def _begins(self, place: Path, entry: wire.JobFile) -> bool:
        """Return whether a file begins with the content that the server has."""
        try:
            with open_regular(place, within=self.tree.within(place)) as file:
                return content_digest(file, entry.size) == entry.digest
        except OSError:
            return False
