"""Read samples that lie one after the other in many files, as a data set that workers can share.

Where each sample begins is found once, by a pass over each file, and kept in a file of its own. So a sample has a
number, and a stream is a data set like any other: it is divided by parts, goes on exactly where it was, and gives each
sample once an epoch. An epoch goes through one file after the other, in a new order each time, and mixes samples that
are near each other. So files are read from their beginning to their end.

Formats, by the end of a file's name: `.tar` holds samples as webdataset has them, several members with one name and
different endings. `.parquet` holds a sample in each row. All others hold a sample in each line.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import stat
import tarfile
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset, Sampler

from edt_sdk.elastic.parquet import RowGroups
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.training.checkpoints import durable
from edt_sdk.training.sampling.permutation import Indices

log = logging.getLogger(__name__)

_CHUNK = 1 << 24
_OPEN_FILES = 8
_NEAR = 1024


def stream(files: Iterable[str | Path], decode: Callable[[Any], Any] | None = None, *, near: int = _NEAR) -> Stream:
    """Return the samples in files as a data set for `run.updates()`.

    Args:
        files: their order does not matter, but their set must be the same in all workers.
        decode: what becomes of a sample: of a line as bytes, without its end, of a dictionary from the endings of a
            tar's members, such as "jpg", to their bytes, or of a dictionary of a row's columns. Default: the sample as
            it is.
        near: how many samples of a file that follow each other are mixed.

    Raises:
        InvalidRequest: there are no files.
        Unprocessable: a file cannot be read.
    """
    paths = sorted(Path(each).absolute() for each in files)
    if not paths:
        raise InvalidRequest("stream() got no files.", hint="Look at the pattern that should find them.", field="files")
    return Stream(paths, decode, near)


class Stream(Dataset[Any]):
    """Holds the samples of many files. See `stream`.

    Attributes:
        sampler: the order in which an epoch takes them.
    """

    def __init__(self, paths: Sequence[Path], decode: Callable[[Any], Any] | None, near: int) -> None:
        self._paths = paths
        self._decode = decode
        self._rows = RowGroups()
        found = [_index(path, self._rows) for path in paths]
        self._offsets = found
        self._ends = np.cumsum([len(offsets) - 1 for offsets in found])
        self._open: OrderedDict[int, int] = OrderedDict()
        self.sampler = FileByFile(self._ends, near)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = int(np.searchsorted(self._ends, index, side="right"))
        within = index - (int(self._ends[number - 1]) if number else 0)
        if _is_parquet(self._paths[number]):
            row = self._rows.row(self._paths[number], within)
            return row if self._decode is None else self._decode(row)
        start, stop = self._offsets[number][within : within + 2].tolist()
        data = os.pread(self._opened(number), stop - start, start)
        sample = _members(data) if _is_tar(self._paths[number]) else data.rstrip(b"\r\n")
        return sample if self._decode is None else self._decode(sample)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": OrderedDict()}

    def __del__(self) -> None:
        for descriptor in self.__dict__.get("_open", {}).values():
            os.close(descriptor)

    def _opened(self, number: int) -> int:
        # Descriptors without a place of their own: loader processes share them with their parent.
        if number not in self._open:
            self._open[number] = os.open(self._paths[number], os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open) > _OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
        self._open.move_to_end(number)
        return self._open[number]


class FileByFile(Sampler[int]):
    """Draws an order of all samples from numpy's global generator."""

    def __init__(self, ends: Indices, near: int) -> None:
        self._ends = ends
        self._near = near

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __iter__(self) -> Iterator[int]:
        return iter(self.drawn().tolist())

    def drawn(self) -> Indices:
        """Return the order of all samples at once."""
        starts = np.concatenate([[0], self._ends[:-1]])
        parts = []
        for number in np.random.permutation(len(self._ends)):
            for start in range(int(starts[number]), int(self._ends[number]), self._near):
                stop = min(start + self._near, int(self._ends[number]))
                parts.append(start + np.random.permutation(stop - start))
        found: Indices = np.concatenate(parts).astype(np.int64, copy=False)
        return found


def _is_tar(path: Path) -> bool:
    return path.suffix == ".tar"


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def _index(path: Path, rows: RowGroups) -> Indices:
    """Return where each sample of a file begins, and the end of the last one: int64 [samples + 1]."""
    try:
        if _is_parquet(path):
            return np.arange(rows.count(path) + 1)
        status = path.stat()
        name = hashlib.sha256(f"{path} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:32]
        folder = _own_folder()
        if folder is not None and (folder / f"{name}.npy").exists():
            known: Indices = np.load(folder / f"{name}.npy")
            return known
        found = _of_tar(path) if _is_tar(path) else _of_lines(path)
    except (OSError, tarfile.TarError) as error:
        raise Unprocessable(f"The file {path} of a stream cannot be read: {error}", field="files") from error
    if folder is not None:
        try:
            durable.write(folder / f"{name}.npy", lambda file: np.save(file, found))
        except OSError as error:  # a full disk, for example: each process then looks through the file itself
            log.info("Where the samples of %s begin could not be kept: %s", path, error)
    return found


def _own_folder() -> Path | None:
    """Return the folder where this account keeps its indices, None where another account has taken its name."""
    folder = Path(tempfile.gettempdir()) / f"edt-streams-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return folder if private else None


def _of_lines(path: Path) -> Indices:
    ends, at = [np.zeros(1, np.int64)], 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            ends.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + at + 1)
            at += len(chunk)
    found: Indices = np.concatenate(ends)
    # A last line may have no end.
    return found if found[-1] == at else np.append(found, at)


def _of_tar(path: Path) -> Indices:
    """Return where the members of each sample begin: those with one name up to their first dot, which lie together."""
    starts: list[int] = []
    before, end = None, 0
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            if not member.isfile():
                continue
            name = _parts(member.name)[0]
            if name != before:
                starts.append(member.offset)
            before, end = name, member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    return np.array([*starts, end], dtype=np.int64)


def _members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        return {
            _parts(member.name)[1]: tar.extractfile(member).read()  # type: ignore[union-attr]
            for member in tar
            if member.isfile()
        }


def _parts(name: str) -> tuple[str, str]:
    """Return the name of a sample, and the ending of one of its members."""
    folder, _, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return f"{folder}/{stem}", ending
