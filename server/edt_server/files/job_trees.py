"""The files of a job as they travel between the server and its hosts: which ones, who may write them, and how.

A job has two folders below the data folder (`JobPaths`). The server's copy of them is the job's. A host where the job
runs has a copy of its own, sends what its processes write, and gets what they need. A path in a message is relative to
the data folder, and is checked on both sides: it may only lead into the job's own folders.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.wire.agent import JobFile
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import make_folder, open_regular
from edt_server.system.processes import PRESENCE

UNFINISHED = ".edt-part"
"""What the name of a file ends with that is not complete yet."""
_PIECE = 1 << 20
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Of one machine alone: orders with a key in them, locks, sockets, and what is being written.
_LOCAL = re.compile(
    rf"(launch\.json|package|{re.escape(PRESENCE)}|.*\.lock|.*\.tmp|\..*\.new|.*{re.escape(UNFINISHED)})\Z"
)
_CHECKPOINT = re.compile(r"checkpoint/training-\d+/(epoch|update)-(\d+)\.ckpt\Z")
_OF_EPOCH = re.compile(r"model/train/model_epoch_\d+(_optimizer_state)?\.pth\Z")
# What the processes of a host without the job's supervisor write in the job's own folder.
_OF_MEMBERS = re.compile(r"(streams/(worker|task)-.*|streams\.index\.[^/]+\.jsonl|torchelastic/.*)\Z")


@dataclass(frozen=True, slots=True)
class JobTree:
    """The files of a job below a data folder."""

    paths: JobPaths

    @property
    def roots(self) -> tuple[Path, Path]:
        """The job's own folder and its result folder."""
        return self.paths.job_dir, self.paths.result_dir

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the path and status of each regular file that may travel. Links are not followed. Blocks."""
        for root in self.roots:
            for folder, folders, names in os.walk(root):
                if Path(folder) == self.paths.job_dir and "tmp" in folders:
                    folders.remove("tmp")
                for name in names:
                    if _LOCAL.match(name):
                        continue
                    path = os.path.join(folder, name)
                    try:
                        found = os.lstat(path)
                    except OSError:
                        continue  # removed in the meantime
                    if stat.S_ISREG(found.st_mode) and _is_text(path):
                        yield os.path.relpath(path, self.paths.data_dir), found

    def checked(self, path: str) -> Path:
        """Return where this file is. InvalidRequest when it is no file of the job that may travel."""
        place = PurePosixPath(path)
        if not place.is_absolute() and ".." not in place.parts and "\0" not in path and not _LOCAL.match(place.name):
            whole = self.paths.data_dir / place
            if any(whole != root and whole.is_relative_to(root) for root in self.roots):
                return whole
        raise InvalidRequest(f"{path!r} is no file of job {self.paths.job_id} that a host may have.", field="path")

    def within(self, place: Path) -> Path:
        """Return the root that a file is below."""
        return next(root for root in self.roots if place.is_relative_to(root))

    def of_member(self, path: str, *, engine: bool) -> bool:
        """Return whether a host without the job's supervisor may write this file.

        Only the supervisor's host has what its `engine` writes: there is one writer of each of those files.
        """
        place = self.paths.data_dir / path
        if place.is_relative_to(self.paths.job_dir):
            return _OF_MEMBERS.match(str(place.relative_to(self.paths.job_dir))) is not None
        inner = str(place.relative_to(self.paths.result_dir))
        if not engine:
            return True
        match = _CHECKPOINT.match(inner)
        # A member that has lost its supervisor writes the state that only it may have left.
        return not inner.startswith("model/") and (match is None or match[1] == "update")

    def needed(self, requested: str = "") -> frozenset[str]:
        """Return the paths of the files that an attempt needs to go on, without old checkpoints and weights. Blocks.

        `requested` is the name of a checkpoint that a person chose to resume from, such as "epoch-3".
        """
        found = [path for path, _ in self.files()]
        base = self.paths.result_dir.relative_to(self.paths.data_dir)
        newest: dict[tuple[str, str], tuple[int, str]] = {}
        old: set[str] = set()
        for path in found:
            inner = os.path.relpath(path, base)
            if _OF_EPOCH.match(inner):
                old.add(path)
            elif (match := _CHECKPOINT.match(inner)) is not None and Path(inner).stem != requested:
                old.add(path)
                key = (os.path.dirname(inner), match[1])
                newest[key] = max(newest.get(key, (-1, "")), (int(match[2]), path))
        return frozenset(found) - (old - {path for _, path in newest.values()})


class Digests:
    """Compute SHA-256 of files, and remember them as long as the files are the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], str] = {}

    def of(self, path: Path, within: Path) -> str:
        """Return the digest of a regular file. OSError when it cannot be read. Blocks."""
        with open_regular(path, within=within) as file:
            found = os.fstat(file.fileno())
            key = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
            if key not in self._known:
                self._known[key] = content_digest(file)
            return self._known[key]

    def entry(self, data_dir: Path, path: str, within: Path, *, needed: bool = True) -> JobFile | None:
        """Return what a message says of a file, None when it cannot be read. Blocks."""
        place = data_dir / path
        try:
            digest = self.of(place, within) if needed else ""
            found = os.lstat(place)
        except OSError:
            return None
        return JobFile(path=path, size=found.st_size, mode=stat.S_IMODE(found.st_mode), digest=digest)


def content_digest(file: BinaryIO, size: int | None = None) -> str:
    """Return the SHA-256 of a file from where it stands, of all or of at most `size` bytes. Blocks."""
    digest, left = hashlib.sha256(), size
    while data := file.read(_PIECE if left is None else min(left, _PIECE)):
        digest.update(data)
        left = None if left is None else left - len(data)
    return digest.hexdigest()


def unfinished(place: Path, by: str = "") -> Path:
    """Return where a file is written until it is complete. `by` tells several writers of one file apart."""
    # Not the name itself, which may be as long as a name can be.
    return place.with_name(f".{hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16]}.{by}{UNFINISHED}")


def write_at(
    place: Path, within: Path, offset: int, data: bytes, mode: int, *, fresh: bool, last: bool = False
) -> bool:
    """Write bytes to a file below `within`, which is made with its folders. Return False when it ends before `offset`.

    Data after them stays, unless they are the `last`. `fresh` empties the file first. No link is followed, and nothing
    is waited for. The bytes are in the system's memory when this returns, see `settle`. OSError as `open`, and when
    there is no room. Blocks.
    """
    make_folder(place.parent, within=within)
    # Checked one by one above. A link that takes a folder's place right now has to be made by the job itself, whose
    # files these are.
    descriptor = os.open(place, _WRITE | (os.O_TRUNC if fresh else 0), mode & 0o777 | 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileExistsError(f"{place} is no regular file")
        if os.fstat(descriptor).st_size < offset:
            return False
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written
        if last:
            os.ftruncate(descriptor, offset)
        return True
    finally:
        os.close(descriptor)


def _is_text(path: str) -> bool:
    """Return whether a path can be part of a message. Names of files are bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def settle(place: Path) -> None:
    """Return when a file's bytes are on the disk. Blocks."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
