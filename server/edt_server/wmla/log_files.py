"""Find the files of a job that WMLA calls its logs, and read the end of a log.

`/execs/{id}/log` of an elastic job is ELog's file alone: notebooks read it as a table, and any other line spoils it.
For a job that runs plain scripts it is their output. The executors' logs count from 1, one for each worker, also for
ended workers. Blocks: call it in a thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from edt_sdk.schemas.errors import InvalidRequest, TooLarge
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import open_regular
from edt_server.outputs.logs import LogReader

OUT, ERR, BOTH = "outlog", "errlog", "outerrlog"
KINDS = ("launcherlog", "stdout", "stderr")
_WORKER = re.compile(r"worker-(\d+)\.std(?:out|err)\Z")
_PAGE = 50_000
_MOST_LINES = 1_000_000
MOST_LOG = 8 << 20  # bytes of a log that one answer contains
_CHUNK = 1 << 16


def training_log(paths: JobPaths, *, elastic_engine: bool, kind: str, final: bool) -> str:
    """Return the training's log of a kind, "" for the first. The files of a `final` job are complete."""
    if kind not in ("", OUT, ERR, BOTH):
        raise InvalidRequest(f"logType is {OUT}, {ERR} or {BOTH}, not {kind!r}.", field="logType")
    # As bytes, and line by line, because a text with one emoji takes four bytes a character.
    log = bytearray()
    for piece in _pieces(paths, elastic_engine, kind, final):
        log += piece.encode()
        if len(log) > MOST_LOG:
            raise _too_long()
    return log.decode()


def _pieces(paths: JobPaths, elastic_engine: bool, kind: str, final: bool) -> Iterator[str]:
    if elastic_engine:
        # ELog's file alone: a notebook reads it as a table, and another line would spoil that table.
        files = [] if kind == ERR else sorted(paths.log_root.glob("driver-*/stdout"))
        files += [paths.streams_dir / "driver.stderr"] if kind in (ERR, BOTH) else []
        for file in files:
            yield _whole(file, paths.result_dir if file.is_relative_to(paths.result_dir) else paths.job_dir)
        return
    reader, count = LogReader(paths, err={OUT: False, ERR: True, BOTH: None}[kind or OUT]), 0
    while lines := reader.read(limit=_PAGE, final=final).lines:
        # A log of line breaks would keep the server busy for minutes.
        count += len(lines)
        if count > _MOST_LINES:
            raise _too_long()
        for line in lines:
            yield f"{line.text}\n"


def workers_seen(paths: JobPaths) -> list[int]:
    """Return the numbers of all workers that the job has had so far."""
    found = (_WORKER.match(path.name) for path in paths.streams_dir.glob("worker-*"))
    return sorted({int(match[1]) for match in found if match})


def has_driver(paths: JobPaths) -> bool:
    """Return whether there is a driver's output."""
    return (paths.streams_dir / "driver.stdout").exists()


def driver_log(paths: JobPaths, kind: str, last_lines: int | None = None) -> str:
    """Return the driver's stdout or stderr, "" without any. InvalidRequest for another kind."""
    return _stream(paths, "driver", kind, last_lines)


def worker_log(paths: JobPaths, worker: int, kind: str, last_lines: int | None = None) -> str:
    """Return the same for one worker. `worker` counts from 0."""
    return _stream(paths, f"worker-{worker}", kind, last_lines)


def nth_executor(paths: JobPaths, number: int) -> int | None:
    """Return the number of the worker with the logs of executor `number` (from 1), None without one."""
    # dlicmd asks for 1 to the length of `task12n`, so the n-th worker counts and not the worker with that number.
    seen = workers_seen(paths)
    return seen[number - 1] if 1 <= number <= len(seen) else None


def last(lines: Sequence[str] | str, count: int | None) -> str:
    """Return the last `count` lines of a text, all of them for None."""
    kept = lines.splitlines() if isinstance(lines, str) else list(lines)
    return "".join(f"{line}\n" for line in (kept if count is None else kept[max(0, len(kept) - count) :]))


def _stream(paths: JobPaths, who: str, kind: str, last_lines: int | None) -> str:
    if kind not in ("stdout", "stderr"):
        raise InvalidRequest(f"There is no log {kind!r}.", hint=f"There are {', '.join(KINDS)}.", field="log")
    return _whole(paths.streams_dir / f"{who}.{kind}", paths.job_dir, last_lines)


def _whole(path: Path, within: Path, last_lines: int | None = None) -> str:
    try:
        with open_regular(path, within=within) as file:
            if last_lines is not None:
                file.seek(_where(file.fileno(), last_lines))
            data = file.read(MOST_LOG + 1)
    except FileNotFoundError:
        return ""
    if len(data) > MOST_LOG:
        raise _too_long()
    return data.decode("utf-8", "replace")


def _too_long() -> TooLarge:
    return TooLarge(
        f"The log is longer than {MOST_LOG >> 20} MiB or {_MOST_LINES:,} lines.",
        hint="Ask for its last lines, or read it page by page by `edt logs` or GET /edt/api/jobs/{id}/logs.",
    )


def _where(descriptor: int, count: int) -> int:
    """Return the offset of the last `count` lines. The file is read backwards, so its length does not matter."""
    end = os.fstat(descriptor).st_size
    at, breaks = end, 0
    while at > 0:
        length = min(_CHUNK, at)
        data = os.pread(descriptor, length, at - length)
        for place in _line_ends(data):
            # The file's last byte ends its last line and does not start another.
            if at - length + place + 1 == end:
                continue
            breaks += 1
            if breaks == count:
                return at - length + place + 1
        at -= length
    return end if count == 0 else 0


def _line_ends(data: bytes) -> Iterable[int]:
    place = data.rfind(b"\n")
    while place >= 0:
        yield place
        place = data.rfind(b"\n", 0, place)
