"""The processes below an agent: supervisors and outposts, how they are started, watched and reaped.

Messages between an outpost and its supervisor pass through here unread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import msgspec

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import Launch, ProcessIdentity
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.agent.guard import STOPPED_PATIENCE, state_of
from edt_server.supervisor.processes.orphans import reap_orphans
from edt_server.supervisor.template import TemplateChild, Templates
from edt_server.system.detached import start_detached
from edt_server.system.processes import identify

log = logging.getLogger(__name__)

END_PATIENCE = 5.0
# Seconds after the last process of a job, after which templates end. People submit again within the hour.
TEMPLATE_IDLE = 3600.0
MAX_LINE = 32 << 20


@dataclass(slots=True, eq=False)
class _Process:
    """A supervisor, or an outpost where `writer` is set, of an attempt of a job. `stopped` is since when it is."""

    process: subprocess.Popen[bytes] | TemplateChild
    job: str
    attempt: int
    peer: bytes = b""
    writer: asyncio.StreamWriter | None = None
    stopped: float | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class ProcessesBelow:
    """All that an agent has started. `ended` is called with a supervisor's job, attempt and exit code.

    Attributes:
        templates: those that supervisors and outposts are forked from.
    """

    def __init__(self, host: str, ended: Callable[[str, int, int], None]) -> None:
        self._host = host
        self._ended = ended
        self.templates = Templates(os.environ, adopts=True, idle=TEMPLATE_IDLE)
        self._running: dict[int, _Process] = {}
        self._outposts: dict[str, _Process] = {}
        self._starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def attempts(self) -> Iterator[wire.Below]:
        """Yield what runs."""
        for each in self._running.values():
            yield wire.Below(job=each.job, attempt=each.attempt, supervises=not each.peer)

    # --- supervisors --------------------------------------------------------------------------------------------------

    async def start_supervisor(self, launch: Launch, paths: JobPaths) -> None:
        """Start the supervisor that follows these orders, which are on disk. OSError when that is not possible."""
        async with self._lock(launch.job_id):
            process = await self._start("supervisor", [str(paths.launch_file)], launch, paths)
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
        async with self._lock(job):
            # One outpost per job: the former serves an earlier conversation or attempt, and may still have workers.
            while job in self._outposts:
                await self.end_outpost(job)
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    orders = wire.encode(order).decode(), msgspec.json.encode(launch).decode(), self._host
                    process = await self._start("outpost", orders, launch, paths, theirs.fileno())
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
        say(wire.encode(wire.OutpostEnded(code=process.returncode or 0)))

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
        outpost.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_PATIENCE):
                await outpost.gone.wait()
        except TimeoutError:
            outpost.process.kill()
            await outpost.gone.wait()
        await asyncio.sleep(0)

    async def end_attempt(self, job: str, attempt: int, patience: float) -> None:
        """End what is left of an attempt, or an older one. Workers have so long to write what only they have."""
        async with self._lock(job):
            pass  # what is being started
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
        if self._running:
            self.templates.use()
        for pid, each in list(self._running.items()):
            code = each.process.poll()
            if code is not None:
                del self._running[pid]
                log.info("process below ended, job=%s pid=%d code=%d", each.job, pid, code)
                each.gone.set()
                if not each.peer:
                    self._ended(each.job, each.attempt, code)
        reap_orphans(self._running.keys() | self.templates.pids, kill=False)

    def idle(self) -> bool:
        """Return whether nothing but templates runs below this process."""
        return not self._running and not reap_orphans(self.templates.pids, kill=False)

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

    def _lock(self, job: str) -> asyncio.Lock:
        """Return what is held while a process of the job is started, so that its end is not overlooked."""
        return self._starting.setdefault(job, asyncio.Lock())

    async def _start(
        self, program: str, arguments: Sequence[str], launch: Launch, paths: JobPaths, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes] | TemplateChild:
        """Start a process below this one. It is forked from a template where that is possible (decision 045)."""
        module, *first = "edt_server.agent", "below", str(os.getpid()), program
        environ = os.environ  # what the server, or who has started the agent, passed on
        folder, log_file = paths.job_dir, paths.supervisor_log
        template = await self.templates.of_job(launch)
        if template is not None:
            fork = functools.partial(template.fork, program=(module, *first), stdin=stdin)
            forked = await asyncio.to_thread(fork, arguments, folder=folder, log=log_file, environ=environ)
            if forked is not None:
                return forked
        # By this thread: the kernel kills what a thread has started when that thread ends (`guard.die_with`).
        return start_detached(module, [*first, *arguments], folder=folder, log=log_file, environ=environ, stdin=stdin)
