"""Merge the output of a job by time: driver stdout and stderr, ELog, and the workers.

The job's processes write the files themselves, and this module reads them from a cursor on. So nothing is lost when a
server or a supervisor dies. The time of a line comes from the supervisor's index (`streams.index.jsonl`: file f had n
bytes at time t). A line the index does not cover yet has the time of its file's last change. Lines of a file always
keep the order of the file.

`merge` is pure, and `LogReader` only opens files. It blocks: call it in a thread.
"""

from __future__ import annotations

import bisect
import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.wire.parts import STREAMS
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import open_regular, stat_regular
from edt_server.outputs.tail import MAX_BYTES, end_of, from_cursor, line_at, read_tail, split_lines, to_cursor

_WORKER_FILE = re.compile(r"worker-(\d+)\.(stdout|stderr)\Z")
# A cursor comes from a client. Its keys select among the job's own files and never become part of a path.
_KEY = re.compile(r"[oe]\d*\Z|l:[^/\0]+\Z")
_FOREVER = float("inf")
_ALL = 1 << 62
_FEWEST_BYTES, _MOST_BYTES = 1 << 10, 2 * MAX_BYTES


class LoggedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a log.

    Attributes:
        time: when it was seen in its file, seconds since the epoch.
        stream: "stdout" or "stderr" of the driver, "elog", or "worker".
        worker: the worker's number, None for the driver.
        err: True when it was written to stderr.
        text: the line without its newline. Bytes that are no UTF-8 are replaced.
    """

    time: float
    stream: str
    worker: int | None
    err: bool
    text: str


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Some lines in order, with the cursor after all of them. `done` when there will be no more.

    `before` has the offsets by file before the first line, `ends` file and offset after each line.
    """

    lines: tuple[LoggedLine, ...]
    next: str
    done: bool
    before: Mapping[str, int]
    ends: tuple[tuple[str, int], ...]

    def cursors(self) -> Iterator[str]:
        """Yield the cursor after each line. They are made on request, because pages need only the last one."""
        offsets = dict(self.before)
        for key, end in self.ends:
            offsets[key] = end
            yield to_cursor(offsets)


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a job's log: `key` is its short name in cursors, `indexed` its name in the index.

    `within` is the job's folder that holds it, as in `open_regular`.
    """

    key: str
    path: Path
    within: Path
    indexed: str
    stream: str
    worker: int | None
    err: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """A line and where it came from: `time` orders it, `end` is the offset in the file behind it."""

    time: float
    order: int
    end: int
    line: LoggedLine


def merge(files: Iterable[Sequence[Placed]], *, limit: int, until: float = _FOREVER) -> list[Placed]:
    """Return the first `limit` lines by time, not later than `until`. Lines of a file keep its order."""
    merged: list[Placed] = []
    for placed in heapq.merge(*files, key=lambda entry: (entry.time, entry.order)):
        # `until` comes from a file with unread lines: a line of another file after that time could be too early.
        if len(merged) == limit or placed.time > until:
            break
        merged.append(placed)
    return merged


@dataclass(slots=True)
class TimeIndex:
    """The time at which each file had reached which size, by the indexes there are. The times never go back."""

    indexes: Callable[[], Iterable[Path]]
    read: dict[Path, int] = field(default_factory=dict)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)

    def update(self) -> None:
        """Read the entries appended since the last call. A damaged line is skipped."""
        # A host with files of its own has an index of its own, for other files.
        for path in self.indexes():
            self._update(path)

    def _update(self, path: Path) -> None:
        read = self.read.get(path, 0)
        try:
            with open_regular(path) as file:
                file.seek(read)
                data = file.read()
        except FileNotFoundError:
            return
        # The supervisor may be in the middle of an entry. The next update reads it whole.
        for line, length in split_lines(data, final=False)[0]:
            self.read[path] = read = read + length
            try:
                entry = _decode_entry(line)
            except msgspec.DecodeError:
                continue
            sizes, times = self.sizes.setdefault(entry.f, []), self.times.setdefault(entry.f, [])
            if not sizes or entry.n > sizes[-1]:
                sizes.append(entry.n)
                # A wall clock can go back. The search by bisection needs rising times.
                times.append(max(entry.t, times[-1]) if times else entry.t)

    def time_of(self, name: str, end: int) -> float | None:
        """Return when byte `end` of the file was first seen, None when it is not indexed yet."""
        sizes = self.sizes.get(name, [])
        place = bisect.bisect_left(sizes, end)
        return self.times[name][place] if place < len(sizes) else None

    def seen_before(self, name: str, time: float) -> int:
        """Return how many bytes of the file had been seen before `time`."""
        place = bisect.bisect_left(self.times.get(name, []), time)
        return self.sizes[name][place - 1] if place else 0

    def last(self, name: str) -> float:
        """Return the newest time of the file, 0 when there is none."""
        times = self.times.get(name)
        return times[-1] if times else 0.0


class _Entry(msgspec.Struct, frozen=True):
    t: float
    f: str
    n: int


_decode_entry = msgspec.json.Decoder(_Entry).decode


class LogReader:
    """Reads a job's log forward. One object may be kept for a whole `follow`.

    `stream` is one of `STREAMS`. "stdout" and "stderr" are the driver's, or with `worker` that worker's. `err` leaves
    out what was, or was not, written to a stderr. `after` is the cursor of an earlier answer. InvalidRequest for what
    cannot be read.
    """

    def __init__(
        self,
        paths: JobPaths,
        *,
        stream: str = "all",
        worker: int | None = None,
        err: bool | None = None,
        after: str = "",
    ) -> None:
        if stream not in STREAMS:
            raise InvalidRequest(
                f"There is no stream {stream!r}.", hint=f"Choose one of {', '.join(STREAMS)}.", field="stream"
            )
        if worker is not None and stream in ("driver", "elog"):
            raise InvalidRequest(
                f"Workers have no stream {stream!r}.", hint="Leave out worker, or stream.", field="worker"
            )
        self._paths = paths
        self._stream = stream
        self._worker = worker
        self._err = err
        self._offsets = from_cursor(after)
        if not all(_KEY.match(key) for key in self._offsets):
            raise InvalidRequest(f"{after!r} is not a cursor of a log.", field="after")
        self._index = TimeIndex(paths.stream_indexes)

    def read(self, *, limit: int = 1000, final: bool = False) -> LogBatch:
        """Return the next lines, at most `limit`. `final` means that no process of the job writes any more."""
        self._index.update()
        # Listed once: `order` is a place in this list, and a file that appears in the middle would shift the places.
        wanted = self._sources()
        files: list[list[Placed]] = []
        until = _FOREVER
        share = _share(wanted)
        for order, source in enumerate(wanted):
            placed, more = self._read_source(source, order, limit, final, share)
            files.append(placed)
            if more and placed:
                # Stop where a file has more unread lines: a later line of another file would overtake them, and the
                # cursor never goes back.
                until = min(until, placed[-1].time)
        # Offsets move only behind delivered lines: whatever was read in vain is read again, and no line is lost.
        chosen = merge(files, limit=limit, until=until)
        return self._deliver(chosen, wanted, done=final and len(chosen) == sum(map(len, files)) and until == _FOREVER)

    def begin(self, since: float) -> None:
        """Start with the first unread line that was written at `since` (seconds since the epoch) or later."""
        self._index.update()
        for source in self._sources():
            size, changed = _size(source)
            seen = size
            if max(changed, self._index.last(source.indexed)) >= since:
                # The index is read only where the file has lines that are new enough. Otherwise start at its end.
                seen = self._index.seen_before(source.indexed, since)
            # An entry of the index counts bytes and can end in the middle of a line.
            self._offsets[source.key] = line_at(source.path, seen, within=source.within)

    def last(self, lines: int, *, final: bool = False) -> LogBatch:
        """Return the last `lines` lines. `read` goes on after them.

        There are fewer when lines are long. Where a file was not read back far enough, no line of any file is older
        than the first line found in it.
        """
        self._index.update()
        wanted = self._sources()
        files: list[list[Placed]] = []
        since, complete, share = 0.0, True, _share(wanted)
        for order, source in enumerate(wanted):
            end = end_of(source.path, lines, within=source.within, max_bytes=share)
            begun = self._offsets.get(source.key, 0)
            # Never before the cursor: the client already has these lines.
            self._offsets[source.key] = max(begun, end.offset)
            placed, more = self._read_source(source, order, _ALL, final, share)
            files.append(placed)
            complete = complete and not more
            if placed and end.cut and end.offset > begun:
                # Older lines of the other files would look like all lines of that time, while this file's are missing.
                since = max(since, placed[0].time)
        shown = [placed for placed in merge(files, limit=_ALL) if placed.time >= since][-lines:]
        shown_of = Counter(placed.order for placed in shown)
        for order, source in enumerate(wanted):
            # Lines that were read and not shown are older than the shown lines. `read` must not deliver them
            # afterwards.
            passed_over = files[order][: len(files[order]) - shown_of[order]]
            if passed_over:
                self._offsets[source.key] = passed_over[-1].end
        return self._deliver(shown, wanted, done=final and complete)

    def _deliver(self, chosen: list[Placed], read: list[Source], *, done: bool) -> LogBatch:
        before = dict(self._offsets)
        ends = tuple((read[placed.order].key, placed.end) for placed in chosen)
        for key, end in ends:
            self._offsets[key] = end
        return LogBatch(tuple(placed.line for placed in chosen), to_cursor(self._offsets), done, before, ends)

    def _sources(self) -> list[Source]:
        return [source for source in sources(self._paths) if self._wanted(source)]

    def _read_source(
        self, source: Source, order: int, limit: int, final: bool, max_bytes: int
    ) -> tuple[list[Placed], bool]:
        offset = self._offsets.get(source.key, 0)
        tail = read_tail(source.path, offset, max_lines=limit, final=final, within=source.within, max_bytes=max_bytes)
        # Bytes that the index does not cover yet are the newest (004). The file's time alone could be earlier than the
        # last entry, and the merge needs rising times within a file.
        newest = max(tail.changed or 0.0, self._index.last(source.indexed))
        placed: list[Placed] = []
        for text, end in tail.lines:
            time = self._index.time_of(source.indexed, end)
            line = LoggedLine(
                time=newest if time is None else time,
                stream=source.stream,
                worker=source.worker,
                err=source.err,
                # Programs may print any bytes (004).
                text=text.decode("utf-8", "replace"),
            )
            placed.append(Placed(line.time, order, end, line))
        return placed, tail.more

    def _wanted(self, source: Source) -> bool:
        if self._worker is not None and source.worker != self._worker:
            return False
        if self._err is not None and source.err is not self._err:
            return False
        if self._stream in ("stdout", "stderr"):
            # stdout and stderr are the worker's where a worker is named, else the driver's.
            mine = source.stream == self._stream or (source.worker is not None and self._worker is not None)
            return mine and source.err == (self._stream == "stderr")
        if self._stream == "driver":
            return source.stream in ("stdout", "stderr")
        return self._stream in ("all", source.stream)


def _share(wanted: Sequence[Source]) -> int:
    """Return the bytes that are read of each file, so that all together are bounded.

    A job may have many workers, and its code may make any number of files in its log folder.
    """
    return max(_FEWEST_BYTES, min(MAX_BYTES, _MOST_BYTES // max(1, len(wanted))))


def _size(source: Source) -> tuple[int, float]:
    """Return the bytes of a file and its last change in seconds since the epoch, zeros when there is no file."""
    try:
        found = stat_regular(source.path, within=source.within)
    except FileNotFoundError:
        return 0, 0.0
    return found.st_size, found.st_mtime


def sources(paths: JobPaths) -> list[Source]:
    """Return the log files that a job has by now, driver first, then ELog, then workers by number."""
    streams, own = paths.streams_dir, paths.job_dir
    found = [
        Source("o", streams / "driver.stdout", own, "driver.stdout", "stdout", None, False),
        Source("e", streams / "driver.stderr", own, "driver.stderr", "stderr", None, True),
    ]
    for folder in sorted(paths.log_root.glob("driver-*")):
        elog = elog_name(folder.name)
        found.append(Source(f"l:{folder.name}", folder / "stdout", paths.result_dir, elog, "elog", None, False))
    workers: list[Source] = []
    for path in streams.glob("worker-*.std*"):
        match = _WORKER_FILE.match(path.name)
        if match:
            number, err = int(match[1]), match[2] == "stderr"
            workers.append(Source(f"{'e' if err else 'o'}{number}", path, own, path.name, "worker", number, err))
    # By number and not by name, in which worker-10 would precede worker-2.
    return found + sorted(workers, key=lambda source: (source.worker or 0, source.err))


def elog_name(folder: str) -> str:
    """Return the name that the supervisor's index uses for the ELog file of the driver's log folder."""
    return f"log/{folder}/stdout"
