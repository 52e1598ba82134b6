"""The processes below an agent: supervisors and outposts, how they are started, watched and reaped.

Messages between an outpost and its supervisor pass through here unread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import Launch, ProcessIdentity
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.agent.guard import STOPPED_PATIENCE, state_of
from edt_server.supervisor.processes.orphans import reap_orphans
from edt_server.system.detached import start_detached
from edt_server.system.processes import identify

log = logging.getLogger(__name__)

END_PATIENCE = 5.0
MAX_LINE = 32 << 20


@dataclass(slots=True, eq=False)
class _Process:
    """A supervisor, or an outpost where `writer` is set, of an attempt of a job. `stopped` is since when it is."""

    process: subprocess.Popen[bytes]
    job: str
    attempt: int
    peer: bytes = b""
    writer: asyncio.StreamWriter | None = None
    stopped: float | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class ProcessesBelow:
    """All that an agent has started. `ended` is called with a supervisor's job, attempt and exit code."""

    def __init__(self, host: str, ended: Callable[[str, int, int], None]) -> None:
        self._host = host
        self._ended = ended
        self._running: dict[int, _Process] = {}
        self._outposts: dict[str, _Process] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def attempts(self) -> Iterator[wire.Below]:
        """Yield what runs."""
        for each in self._running.values():
            yield wire.Below(job=each.job, attempt=each.attempt, supervises=not each.peer)

    # --- supervisors --------------------------------------------------------------------------------------------------

    def start_supervisor(self, launch: Launch, paths: JobPaths) -> None:
        """Start the supervisor that follows these orders, which are on disk. OSError when that is not possible."""
        process = self._popen(paths, ["supervisor", str(paths.launch_file)], subprocess.DEVNULL)
        self._running[process.pid] = _Process(process, launch.job_id, launch.attempt)
        log.info("supervisor started, job=%s attempt=%d pid=%d", launch.job_id, launch.attempt, process.pid)

    def supervisor(self, job: str, attempt: int) -> ProcessIdentity | None:
        """Return the supervisor of an attempt, None when it has ended."""
        for pid, each in self._running.items():
            if (each.job, each.attempt, each.peer) == (job, attempt, b""):
                with contextlib.suppress(ProcessLookupError):
                    return identify(pid)
        return None

    # --- outposts -----------------------------------------------------------------------------------------------------

    async def run_outpost(
        self,
        order: wire.StartOutpost,
        launch: Launch,
        paths: JobPaths,
        peer: bytes,
        say: Callable[[bytes], None],
    ) -> None:
        """Start an outpost in place of the job's former one, and pass on to `say` what it says until it has ended."""
        job = launch.job_id
        # One outpost per job: the former serves an earlier conversation or attempt, and may still have workers.
        while job in self._outposts:
            await self.end_outpost(job)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                orders = wire.encode(order).decode(), msgspec.json.encode(launch).decode()
                process = self._popen(paths, ["outpost", *orders, self._host], theirs.fileno())
        except OSError as wrong:
            ours.close()
            say(wire.encode(wire.OutpostStarted(pid=0, why=str(wrong))))
            return
        outpost = self._outposts[job] = self._running[process.pid] = _Process(process, job, order.attempt, peer)
        reader, outpost.writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_LINE)
        log.info("outpost started, job=%s pid=%d", job, process.pid)
        say(wire.encode(wire.OutpostStarted(pid=process.pid)))
        # Until it has exited and all its output is read.
        with contextlib.suppress(ConnectionError, ValueError):
            while (line := await reader.readline()).endswith(b"\n"):
                say(line[:-1])
        await outpost.gone.wait()
        outpost.writer.close()
        if self._outposts.get(job) is outpost:
            del self._outposts[job]
        say(wire.encode(wire.OutpostEnded(code=process.returncode)))

    def serves(self, job: str, peer: bytes) -> bool:
        """Return whether the job's outpost is this peer's."""
        outpost = self._outposts.get(job)
        return outpost is not None and outpost.peer == peer and outpost.writer is not None

    def tell(self, job: str, data: bytes) -> None:
        """Pass on a message to the job's outpost. Only while `serves`."""
        writer = self._outposts[job].writer
        assert writer is not None
        writer.write(data + b"\n")

    async def end_outpost(self, job: str) -> None:
        """End the job's outpost and its workers, and return when they are gone."""
        outpost = self._outposts.get(job)
        if outpost is None:
            return
        outpost.process.terminate()
        try:
            async with asyncio.timeout(END_PATIENCE):
                await outpost.gone.wait()
        except TimeoutError:
            outpost.process.kill()
            await outpost.gone.wait()
        await asyncio.sleep(0)

    async def end_attempt(self, job: str, attempt: int, patience: float) -> None:
        """End what is left of an attempt, or an older one. Workers have so long to write what only they have."""
        outpost = self._outposts.get(job)
        if outpost is not None and outpost.attempt <= attempt:
            outpost.process.send_signal(signal.SIGUSR1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await outpost.gone.wait()
            await self.end_outpost(job)
        for each in tuple(self._running.values()):
            if each.job == job and each.attempt <= attempt and not each.peer:
                each.process.kill()

    # --- all ----------------------------------------------------------------------------------------------------------

    def reap(self) -> None:
        """Reap what has ended. Workers without a supervisor exit by themselves."""
        for pid, each in list(self._running.items()):
            if each.process.poll() is not None:
                del self._running[pid]
                log.info("process below ended, job=%s pid=%d code=%d", each.job, pid, each.process.returncode)
                each.gone.set()
                if not each.peer:
                    self._ended(each.job, each.attempt, each.process.returncode)
        reap_orphans(self._running.keys(), kill=False)

    def idle(self) -> bool:
        """Return whether nothing runs below this process."""
        return not self._running and not reap_orphans((), kill=False)

    def kill_stopped(self) -> None:
        """Kill what has been stopped for too long."""
        now = time.monotonic()
        for each in self._running.values():
            if state_of(each.process.pid) not in ("T", "t"):
                each.stopped = None
            elif each.stopped is None:
                each.stopped = now
            elif now - each.stopped > STOPPED_PATIENCE:
                log.warning("process %d was stopped: killed", each.process.pid)
                each.process.kill()

    def _popen(self, paths: JobPaths, arguments: list[str], stdin: int) -> subprocess.Popen[bytes]:
        return start_detached(
            "edt_server.agent",
            ["below", str(os.getpid()), *arguments],
            folder=paths.job_dir,
            log=paths.supervisor_log,
            environ=os.environ,  # what the server, or who has started the agent, passed on
            stdin=stdin,
        )
