"""Templates: zygotes of a server or an agent, from which supervisors are forked together with their jobs' zygotes.

So one import of torch serves all jobs of a machine, and its memory is shared (decision 045). A template runs no code of
any job. It ends with its server, and what was forked from it does not. Where no template can serve, a supervisor is
started and starts its own zygote. On a host an outpost is what a supervisor is elsewhere, and both are children of the
agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire import zygote as wire
from edt_sdk.schemas.wire.control import Launch
from edt_server.supervisor.processes.zygote import Zygote, start_zygote
from edt_server.supervisor.programs.environment import start_time_variables, zygote_environment
from edt_server.supervisor.programs.programs import shares_torch
from edt_server.system.detached import command_of, open_log, start_detached
from edt_server.system.processes import identify

log = logging.getLogger(__name__)

# Seconds until a template that imports, or one that was asked, counts as hung.
IMPORT_PATIENCE = 60.0
ANSWER_PATIENCE = 20.0
# Templates of one server. Each keeps some 230 MB, and most servers have jobs of one kind.
MOST = 3
# Those for the trials of one search, the seconds after which one ends when no trial has begun, and those after which it
# makes room for another search.
MOST_OF_SEARCHES, IDLE, ENOUGH = 2, 300.0, 10.0
_SUPERVISOR = "edt_server.supervisor"


@dataclass(frozen=True, slots=True)
class Kind:
    """The interpreter and thread count of the jobs that a template or a spare fits.

    A template of a search's trials has imported what their `script` imports too. The trials have copies of it.
    """

    interpreter: str
    threads: int
    search: str = ""
    script: str = ""

    def same(self, other: Kind) -> bool:
        """Return whether what is made for one kind fits jobs of the other.

        An environment has its Python under several names: a kernel uses `bin/python`, a server started by a script
        `bin/python3.11`. The target of the link is not enough, because all environments may share one Python.
        """
        own = self.threads, self.search, _names(self.interpreter)
        return own == (other.threads, other.search, _names(other.interpreter))


class TemplateChild:
    """A supervisor or a branch that a template has forked and reaps, with the methods of `Popen` that its starters use.

    ProcessLookupError when it has ended already.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = os.pidfd_open(pid)
        weakref.finalize(self, os.close, self._ended)
        self.identity = identify(pid)

    def poll(self) -> int | None:
        """Return None while it runs, else its exit code, which only its parent learns. Elsewhere it is 0."""
        return self._wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return when it has ended. `subprocess.TimeoutExpired` after that many seconds."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(_SUPERVISOR, timeout or 0.0)
        return code

    def kill(self) -> None:
        """Send it SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._ended, number)

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and _readable(timeout, self._ended):
            code = 0
            with contextlib.suppress(ChildProcessError):  # the child of a template, or reaped as an orphan
                ended = os.waitid(os.P_PIDFD, self._ended, os.WEXITED)
                if ended is not None:
                    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            self.returncode = code
        return self.returncode


class Template(Zygote):
    """A template, which imports from now on. For the event loop, except `fork` and `branch`.

    Attributes:
        heard: it is ready, or will never be.
        gone: it has ended and was reaped.
        used: when `close_after` was called last, by the clock of the event loop.
    """

    def __init__(
        self,
        kind: Kind,
        pid: int,
        connection: socket.socket,
        said: int,
        reap: Callable[[], int],
        *,
        adopts: bool = False,
    ) -> None:
        super().__init__(pid, connection, said, reap)
        self.kind = kind
        self._adopts = adopts
        self.heard = asyncio.Event()
        self.gone = False
        self.used = 0.0
        self._asking = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._closing: asyncio.TimerHandle | None = None
        self._loop.add_reader(self.socket, self._import)
        self._loop.add_reader(self.ended, self.close)
        log.info("template started, pid=%d interpreter=%s threads=%d", self.pid, kind.interpreter, kind.threads)

    def serves(self, kind: Kind) -> bool:
        """Return whether it answers, fits these jobs, and has not imported files that were replaced."""
        files = {} if self.ready is None else self.ready.files
        return (
            not self.silent and self.kind.same(kind) and all(wire.stamp(path) == seen for path, seen in files.items())
        )

    @property
    def forks(self) -> bool:
        """Whether it has imported everything and is of a version that can fork what it is for."""
        ready = None if self.silent else self.ready
        return ready is not None and (ready.adopted if self._adopts else ready.families)

    def fork(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        log: Path,
        environ: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
        program: Sequence[str] = (_SUPERVISOR,),
    ) -> TemplateChild | None:
        """Fork a supervisor and its zygote, once it `forks`. None when that fails. Blocks, in any thread.

        The supervisor runs `program`, a module and what comes before all arguments.
        """
        module, *first = program
        family = wire.Family(
            command=(*command_of(module), *first),
            arguments=tuple(arguments),
            environ=wire.to_wire(environ),
            directory=str(folder),
        )
        request = wire.ADOPTED if self._adopts else wire.FAMILY
        said = open_log(log)
        try:
            with open(os.devnull, "rb") as nothing:
                given = nothing.fileno() if stdin == subprocess.DEVNULL else stdin
                return self._forked(lambda gate: self.ask_for_family(family, gate, given, said, request=request))
        finally:
            os.close(said)

    def branch(self, script: str) -> tuple[int, socket.socket, int, Callable[[], int]] | None:
        """Fork a zygote that goes on to import for a script. Return what `Zygote` takes, None when that fails.

        Blocks, in any thread.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        said = os.memfd_create("zygote-output", os.MFD_CLOEXEC)
        with theirs:
            forked = self._forked(lambda gate: self.ask_for_branch(script, gate, theirs.fileno(), said))
        if forked is None:
            ours.close()
            os.close(said)
            return None
        return forked.pid, ours, said, forked.wait

    def _forked(self, ask: Callable[[int], None]) -> TemplateChild | None:
        with self._asking, contextlib.ExitStack() as stack:
            if self.gone:
                return None
            # What is forked ends at its gate when this request fails, whatever became of the template.
            gate, opens = os.pipe()
            stack.callback(os.close, opens)
            try:
                ask(gate)
            finally:
                os.close(gate)
            # What it has forked may hold its socket open, so its death shows by its pidfd only.
            _readable(ANSWER_PATIENCE, self.socket.fileno(), self.ended)
            match self.hear():
                case wire.Forked(pid=pid):
                    with contextlib.suppress(ProcessLookupError, BrokenPipeError):
                        forked = TemplateChild(pid)
                        os.write(opens, wire.PASS)
                        return forked
                case wire.NotForked(why=why):
                    log.warning("the template could not fork, pid=%d: %s", self.pid, why)
                case _:
                    self._kill()
            return None

    def hear(self) -> wire.Answer | None:
        """Return the next answer, see `Zygote.hear`. What is no answer counts as the last one."""
        try:
            return super().hear()
        except msgspec.MsgspecError:
            self.silent = True
            return None

    def close(self) -> None:
        """End it and reap it. What was forked from it stays."""
        if self.gone:
            return
        if self._closing is not None:
            self._closing.cancel()
        self._loop.remove_reader(self.socket)
        self._loop.remove_reader(self.ended)
        self._kill()  # before the lock: whichever thread waits for an answer sees the end
        with self._asking:
            self.gone = True
            code, words = self.end(), self.words()
            self.forget()
        log.info("template ended, pid=%d code=%d\n%s", self.pid, code, words)
        self.heard.set()

    def close_after(self, seconds: float) -> None:
        """End it so many seconds after the last call of this."""
        if self._closing is not None:
            self._closing.cancel()
        self._closing = self._loop.call_later(seconds, self.close)
        self.used = self._loop.time()

    def _import(self) -> None:
        self.hear()
        if self.silent:
            self._kill()
        if self.silent or self.ready is not None:
            self._loop.remove_reader(self.socket)
            self.heard.set()

    def _kill(self) -> None:
        self.silent = True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.ended, signal.SIGKILL)


class Templates:
    """The templates of a server, one for each kind of job, the one used last at the end. For the event loop.

    An agent `adopts` what is forked from them: it is the next process above that adopts orphans, so supervisors become
    its children, which the kernel kills with it. Each template ends when it was not used for `idle` seconds, None for
    never.

    The trials of a search have one of their own, which has imported what their script imports from installed modules:
    a search starts the same script many times, and such imports may take longer than a trial.
    """

    def __init__(self, environ: Mapping[str, str], *, adopts: bool = False, idle: float | None = None) -> None:
        self._environ = environ
        self._adopts = adopts
        self._idle = idle
        self._templates: list[Template] = []
        self._of_searches: dict[str, Template | None] = {}
        self._branching: set[asyncio.Task[None]] = set()
        self._stopped = False

    @property
    def pids(self) -> set[int]:
        """The processes of the templates of all jobs."""
        return {each.pid for each in self._templates if not each.gone}

    def use(self) -> None:
        """Keep them for another `idle` seconds."""
        for each in self._templates:
            if self._idle is not None and not each.gone:
                each.close_after(self._idle)

    async def of_job(self, orders: Launch) -> Template | None:
        """Return a template, ready, for this job. None for a cold start."""
        if start_time_variables(orders.spec.env) or not shares_torch(orders.spec):
            return None
        return await self.ready(Kind(orders.interpreter, orders.threads_per_slot))

    async def ready(self, kind: Kind) -> Template | None:
        """Return a template for such jobs when it has imported everything, None when there is none.

        It is started if necessary.
        """
        known = [each for each in self._templates if not each.gone]
        found = next((each for each in known if each.serves(kind)), None)
        if found is None and not self._stopped:
            found = self._begin(kind)
        if found is None:
            return None
        others = [each for each in known if not each.kind.same(kind)]
        self._templates = [*others, found][-MOST:]
        for each in known:
            if each not in self._templates:
                each.close()
        self.use()
        try:
            async with asyncio.timeout(IMPORT_PATIENCE):
                await found.heard.wait()
        except TimeoutError:
            found.close()
        # A template of a version that cannot fork families stays, so that it is not started for every job.
        return found if found.forks else None

    def of_search(self, kind: Kind) -> Template | None:
        """Return the template of a search's trials once it has imported everything, None before and where it cannot.

        It is forked from the template of all jobs, and the first trials do not wait for it. When no trial has begun for
        a while it ends, and the next ones do without.
        """
        if kind.search not in self._of_searches:
            if self._room_for_search() and not self._stopped:
                self._of_searches[kind.search] = None
                task = asyncio.create_task(self._branch(kind), name=f"edt template of {kind.search}")
                self._branching.add(task)
                task.add_done_callback(self._branching.discard)
            return None
        found = self._of_searches[kind.search]
        if found is None or found.ready is None or not found.serves(kind):
            return None
        found.close_after(IDLE)
        return found

    def _room_for_search(self) -> bool:
        """Return whether another search may have a template. The one unused longest ends for it, if that is a while.

        It may be that of a search that has ended, or whose trials take so long that it makes no difference.
        """
        living = [each for each in self._of_searches.values() if each is not None and not each.gone]
        if len(living) + len(self._branching) < MOST_OF_SEARCHES:
            return True
        oldest = min(living, key=lambda each: each.used, default=None)
        if oldest is None or asyncio.get_running_loop().time() - oldest.used < ENOUGH:
            return False
        oldest.close()
        del self._of_searches[oldest.kind.search]
        return True

    async def _branch(self, kind: Kind) -> None:
        plain = await self.ready(replace(kind, search="", script=""))
        if plain is None or plain.ready is None or not plain.ready.branches:
            return
        made = await asyncio.to_thread(plain.branch, kind.script)
        if made is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                branch = self._of_searches[kind.search] = Template(kind, *made)
                branch.close_after(IDLE)

    def _begin(self, kind: Kind) -> Template | None:
        try:
            started = start_zygote(kind.interpreter, zygote_environment(self._environ, kind.threads))
            return Template(kind, *started, adopts=self._adopts)
        except OSError as wrong:
            log.warning("no template: %s", wrong)
            return None

    def let_go(self) -> None:
        """Start no template any more, and wait for none that imports."""
        self._stopped = True
        for each in self._templates:
            each.heard.set()

    def stop(self) -> None:
        """End them."""
        self.let_go()
        for task in self._branching:
            task.cancel()  # one that was forked in the meantime ends with its socket, which nobody has
        for each in (*self._templates, *self._of_searches.values()):
            if each is not None:
                each.close()


def start_supervisor(
    arguments: Sequence[str],
    template: Template | None,
    *,
    folder: Path,
    log: Path,
    environ: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes] | TemplateChild:
    """Start a detached supervisor, forked from the template if there is one that serves. See `start_detached`."""
    forked = template and template.fork(arguments, folder=folder, log=log, environ=environ, stdin=stdin)
    return forked or start_detached(_SUPERVISOR, arguments, folder=folder, log=log, environ=environ, stdin=stdin)


def _names(interpreter: str) -> tuple[str, str]:
    return os.path.realpath(os.path.dirname(interpreter)), os.path.realpath(interpreter)


def _readable(timeout: float | None, *descriptors: int) -> bool:
    """Return whether one of them is readable, after `timeout` seconds at most. `select` takes no numbers above 1023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))
