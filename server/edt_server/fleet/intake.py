"""Write what a host sends of a job's files into the job's folders on the server. Everything here blocks.

A file that has only grown gets its new bytes. Any other one is written beside the present one, which it replaces when
it is complete. So a reader sees the old content or the new one, also when the server dies in between.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.wire import agent as wire
from edt_server.files import job_trees
from edt_server.files.job_trees import JobTree

log = logging.getLogger(__name__)


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
    grown: set[Path] = set()
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
        if not sender.supervises and not _for_members(sender, part, place):
            pass  # the supervisor's host has that file
        elif isinstance(part, wire.Gone):
            with contextlib.suppress(FileNotFoundError):
                place.unlink()
        elif not part.whole:
            if job_trees.write_at(place, sender.tree.within(place), part.offset, data, part.mode, fresh=False):
                grown.add(place)
            else:
                answer = msgspec.structs.replace(answer, again=True)
        elif not _whole(sender, place, part, data):
            answer = msgspec.structs.replace(answer, again=True)
        answers.append(answer)
    for place in grown:
        with contextlib.suppress(FileNotFoundError):  # replaced or removed by a later part
            job_trees.settle(place)
    return answers


def _for_members(sender: Sender, part: wire.FilePart | wire.Gone, place: Path) -> bool:
    assert sender.tree is not None
    if not sender.tree.of_member(part.path, engine=sender.engine):
        return False
    # A state that several members have is the same one, and the first is enough.
    return not (place.suffix == ".ckpt" and place.exists())


def _whole(sender: Sender, place: Path, part: wire.FilePart, data: bytes) -> bool:
    assert sender.tree is not None
    beside = place.with_name(f".{place.name}.{sender.host}{job_trees.UNFINISHED}")
    within = sender.tree.within(place)
    if not job_trees.write_at(beside, within, part.offset, data, part.mode, fresh=part.offset == 0):
        return False
    if part.last:
        job_trees.settle(beside)
        os.replace(beside, place)
    return True
