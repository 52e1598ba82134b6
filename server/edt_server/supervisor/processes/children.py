"""Start the job's processes through the forker, watch their exits through pidfds, reap them, and end them on request.

Each is the leader of its own session and process group. Its stdout and stderr are files that are opened before it
exists, so that its last lines are there however it dies. When the leader has exited, the rest of its group is killed
while the unreaped leader still holds the group's number: a reaped leader's number could already be another group's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edt_sdk.schemas.wire.control import Account
from edt_sdk.schemas.wire.pulse import STACK_SIGNAL
from edt_sdk.schemas.wire.regular import append_regular
from edt_sdk.schemas.wire.zygote import Fork, to_wire
from edt_server.supervisor.processes.forker import Forker, Request
from edt_server.supervisor.processes.orphans import kill_orphans_of, reap_orphans
from edt_server.supervisor.processes.sandbox import JobSandbox

log = logging.getLogger(__name__)

TERM_PATIENCE = 3.0
ORPHAN_TIMEOUT = 5.0
_POLL_INTERVAL = 0.005


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run: `python -u -m <module>` in the job's interpreter.

    Its output goes to `<streams>.stdout` and `.stderr`. It and its descendants hold the descriptors in `inherit` too,
    under other numbers. The kernel kills a `bound` program when this process ends. One that is run `afresh` has a new
    interpreter.
    """

    module: str
    directory: Path
    environment: Mapping[str, str]
    streams: Path
    umask: int = 0o022
    inherit: tuple[int, ...] = ()
    bound: bool = False
    afresh: bool = False


@dataclass(slots=True)
class _Child:
    pid: int
    descriptor: int
    signals: list[int] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    ended: bool = False
    code: int | None = None

    def wait(self) -> int:
        """Reap it when it has exited, and return its exit code."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code


@dataclass(slots=True)
class _Wanted:
    """A process that does not exist yet. `deadline` is the loop's time at which to end it, None for none."""

    request: Request
    deadline: float | None = None


class Children:
    """The processes of a job, by key.

    `on_exit` gets key, exit code (minus the signal's number when a signal ended it) and the signals it was sent from
    here, once for each child, after it was reaped. `before_reap` is awaited when a child has exited and its group is
    killed. Until it returns the pid stays taken. `sandbox` is where they run, None for nowhere.
    """

    def __init__(
        self,
        forker: Forker,
        on_exit: Callable[[int, int, tuple[int, ...]], None],
        before_reap: Callable[[int], Awaitable[None]],
        sandbox: JobSandbox | None = None,
    ) -> None:
        self._forker = forker
        self._sandbox = sandbox
        self._on_exit = on_exit
        self._before_reap = before_reap
        self._wanted: dict[int, _Wanted] = {}
        self._children: dict[int, _Child] = {}
        self._reaping: set[asyncio.Task[None]] = set()

    def start(
        self, key: int, program: Program, on_started: Callable[[int], None], on_failed: Callable[[str], None]
    ) -> None:
        """Start a process as soon as the zygote is ready. `on_started` gets its pid before its first line runs.

        `on_failed` gets a sentence when it cannot be started, perhaps before this method returns.
        """
        if not program.directory.is_dir():
            on_failed(f"The working directory {program.directory} does not exist.")
            return

        def forked(pid: int) -> None:
            wanted = self._wanted.pop(key)
            child = self._children[key] = _Child(pid, os.pidfd_open(pid))
            asyncio.get_running_loop().add_reader(child.descriptor, self._ended, key, child)
            on_started(pid)
            if wanted.deadline is not None:
                self.end(key, max(0.0, wanted.deadline - asyncio.get_running_loop().time()))

        def failed(why: str) -> None:
            del self._wanted[key]
            on_failed(why)

        try:
            descriptors = _descriptors(program, None if self._sandbox is None else self._sandbox.account)
        except OSError as wrong:
            on_failed(f"Its output cannot be written to {program.streams.parent}: {wrong.strerror}.")
            return
        fork = Fork(
            module=program.module,
            environ=to_wire(program.environment),
            directory=str(program.directory),
            umask=program.umask,
            # In a sandbox no process sees its parent. The sandbox itself ends with this process.
            bound=os.getpid() if program.bound and self._sandbox is None else 0,
            afresh=program.afresh,
        )
        request = Request(fork, descriptors, forked, failed)
        self._wanted[key] = _Wanted(request)
        self._forker.fork(request)

    def end(self, key: int, patience: float) -> None:
        """Send SIGTERM after `patience` seconds, and SIGKILL to its whole group 3 s later. An earlier deadline stays.

        A process that waits for the zygote is never started, which is reported as an exit by that SIGTERM.
        """
        if key in self._wanted:
            self._end_wanted(key, self._wanted[key], patience)
            return
        child = self._children.get(key)
        if child is None or child.ended or child.signals:
            return
        _after(patience, child, self._terminate)

    def _end_wanted(self, key: int, wanted: _Wanted, patience: float) -> None:
        loop = asyncio.get_running_loop()
        if self._forker.cancel(wanted.request):
            del self._wanted[key]
            # Later, because the caller is still changing the state that led to this.
            loop.call_soon(self._on_exit, key, -signal.SIGTERM, (int(signal.SIGTERM),))
        else:
            when = loop.time() + patience
            wanted.deadline = when if wanted.deadline is None else min(when, wanted.deadline)

    def kill(self, key: int, patience: float, *, stack: bool = False) -> None:
        """Send SIGKILL to its whole group after `patience` seconds. An earlier deadline stays.

        With `stack` it gets STACK_SIGNAL first. A program without a handler for that signal ends at once.
        """
        child = self._children.get(key)
        if child is None or child.ended or signal.SIGKILL in child.signals:
            return
        if stack:
            child.signals.append(STACK_SIGNAL)
            signal.pidfd_send_signal(child.descriptor, STACK_SIGNAL)
        _after(patience, child, self._kill)

    def leader(self, session: int) -> int | None:
        """Return the key of the child that leads this session, None when it is no child."""
        return next((key for key, child in self._children.items() if child.pid == session), None)

    @property
    def pids(self) -> frozenset[int]:
        """Pids of all children that are not reaped."""
        return frozenset(child.pid for child in self._children.values())

    def reap_orphans(self) -> None:
        """Reap descendants that lost their parents and have ended. Kill them when no process of the job is left."""
        # A process that is being forked is a child of this process with a pid that is not known yet.
        if not self._forker.forking:
            reap_orphans(self.pids | self._forker.pids, kill=not self._children)

    async def end_orphans(self) -> None:
        """Kill and reap descendants that lost their parents, until none is left.

        For the end of a job, and for agents of torchrun jobs, which adopt the orphans of their own processes: an orphan
        that comes to this process belongs to an agent that has exited. Its slots are free only when the orphans, which
        may hold a GPU, are gone.
        """
        deadline = time.monotonic() + ORPHAN_TIMEOUT
        # Only /proc shows when they are gone.
        while self._forker.forking or self._orphans_left():
            if time.monotonic() > deadline:
                log.warning("orphaned processes do not end")
                return
            await asyncio.sleep(_POLL_INTERVAL)

    def _orphans_left(self) -> bool:
        left = reap_orphans(self.pids | self._forker.pids, kill=True)
        sandbox = () if self._sandbox is None else self._sandbox.pids
        return kill_orphans_of(sandbox[-1]) or left if sandbox else left

    def kill_all(self) -> None:
        """Send SIGKILL to every group, the zygote and its heir, and reap, for the end. No callback is called."""
        self._forker.stop()
        self._wanted.clear()
        for child in self._children.values():
            _kill_group(child.pid)
        for child in self._children.values():
            child.wait()

    def _terminate(self, child: _Child) -> None:
        child.signals.append(signal.SIGTERM)
        signal.pidfd_send_signal(child.descriptor, signal.SIGTERM)
        # A stopped process would get SIGTERM only when it continues.
        signal.pidfd_send_signal(child.descriptor, signal.SIGCONT)
        child.timer = asyncio.get_running_loop().call_later(TERM_PATIENCE, self._kill, child)

    def _kill(self, child: _Child) -> None:
        child.signals.append(signal.SIGKILL)
        _kill_group(child.pid)

    def _ended(self, key: int, child: _Child) -> None:
        child.ended = True
        asyncio.get_running_loop().remove_reader(child.descriptor)
        if child.timer is not None:
            child.timer.cancel()
        # Loader processes of a dead worker would keep its output files and its GPU memory.
        _kill_group(child.pid)
        task = asyncio.get_running_loop().create_task(self._reap(key, child), name=f"reap {key}")
        self._reaping.add(task)
        task.add_done_callback(self._reaping.discard)

    async def _reap(self, key: int, child: _Child) -> None:
        # The leader stays unreaped until its last messages are read: the link identifies a process by its session, and
        # the number of a reaped session could be reused.
        await self._before_reap(key)
        code = child.wait()
        os.close(child.descriptor)
        del self._children[key]
        log.info("process ended, process=%d pid=%d code=%d", key, child.pid, code)
        self._on_exit(key, code, tuple(child.signals))


def _descriptors(program: Program, account: Account | None) -> tuple[int, ...]:
    """Open stdout and stderr and copy the descriptors that it inherits. The caller closes all of them."""
    program.streams.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened: list[int] = []
    try:
        for name in ("stdout", "stderr"):
            opened.append(append_regular(program.streams.with_name(f"{program.streams.name}.{name}")))
            if account is not None:
                os.chown(opened[-1], account.uid, account.gid)  # its code may open /dev/stdout
        opened.extend(os.dup(descriptor) for descriptor in program.inherit)
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return tuple(opened)


def _after(patience: float, child: _Child, act: Callable[[_Child], None]) -> None:
    """Call `act` in so many seconds, unless an earlier call is due."""
    loop = asyncio.get_running_loop()
    when = loop.time() + patience
    if child.timer is not None:
        if child.timer.when() <= when:
            return
        child.timer.cancel()
    if patience > 0:
        child.timer = loop.call_at(when, act, child)
    else:
        act(child)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # No process is left, or only a leader that changed its user: it exits by itself or by SIGTERM.
        log.debug("no group %d", pid)
