"""Write what a host sends of a job's files into the job's folders on the server. Everything here blocks.

A file that has only grown gets its new bytes. Any other one is written beside the present one, which it replaces when
it is complete. So a reader sees the old content or the new one, also when the server dies in between.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.regular import make_way, open_regular, remove_file
from edt_server.files import job_trees
from edt_server.files.job_trees import JobTree

log = logging.getLogger(__name__)

# Something else has the name of the file, or of a folder above it, or it cannot be a name here.
_IN_THE_WAY = frozenset(
    {errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EEXIST, errno.ENXIO, errno.ENODEV, errno.ENAMETOOLONG}
)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends a file: the host, and what it may write of the job. `refused` is why it may not write at all."""

    host: str
    tree: JobTree | None = None
    supervises: bool = False
    engine: bool = True
    refused: str = ""


def take(parts: Iterable[tuple[Sender, wire.FilePart | wire.Gone, bytes]]) -> list[wire.Taken]:
    """Write all parts, and return the answers once they are on the disk. One for each part, in order.

    OSError where a file cannot be written, as when the disk is full: then no answer may be sent.
    """
    answers: list[wire.Taken] = []
    grown: set[tuple[Path, Path]] = set()
    for sender, part, data in parts:
        answer = wire.Taken(job=part.job, attempt=part.attempt, path=part.path)
        if sender.tree is None:
            answers.append(msgspec.structs.replace(answer, refused=sender.refused))
            continue
        try:
            place = sender.tree.checked(part.path)
        except InvalidRequest as wrong:
            answers.append(msgspec.structs.replace(answer, refused=wrong.message))
            continue
        # What the supervisor's host has is not taken from others, which go on without an answer to that.
        if sender.supervises or _for_members(sender, part, place):
            taken = _Writing(sender, place, sender.tree.within(place), part, data, grown).take()
            answer = msgspec.structs.replace(answer, again=not taken)
        answers.append(answer)
    _settle(grown)
    return answers


@dataclass(frozen=True, slots=True)
class _Writing:
    """One part that is written to `place`. `grown` are the files that got bytes, and are not on the disk for sure."""

    sender: Sender
    place: Path
    within: Path
    part: wire.FilePart | wire.Gone
    data: bytes
    grown: set[tuple[Path, Path]]

    def take(self) -> bool:
        """Write the part. Return False when the whole file is needed."""
        try:
            return self._write()
        except OSError as wrong:
            if wrong.errno not in _IN_THE_WAY:
                raise
            if isinstance(self.part, wire.Gone) or not self.part.whole:
                return isinstance(self.part, wire.Gone)
            # A folder became a file on the host, or the other way round, or a job that ran here has left a link.
            # Without the server's files of other hosts nothing may be removed.
            try:
                if self.sender.supervises:
                    make_way(self.place, within=self.within)
                    return self._write()
            except OSError as again:
                if again.errno not in _IN_THE_WAY:
                    raise
            log.warning("a file of host %s has no place here: %s", self.sender.host, wrong)
            with contextlib.suppress(OSError):
                remove_file(self._beside, within=self.within)
            return True

    @property
    def _beside(self) -> Path:
        return job_trees.unfinished(self.place, self.sender.host)

    def _write(self) -> bool:
        part = self.part
        if isinstance(part, wire.Gone):
            with contextlib.suppress(FileNotFoundError):
                remove_file(self.place, within=self.within)
            return True
        if not part.whole:
            # What was sent before, and not answered, may have been longer.
            if not self._put(self.place, part, fresh=False, last=part.last):
                return False
            self.grown.add((self.place, self.within))
            return True
        beside = self._beside
        if not self._put(beside, part, fresh=part.offset == 0):
            return False
        if part.last:
            job_trees.settle(beside)
            # A checkpoint must not be on the disk before the lines of the log that it follows.
            _settle(self.grown)
            os.replace(beside, self.place)
        return True

    def _put(self, place: Path, part: wire.FilePart, *, fresh: bool, last: bool = False) -> bool:
        return job_trees.write_at(place, self.within, part.offset, self.data, part.mode, fresh=fresh, last=last)


def _settle(grown: set[tuple[Path, Path]]) -> None:
    for place, within in grown:
        with contextlib.suppress(FileNotFoundError), open_regular(place, within=within) as file:
            os.fsync(file.fileno())  # else replaced or removed by a later part
    grown.clear()


def _for_members(sender: Sender, part: wire.FilePart | wire.Gone, place: Path) -> bool:
    assert sender.tree is not None
    if not sender.tree.of_member(part.path, engine=sender.engine):
        return False
    # A state that several members have is the same one, and the first is enough.
    return not (place.suffix == ".ckpt" and place.exists())
