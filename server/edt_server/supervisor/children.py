"""Starts the job's processes, notices their end through pidfds, reaps them, and ends them when told.

Each is the leader of its own session and process group; its stdout and stderr are files that are opened before it
starts, so that its last words are there however it dies. When the leader has ended, the rest of its group is killed
while the unreaped leader still holds the group's number.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edt_sdk.schemas.errors import Unprocessable

log = logging.getLogger(__name__)

TERM_PATIENCE = 3.0


@dataclass(frozen=True, slots=True)
class Program:
    """What to run: `streams` is the path of the stream files without ".stdout" and ".stderr"."""

    arguments: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    streams: Path
    umask: int = 0o022


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    descriptor: int
    signals: list[int] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    ended: bool = False


class Children:
    """The processes of one job, by key.

    Args:
        on_exit: called with key, exit code (minus the signal's number when a signal ended it) and the signals it was
            sent from here, once for each child, after it was reaped.
        before_reap: awaited when a child has ended and its group is killed; until it returns the pid stays taken.
    """

    def __init__(
        self,
        on_exit: Callable[[int, int, tuple[int, ...]], None],
        before_reap: Callable[[int], Awaitable[None]],
    ) -> None:
        self._on_exit = on_exit
        self._before_reap = before_reap
        self._children: dict[int, _Child] = {}
        self._reaping: set[asyncio.Task[None]] = set()

    def start(self, key: int, program: Program) -> int:
        """Start a process and return its pid; Unprocessable when it cannot be started."""
        if not program.directory.is_dir():
            raise Unprocessable(f"The working directory {program.directory} does not exist.")
        program.streams.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stdout = _open_stream(program.streams, "stdout")
        stderr = _open_stream(program.streams, "stderr")
        try:
            process = subprocess.Popen(
                list(program.arguments),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=program.directory,
                env=dict(program.environment),
                close_fds=True,
                start_new_session=True,
                umask=program.umask,
            )
        except OSError as wrong:
            raise Unprocessable(
                f"{program.arguments[0]} cannot be run: {wrong.strerror}.",
                hint="The job's Python must exist on this machine and have jupyter-edt installed.",
            ) from wrong
        finally:
            os.close(stdout)
            os.close(stderr)
        child = _Child(process, os.pidfd_open(process.pid))
        self._children[key] = child
        asyncio.get_running_loop().add_reader(child.descriptor, self._ended, key, child)
        return process.pid

    def end(self, key: int, patience: float) -> None:
        """SIGTERM after `patience` seconds, SIGKILL to its whole group 3 s later; a nearer deadline stays."""
        child = self._children.get(key)
        if child is None or child.ended or child.signals:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + patience
        if child.timer is not None and child.timer.when() <= when:
            return
        if child.timer is not None:
            child.timer.cancel()
        if patience > 0:
            child.timer = loop.call_at(when, self._terminate, child)
        else:
            self._terminate(child)

    def leader(self, session: int) -> int | None:
        """The key of the child that leads this session, None when it is none of ours."""
        return next((key for key, child in self._children.items() if child.process.pid == session), None)

    @property
    def pids(self) -> frozenset[int]:
        """Pids of all children that are not reaped."""
        return frozenset(child.process.pid for child in self._children.values())

    def kill_all(self) -> None:
        """SIGKILL to every group at once, and reap: for an exit in trouble. Calls nobody back."""
        for child in self._children.values():
            _kill_group(child.process.pid)
        for child in self._children.values():
            child.process.wait()

    def _terminate(self, child: _Child) -> None:
        child.signals.append(signal.SIGTERM)
        signal.pidfd_send_signal(child.descriptor, signal.SIGTERM)
        # A stopped process would keep SIGTERM for later.
        signal.pidfd_send_signal(child.descriptor, signal.SIGCONT)
        child.timer = asyncio.get_running_loop().call_later(TERM_PATIENCE, self._kill, child)

    def _kill(self, child: _Child) -> None:
        child.signals.append(signal.SIGKILL)
        _kill_group(child.process.pid)

    def _ended(self, key: int, child: _Child) -> None:
        child.ended = True
        asyncio.get_running_loop().remove_reader(child.descriptor)
        if child.timer is not None:
            child.timer.cancel()
        _kill_group(child.process.pid)
        task = asyncio.get_running_loop().create_task(self._reap(key, child), name=f"reap {key}")
        self._reaping.add(task)
        task.add_done_callback(self._reaping.discard)

    async def _reap(self, key: int, child: _Child) -> None:
        await self._before_reap(key)
        code = child.process.wait()
        os.close(child.descriptor)
        del self._children[key]
        log.info("process ended, process=%d pid=%d code=%d", key, child.process.pid, code)
        self._on_exit(key, code, tuple(child.signals))


def _open_stream(streams: Path, name: str) -> int:
    return os.open(f"{streams}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # Nobody is left, or only a leader that changed its user: it ends by itself or by SIGTERM.
        log.debug("no group %d", pid)
