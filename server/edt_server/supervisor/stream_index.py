"""Record when the streams of a job grew: one line `{"t", "f", "n"}` each time a file is longer than before.

The processes write the streams themselves, straight to files, so that nothing of a killed process is lost. But a file
does not record when. `edt_server.outputs.logs` reads this index to merge the streams by time. It looks at sizes only.
Without room on the disk nothing is recorded, and the next sample with room records all that has grown.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.regular import read_regular, stat_regular

_encoder = msgspec.json.Encoder()


class _Growth(msgspec.Struct, frozen=True):
    t: float
    f: str
    n: int


class StreamIndex:
    """Records the sizes of the files whenever `sample` is called.

    Streams keep their names in the index. `others` are further files, by their names there, which the job's code makes
    in the folder `within`.
    """

    def __init__(self, index: Path, streams: Path, others: dict[str, Path], *, within: Path) -> None:
        self._streams = streams
        self._others = others
        self._within = within
        self._sizes: dict[str, int] = {}
        self._torn = False
        if index.exists():  # from an earlier supervisor of this job
            for line in read_regular(index).split(b"\n")[:-1]:
                with contextlib.suppress(msgspec.DecodeError):  # torn, because the disk was full
                    growth = msgspec.json.decode(line, type=_Growth)
                    self._sizes[growth.f] = growth.n
        self._descriptor = os.open(index, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def sample(self, now: float) -> None:
        """Write a line for every file that has grown. `now` is in seconds since the epoch."""
        grown = {name: size for name, size in self._look() if size != self._sizes.get(name, 0)}
        if not grown:
            return
        # After a torn line this starts a new one.
        lines = b"\n" * self._torn + _encoder.encode_lines([_Growth(now, name, size) for name, size in grown.items()])
        try:
            written = os.write(self._descriptor, lines)
        except OSError as wrong:
            if wrong.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return
        self._torn = written < len(lines)
        if not self._torn:
            self._sizes |= grown

    def close(self) -> None:
        """Close the index."""
        os.close(self._descriptor)

    def _look(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        try:
            with os.scandir(self._streams) as entries:
                found.extend(
                    (entry.name, entry.stat(follow_symlinks=False).st_size)
                    for entry in entries
                    if not entry.name.startswith(".")
                )
        except FileNotFoundError:
            return []  # the job is being deleted
        for name, path in self._others.items():
            try:
                found.append((name, stat_regular(path, within=self._within).st_size))
            except OSError:
                continue  # the user's code has not written it, or removed it
        return sorted(found)
