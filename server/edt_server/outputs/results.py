"""Write a job's result as a zip while it is sent: nothing is copied, and the size is known before the first byte.

Files are stored, not compressed, because weights do not shrink. Each has the size it had when the zip was planned, so
the log files of a running job may grow in the meantime. Only regular files that really lie in the job's own folders
are taken. Links out of them are not followed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from zipstream import ZipStream  # type: ignore[import-untyped]  # it ships no annotations

from edt_sdk.schemas.errors import InvalidRequest, NotFound
from edt_sdk.schemas.wire.parts import PARTS
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import open_regular, regular_files, stat_regular
from edt_sdk.schemas.wire.saved import SIZE, SUFFIX, Damaged, read_header

_CHUNK = 1 << 18
_CHECKPOINT = re.compile(r"model_epoch_(\d+|final)\.pth\Z")
# Rolling checkpoints and files that are being written: they come and go while a zip is sent.
_PASSING = re.compile(r"\A/checkpoint/training-\d+/update-\d+\.ckpt\Z|/\.[^/]+\.tmp\Z")


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint on disk.

    Attributes:
        name: the file's name for "weights", such as "model_epoch_3.pth". "epoch-3" or "update-1200" for "exact".
        epoch: the epoch after which it was written, from 1. None for the final one and for one inside an epoch.
        bytes: size of the file.
        time: written, in seconds since the epoch (UTC).
        kind: "weights" for a state dict, or "exact" for the state that the job itself resumes from bit for bit.
        update: how many updates were committed. None for "weights".
        training: number of the training within the job, from 0. None for "weights".
    """

    name: str
    epoch: int | None
    bytes: int
    time: float
    kind: str = "weights"
    update: int | None = None
    training: int | None = None


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One file of the zip: its name there, its path on disk, the job's folder around it, how many bytes are taken."""

    name: str
    path: Path
    within: Path
    size: int


@dataclass(frozen=True, slots=True)
class ResultZip:
    """A planned zip: its file name, its exact size in bytes, and its bytes, piece by piece (blocking)."""

    name: str
    size: int
    chunks: Iterator[bytes]

    @property
    def disposition(self) -> str:
        """Return the Content-Disposition header. WMLA's clients split it at `;` and accept no blank after it."""
        return f"attachment;filename={self.name};size={self.size}"


def plan(paths: JobPaths, part: str = "all", *, streams: bool = True) -> ResultZip:
    """Plan the zip for one part of a job's result.

    Args:
        paths: the job's files.
        part: "model" (`model/`, without the epochs' files once there are final ones), "checkpoint" (`checkpoint/` and
            the epochs' files under `model/train/`), "log" (`log/` and the raw streams), or "all" (the whole result
            folder and the raw streams).
        streams: False for the folders alone, without the raw streams.
    """
    if part not in PARTS:
        raise InvalidRequest(f"There is no part {part!r}.", hint=f"Choose one of {', '.join(PARTS)}.", field="part")
    members = list(_members(paths, part, streams))
    if not members:
        raise NotFound(
            f"Job {paths.job_id} has no {'result' if part == 'all' else part} yet.",
            hint="Ask again when it has trained an epoch, or look at its logs.",
            job=paths.job_id,
            part=part,
        )
    return _zip(f"dlpd-model-{paths.job_id}-result.zip", members)


def zip_of(name: str, files: Mapping[str, Path], within: Path) -> ResultZip:
    """Plan a zip of these files by their names in it. They lie in the folder `within`. Blocks."""
    sizes = {path: stat_regular(path, within=within).st_size for path in files.values()}
    return _zip(name, [ArchiveMember(called, path, within, sizes[path]) for called, path in files.items()])


def _zip(name: str, members: Iterable[ArchiveMember]) -> ResultZip:
    # WMLA's clients read the size from a header, so it is needed before the first byte (docs/decisions/008).
    stream = ZipStream(sized=True)
    for member in members:
        stream.add(_read(member), member.name, size=member.size)
    return ResultZip(name, len(stream), iter(stream))


def checkpoints(paths: JobPaths) -> list[Checkpoint]:
    """Return the checkpoints on disk: weights by epoch, the final ones last, then exact ones by update."""
    found: list[Checkpoint] = []
    for path, info in regular_files(paths.train_dir, "model_epoch_*.pth", within=paths.result_dir):
        match = _CHECKPOINT.match(path.name)
        if match:
            epoch = None if match[1] == "final" else int(match[1])
            found.append(Checkpoint(name=path.name, epoch=epoch, bytes=info.st_size, time=info.st_mtime))
    return sorted(found, key=lambda c: (c.epoch is None, c.epoch or 0)) + sorted(
        _exact(paths), key=lambda c: (c.training, c.update, c.name)
    )


def _exact(paths: JobPaths) -> Iterator[Checkpoint]:
    for path in paths.checkpoint_dir.glob(f"training-*/*{SUFFIX}"):
        # One that is torn, or was removed meanwhile, is nothing to resume from.
        with contextlib.suppress(Damaged, OSError):
            header = read_header(path, within=paths.result_dir)
            yield Checkpoint(
                name=path.stem,
                epoch=header.epoch,
                bytes=SIZE + header.length,
                time=header.time,
                kind="exact",
                update=header.updates,
                training=header.training,
            )


def _members(paths: JobPaths, part: str, streams: bool) -> Iterator[ArchiveMember]:
    root = paths.result_dir
    if part == "all":
        yield from _walk(root, root, "")
    elif part == "checkpoint":
        yield from _walk(root, paths.checkpoint_dir, "checkpoint/")
        yield from (m for m in _walk(root, paths.train_dir, "model/train/") if m.path.name.startswith("model_epoch_"))
    else:
        # A big model has gigabytes per epoch. The part "checkpoint" has them.
        yield from (m for m in _walk(root, root / part, f"{part}/") if not paths.superseded(root / m.name))
    if streams and part in ("all", "log"):
        yield from _walk(paths.job_dir, paths.streams_dir, "streams/")


def _walk(root: Path, folder: Path, prefix: str) -> Iterator[ArchiveMember]:
    """Yield regular files below `folder`, sorted and without temporary files. Their real paths are below `root`."""
    inside = root.resolve()
    if not folder.resolve().is_relative_to(inside):
        return  # a link, perhaps to the root of the machine, which would take hours to walk
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(place, name)
            if _PASSING.search(f"/{path.relative_to(root).as_posix()}"):
                continue
            real = path.resolve()
            # User code can place a link to any file of this account here. Only files of the job's own folder are sent.
            # The real path has no link, and none may have come between when the file is read (`_read`).
            if real.is_relative_to(inside):
                with contextlib.suppress(FileNotFoundError):
                    size = stat_regular(real, within=inside).st_size
                    yield ArchiveMember(prefix + path.relative_to(folder).as_posix(), real, inside, size)


def _read(member: ArchiveMember) -> Iterator[bytes]:
    left = member.size
    with open_regular(member.path, within=member.within) as file:
        while left:
            data = file.read(min(_CHUNK, left))
            if not data:
                # The zip's size is already promised. An aborted transfer is better than a zip with wrong bytes.
                raise OSError(f"{member.path.name} became shorter while it was sent.")
            left -= len(data)
            yield data
