"""The supervisor's side of its zygote: started early, asked to fork, started again when it died.

Requests wait until the zygote has imported everything; one is under way at a time. What was forked waits at its gate
until somebody here has taken note of it, so it can be neither reaped nor killed as a stranger, and the link knows it
when it calls. The protocol is in `edt_sdk.schemas.zygote`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas import zygote as wire
from edt_server.supervisor import wording
from edt_server.supervisor.tails import LastWords, last_of

log = logging.getLogger(__name__)

_LARGEST = 1 << 20
_TRIES = 2


class ZygoteProcess:
    """One zygote.

    Args:
        interpreter: the job's Python.
        environment: all variables it starts with.

    Raises:
        OSError: the interpreter cannot be run.
    """

    def __init__(self, interpreter: str, environment: Mapping[str, str]) -> None:
        self.interpreter = interpreter
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = os.memfd_create("zygote-output", os.MFD_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                [interpreter, "-u", "-m", "edt_sdk.training.zygote"],
                stdin=theirs.fileno(),
                stdout=self._said,
                stderr=self._said,
                env=dict(environment),
                close_fds=True,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            os.close(self._said)
            raise
        finally:
            theirs.close()
        self.socket = ours
        self.ended = os.pidfd_open(self._process.pid)
        self.ready: wire.Ready | None = None
        self.silent = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def hear(self) -> wire.Answer | None:
        """The next answer, None when there is none now. Sets `ready`, and `silent` when there will be no more."""
        try:
            data = self.socket.recv(_LARGEST, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except ConnectionError:
            data = b""
        if not data:
            self.silent = True
            return None
        answer = wire.decode_answer(data)
        if isinstance(answer, wire.Ready):
            self.ready = answer
        return answer

    def ask(self, fork: wire.Fork, descriptors: Sequence[int]) -> None:
        """Send a request; a zygote that is gone does not answer it."""
        body = os.memfd_create("zygote-request", os.MFD_CLOEXEC)
        try:
            with open(body, "wb", closefd=False) as file:
                file.write(wire.encode(fork))
            with contextlib.suppress(ConnectionError):
                socket.send_fds(self.socket, [wire.REQUEST], [body, *descriptors])
        finally:
            os.close(body)

    def words(self) -> str:
        """All that it has written."""
        return os.pread(self._said, _LARGEST, 0).decode("utf-8", errors="replace")

    def end(self) -> int:
        """Kill it, if it still runs, and reap it; its exit code. Forked processes stay."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        self.socket.close()
        os.close(self.ended)
        return code

    def forget(self) -> None:
        """Give up what it wrote, after `end`."""
        os.close(self._said)


@dataclass(slots=True, eq=False)
class Request:
    """A process that is wanted.

    Attributes:
        fork: what it is.
        descriptors: stdout, stderr, and what it inherits; closed when the request is done.
        on_forked: called with its pid while it waits at the gate; it passes when this returns.
        on_failed: called with a sentence when there will be no such process.
    """

    fork: wire.Fork
    descriptors: tuple[int, ...]
    on_forked: Callable[[int], None]
    on_failed: Callable[[str], None]
    tries: int = 0

    def close(self) -> None:
        """Close its descriptors."""
        for descriptor in self.descriptors:
            os.close(descriptor)


class Forker:
    """A zygote whenever one is needed, and the requests to it.

    Args:
        interpreter, environment: of the zygote.
        streams: folder for `zygote.stderr`, which is written when a zygote could not start.
        zygote: one that was started before.
    """

    def __init__(
        self, interpreter: str, environment: Mapping[str, str], streams: Path, zygote: ZygoteProcess | None = None
    ) -> None:
        self._interpreter = interpreter
        self._environment = environment
        self._streams = streams
        self._zygote = zygote
        self._watched = False
        self._waiting: deque[Request] = deque()
        self._asked: Request | None = None
        self._gate = -1

    @property
    def pids(self) -> frozenset[int]:
        """Of the zygote, if there is one."""
        return frozenset() if self._zygote is None else frozenset({self._zygote.pid})

    @property
    def forking(self) -> bool:
        """True while a process may exist whose pid is not known here yet."""
        return self._asked is not None

    def fork(self, request: Request) -> None:
        """Fork this process as soon as possible."""
        self._waiting.append(request)
        self._go_on()

    def cancel(self, request: Request) -> bool:
        """Forget a request; False when it is too late, because it is under way or done."""
        if request not in self._waiting:
            return False
        self._waiting.remove(request)
        request.close()
        return True

    def stop(self) -> None:
        """End the zygote and forget all requests; calls nobody back."""
        for request in (*self._waiting, *([self._asked] if self._asked else [])):
            request.close()
        self._waiting.clear()
        self._close_gate()
        self._asked = None
        if self._zygote is not None:
            self._unwatch(self._zygote)
            self._zygote.end()
            self._zygote.forget()
            self._zygote = None

    def _go_on(self) -> None:
        while self._waiting and self._asked is None:
            zygote = self._zygote
            if zygote is None:
                try:
                    zygote = self._zygote = ZygoteProcess(self._interpreter, self._environment)
                except OSError as wrong:
                    hint = "The job's Python must exist on this machine and have jupyter-edt installed."
                    self._fail_all(f"{self._interpreter} cannot be run: {wrong.strerror}. {hint}")
                    return
            if not self._watched:
                self._watch(zygote)
            if zygote.ready is None:
                return
            self._ask(zygote, self._waiting.popleft())

    def _ask(self, zygote: ZygoteProcess, request: Request) -> None:
        request.tries += 1
        self._asked = request
        gate, self._gate = os.pipe()
        stdout, stderr, *inherited = request.descriptors
        try:
            zygote.ask(request.fork, (stdout, stderr, gate, *inherited))
        finally:
            os.close(gate)

    def _heard(self, zygote: ZygoteProcess) -> None:
        match zygote.hear():
            case None if zygote.silent:
                # `_died` sees its end; until then a closed socket would be readable for ever.
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
                request.on_failed(f"The system could not make another process ({why}). Free memory or processes.")
        self._go_on()

    def _forked(self, pid: int) -> None:
        request = self._asked
        assert request is not None, "answers come in the order of requests"
        # While it is at the gate it is ours: only now may orphans be looked for again.
        request.on_forked(pid)
        with contextlib.suppress(BrokenPipeError):  # it was killed already
            os.write(self._gate, wire.PASS)
        self._done()

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

    def _died(self, zygote: ZygoteProcess) -> None:
        while zygote.hear() is not None:
            pass  # an answer without its zygote: the process it speaks of is not let through its gate
        self._unwatch(zygote)
        self._zygote = None
        code, words = zygote.end(), zygote.words()
        zygote.forget()
        log.warning("zygote ended, pid=%d code=%d\n%s", zygote.pid, code, words)
        asked, self._asked = self._asked, None
        self._close_gate()
        if zygote.ready is None:
            if words:
                self._streams.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self._streams / "zygote.stderr").write_text(words)
            last = LastWords("zygote.stderr", last_of(words)) if words else None
            self._fail_all(wording.never_spoke("The job's Python", self._interpreter, code, last))
        elif asked is not None and asked.tries < _TRIES:
            self._waiting.appendleft(asked)
        elif asked is not None:
            asked.close()
            asked.on_failed(f"The process that it is forked from {wording.how_it_ended(code)}, {_TRIES} times.")
        self._go_on()

    def _fail_all(self, why: str) -> None:
        failed = list(self._waiting)
        self._waiting.clear()
        for request in failed:
            request.close()
        for request in failed:
            request.on_failed(why)

    def _watch(self, zygote: ZygoteProcess) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(zygote.socket, self._heard, zygote)
        loop.add_reader(zygote.ended, self._died, zygote)
        self._watched = True

    def _unwatch(self, zygote: ZygoteProcess) -> None:
        if self._watched:
            loop = asyncio.get_running_loop()
            loop.remove_reader(zygote.socket)
            loop.remove_reader(zygote.ended)
            self._watched = False
