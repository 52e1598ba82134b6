"""Provide a zygote whenever one is needed: started early, asked to fork, and replaced by its heir when it dies.

Requests wait until the zygote has imported everything, and one runs at a time. A forked process waits at its gate, a
pipe, until this class has recorded its pid. So it can be neither reaped nor killed as a stranger, and the link
knows it when it connects. When no request waits, the zygote forks an heir: a second zygote that does nothing until the
first has died and this class turns to it. So whichever of the two dies, the other has imported everything. Starting a
new zygote after a death would be simpler, but costs the next worker the import of torch, seconds on a busy machine,
exactly when a failed worker has to be replaced (decision 011).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.wire import zygote as wire
from edt_sdk.schemas.wire.regular import append_regular
from edt_server.supervisor.processes.sandbox import JobSandbox
from edt_server.supervisor.processes.zygote import Zygote, ZygoteProcess
from edt_server.supervisor.state_machines import wording

log = logging.getLogger(__name__)

# A zygote, its heir, and a new one: a request that none of them survives is what kills them.
_TRIES = 3
# How many zygotes and heirs may die between two programs and still be replaced before the next request: where
# something kills them all, endless replacements would only take the cores from the workers that train.
_MOST_LOST = 8


@dataclass(slots=True, eq=False)
class Request:
    """A request for a program, or, without `fork`, for an heir.

    The descriptors are a program's stdout, stderr and what it inherits, or an heir's socket. They are closed when the
    request is done. `on_forked` gets the pid while the process waits at the gate, which opens when this returns.
    `on_failed` gets a sentence when there will be no such process.
    """

    fork: wire.Fork | None
    descriptors: tuple[int, ...]
    on_forked: Callable[[int], None]
    on_failed: Callable[[str], None]
    tries: int = 0

    def close(self) -> None:
        """Close its descriptors."""
        for descriptor in self.descriptors:
            os.close(descriptor)


class Forker:
    """The zygote of a job, its heir, and the requests to it.

    `zygote` is one that was started before. When a zygote could not start, its output is written to `zygote.stderr` in
    the folder `streams`. `needed` is called when a zygote has died without an heir. It returns True when the job may
    need processes soon, so that the zygote is replaced at once and not at the next request. Programs run in the
    `sandbox`. Zygotes and heirs, which run no code of the job, do not.
    """

    def __init__(
        self,
        interpreter: str,
        environment: Mapping[str, str],
        streams: Path,
        zygote: Zygote | None = None,
        *,
        needed: Callable[[], bool] = lambda: True,
        sandbox: JobSandbox | None = None,
    ) -> None:
        self._interpreter = interpreter
        self._environment = environment
        self._streams = streams
        self.zygote = zygote
        self._needed = needed
        self._sandbox = sandbox
        self._watched = False
        self.heir: Zygote | None = None
        self._no_heir = False
        self._lost = 0
        self._waiting: deque[Request] = deque()
        self._asked: Request | None = None
        self._gate = -1

    @property
    def pids(self) -> frozenset[int]:
        """The pids of zygote, heir and sandbox, as far as they exist."""
        sandbox = () if self._sandbox is None else self._sandbox.pids
        return frozenset((*(each.pid for each in (self.zygote, self.heir) if each is not None), *sandbox))

    @property
    def forking(self) -> bool:
        """True while there may be a process with a pid that is not known here yet."""
        return self._asked is not None

    def fork(self, request: Request) -> None:
        """Fork this process as soon as possible."""
        self._waiting.append(request)
        self._go_on()

    def cancel(self, request: Request) -> bool:
        """Remove a request. Return False when it is too late, because it is running or done."""
        if request not in self._waiting:
            return False
        self._waiting.remove(request)
        request.close()
        return True

    def stop(self) -> None:
        """End the zygote and its heir, and drop all requests. No callback is called but an heir's."""
        asked, self._asked = self._asked, None
        for request in (*self._waiting, *([asked] if asked else [])):
            request.close()
        self._waiting.clear()
        self._close_gate()
        if asked is not None and asked.fork is None:
            asked.on_failed("It is not needed any more.")
        if self.heir is not None:
            self._end_heir(self.heir)
        if self.zygote is not None:
            self._unwatch(self.zygote)
            self.zygote.end()
            self.zygote.forget()
            self.zygote = None

    # --- requests -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        while self._asked is None:
            if self._waiting and not self._start():
                return
            zygote = self.zygote
            if zygote is None or zygote.ready is None:
                return
            if self._waiting:
                self._ask_for_program(zygote, zygote.ready, self._waiting.popleft())
            elif self.heir is None and not self._no_heir and self._lost < _MOST_LOST:
                # After all requests: an heir only matters when the zygote dies.
                self._ask(zygote, self._heir_of(zygote))
            else:
                return

    def _start(self) -> bool:
        """Start a zygote if there is none. When that fails, fail all requests and return False."""
        if self.zygote is None:
            try:
                self.zygote = ZygoteProcess(self._interpreter, self._environment)
            except OSError as wrong:
                hint = "The job's Python must exist on this machine and have jupyter-edt installed."
                self._fail_all(f"{self._interpreter} cannot be run: {wrong.strerror}. {hint}")
                return False
        if not self._watched:
            self._watch(self.zygote)
        return True

    def _ask_for_program(self, zygote: Zygote, ready: wire.Ready, request: Request) -> None:
        try:
            namespaces = () if self._sandbox is None else self._sandbox.namespaces(ready.places)
        except (EdtError, OSError) as wrong:
            request.close()
            request.on_failed(str(wrong))
        else:
            self._ask(zygote, request, namespaces)

    def _ask(self, zygote: Zygote, request: Request, namespaces: Sequence[int] = ()) -> None:
        request.tries += 1
        self._asked = request
        # A pipe per request: a process of a dead zygote reads the end of its own pipe, not the permission of a later
        # request.
        gate, self._gate = os.pipe()
        try:
            if request.fork is None:
                zygote.ask_for_heir(gate, *request.descriptors)
            else:
                account = None if self._sandbox is None else self._sandbox.account
                zygote.ask(request.fork, gate, request.descriptors, namespaces, account)
        finally:
            os.close(gate)

    def _heir_of(self, zygote: Zygote) -> Request:
        # A socket of its own. On a shared one it would be unknown after the zygote's death whether it had read a
        # request (decision 011).
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def forked(pid: int) -> None:
            heir = self.heir = zygote.heir(pid, ours)
            asyncio.get_running_loop().add_reader(heir.ended, self._heir_died, heir)
            log.info("heir of the zygote forked, pid=%d", pid)

        def failed(why: str) -> None:
            ours.close()
            log.warning("no heir for the zygote: %s", why)

        return Request(None, (theirs.detach(),), forked, failed)

    def _heard(self, zygote: Zygote) -> None:
        match zygote.hear():
            case None if zygote.silent:
                # `_died` sees its exit. Until then the closed socket would stay readable and busy the loop.
                asyncio.get_running_loop().remove_reader(zygote.socket)
                os.kill(zygote.pid, signal.SIGKILL)
            case wire.Ready():
                log.info("zygote ready, pid=%d", zygote.pid)
                if words := zygote.words():
                    log.info("it said: %s", words)
            case wire.Forked(pid=pid):
                self._forked(pid)
            case wire.NotForked(why=why):
                request = self._done()
                # An heir is not tried again before the system could create a process.
                self._no_heir |= request.fork is None
                request.on_failed(f"The system could not make another process ({why}). Free memory or processes.")
        self._go_on()

    def _forked(self, pid: int) -> None:
        request = self._asked
        assert request is not None, "answers come in the order of requests"
        # While it waits at the gate it is a recorded child: only after this callback may orphans be looked for again.
        # Without the gate it could exit first, and `reap_orphans` would take it for an orphan and lose its exit code.
        request.on_forked(pid)
        with contextlib.suppress(BrokenPipeError):  # it was killed in the meantime
            os.write(self._gate, wire.PASS)
        self._done()
        if request.fork is not None:
            # The system can create processes, and nothing kills them all.
            self._no_heir, self._lost = False, 0

    def _done(self) -> Request:
        request, self._asked = self._asked, None
        assert request is not None, "answers come in the order of requests"
        self._close_gate()
        request.close()
        return request

    def _close_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def _fail_all(self, why: str) -> None:
        failed = list(self._waiting)
        self._waiting.clear()
        for request in failed:
            request.close()
        for request in failed:
            request.on_failed(why)

    # --- deaths -------------------------------------------------------------------------------------------------------

    def _died(self, zygote: Zygote) -> None:
        while zygote.hear() is not None:
            pass  # an answer that outlived its zygote: the process it names never passes its gate
        self._unwatch(zygote)
        self._lost += 1
        code, words = zygote.end(), zygote.words()
        zygote.forget()
        log.warning("zygote ended, pid=%d code=%d\n%s", zygote.pid, code, words)
        self.zygote = None
        asked, self._asked = self._asked, None
        # What it may have forked for the request reads the end of its gate and exits, so the request can be repeated.
        self._close_gate()
        self._promote_heir()
        if asked is not None:
            self._ask_again(asked, code)
        # A zygote that was killed while it imports is worth another try. One that failed by itself would fail again.
        if zygote.ready is None and (code != -signal.SIGKILL or self._lost >= _MOST_LOST):
            self._could_not_start(code, words)
        elif self.zygote is None and self._lost < _MOST_LOST and self._needed():
            self._start()
        self._go_on()

    def _promote_heir(self) -> None:
        heir, self.heir = self.heir, None
        if heir is not None:
            log.info("the zygote's heir takes its place, pid=%d", heir.pid)
            asyncio.get_running_loop().remove_reader(heir.ended)
            self.zygote = heir
            self._watch(heir)

    def _ask_again(self, asked: Request, code: int) -> None:
        if asked.fork is not None and asked.tries < _TRIES:
            # To the front: it was asked for before all that wait.
            self._waiting.appendleft(asked)
            return
        asked.close()
        if asked.fork is None:
            asked.on_failed(f"the zygote {wording.how_it_ended(code)}")
        else:
            asked.on_failed(f"The process that it is forked from {wording.how_it_ended(code)}, {_TRIES} times.")

    def _could_not_start(self, code: int, words: str) -> None:
        if words:
            self._streams.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(append_regular(self._streams / "zygote.stderr"), "w") as file:
                file.write(words)
        last = wording.LastLines("zygote.stderr", wording.text_tail(words)) if words else None
        self._fail_all(wording.never_spoke("The job's Python", self._interpreter, code, last))

    def _heir_died(self, heir: Zygote) -> None:
        self._lost += 1
        log.warning("heir of the zygote ended, pid=%d code=%d", heir.pid, self._end_heir(heir))
        self._go_on()

    def _end_heir(self, heir: Zygote) -> int:
        asyncio.get_running_loop().remove_reader(heir.ended)
        self.heir = None
        code = heir.end()
        heir.forget()
        return code

    def _watch(self, zygote: Zygote) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(zygote.socket, self._heard, zygote)
        loop.add_reader(zygote.ended, self._died, zygote)
        self._watched = True

    def _unwatch(self, zygote: Zygote) -> None:
        if self._watched:
            loop = asyncio.get_running_loop()
            loop.remove_reader(zygote.socket)
            loop.remove_reader(zygote.ended)
            self._watched = False
