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
            within = sender.tree.within(place)
            answer = msgspec.structs.replace(answer, again=not _take_one(sender, place, within, part, data, grown))
        answers.append(answer)
    _settle(grown)
    return answers


def _take_one(
    sender: Sender,
    place: Path,
    within: Path,
    part: wire.FilePart | wire.Gone,
    data: bytes,
    grown: set[tuple[Path, Path]],
) -> bool:
    """Write a part. Return False when the whole file is needed."""
    try:
        return _write(sender, place, within, part, data, grown)
    except OSError as wrong:
        if wrong.errno not in _IN_THE_WAY:
            raise
        if isinstance(part, wire.Gone) or not part.whole:
            return isinstance(part, wire.Gone)
        # A folder became a file on the host, or the other way round, or a job that ran here has left a link. Without
        # the server's files of other hosts nothing may be removed.
        try:
            if sender.supervises:
                make_way(place, within=within)
                return _write(sender, place, within, part, data, grown)
        except OSError as again:
            if again.errno not in _IN_THE_WAY:
                raise
        log.warning("a file of host %s has no place here: %s", sender.host, wrong)
        with contextlib.suppress(OSError):
            remove_file(job_trees.unfinished(place, sender.host), within=within)
        return True


def _write(
    sender: Sender,
    place: Path,
    within: Path,
    part: wire.FilePart | wire.Gone,
    data: bytes,
    grown: set[tuple[Path, Path]],
) -> bool:
    if isinstance(part, wire.Gone):
        with contextlib.suppress(FileNotFoundError):
            remove_file(place, within=within)
        return True
    write = job_trees.write_at
    if not part.whole:
        # What was sent before, and not answered, may have been longer.
        if not write(place, within, part.offset, data, part.mode, fresh=False, last=part.last):
            return False
        grown.add((place, within))
        return True
    beside = job_trees.unfinished(place, sender.host)
    if not write(beside, within, part.offset, data, part.mode, fresh=part.offset == 0):
        return False
    if part.last:
        job_trees.settle(beside)
        # A checkpoint must not be on the disk before the lines of the log that it follows.
        _settle(grown)
        os.replace(beside, place)
    return True


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
