"""Record when the streams of a job grew: one line `{"t", "f", "n"}` each time a file is longer than before.

The processes write the streams themselves, straight to files, so that nothing of a killed process is lost. But a file
does not record when. `edt_server.outputs.logs` reads this index to merge the streams by time. It looks at sizes only.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.regular import read_regular

_encoder = msgspec.json.Encoder()


class _Growth(msgspec.Struct, frozen=True):
    t: float
    f: str
    n: int


class StreamIndex:
    """Records the sizes of the files whenever `sample` is called.

    Streams keep their names in the index. `others` are further files, by their names there.
    """

    def __init__(self, index: Path, streams: Path, others: dict[str, Path]) -> None:
        self._streams = streams
        self._others = others
        self._sizes: dict[str, int] = {}
        if index.exists():  # from an earlier supervisor of this job
            for line in read_regular(index).split(b"\n")[:-1]:
                growth = msgspec.json.decode(line, type=_Growth)
                self._sizes[growth.f] = growth.n
        self._descriptor = os.open(index, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def sample(self, now: float) -> None:
        """Write a line for every file that has grown. `now` is in seconds since the epoch."""
        lines: list[bytes] = []
        for name, size in self._look():
            if size != self._sizes.get(name, 0):
                self._sizes[name] = size
                lines.append(_encoder.encode(_Growth(now, name, size)) + b"\n")
        if lines:
            os.write(self._descriptor, b"".join(lines))

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
                found.append((name, path.stat().st_size))
            except OSError:
                continue  # the user's code has not written it, or removed it
        return sorted(found)
