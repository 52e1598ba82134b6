"""Serve the supervisor's end of a zygote, newly started or forked: send requests, read answers, end, reap.

The protocol is in `edt_sdk.schemas.wire.zygote`. `forker` decides when to ask, and what to do when a zygote dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence

import msgspec

from edt_sdk.schemas.wire import zygote as wire
from edt_sdk.schemas.wire.control import Account

_LARGEST = 1 << 20


class Zygote:
    """A running zygote, a child of this process. Its output goes to the memory file `said`.

    Attributes:
        ended: its pidfd, readable when it has exited.
        ready: its first answer, None while it is importing.
        silent: there will be no more answers.
    """

    def __init__(
        self, pid: int, connection: socket.socket, said: int, reap: Callable[[], int], ready: wire.Ready | None = None
    ) -> None:
        self.pid = pid
        self.socket = connection
        self.ended = os.pidfd_open(pid)
        self.ready = ready
        self.silent = False
        self._said = said
        self._reap = reap

    def heir(self, pid: int, connection: socket.socket) -> Zygote:
        """Return the zygote that this zygote has forked as its heir. It has imported the same modules."""
        # A copy of the descriptor, because `forget` of the dead zygote closes its own.
        return Zygote(pid, connection, os.dup(self._said), lambda: _reap(pid), self.ready)

    @classmethod
    def inherited(cls, arguments: list[str]) -> Zygote | None:
        """Take the zygote that was forked with this process out of its first arguments, None where there is none."""
        if arguments[:1] != [wire.ZYGOTE_OPTION]:
            return None
        _, *numbers = arguments[:4]
        del arguments[:4]
        return cls.given(*map(int, numbers))

    @classmethod
    def given(cls, connection: int, pid: int, said: int) -> Zygote:
        """Return the zygote that was forked by this process before it executed this interpreter (decision 045)."""
        for descriptor in (connection, said):
            os.set_inheritable(descriptor, False)
        return cls(pid, socket.socket(fileno=connection), said, lambda: _reap(pid))

    def hear(self) -> wire.Answer | None:
        """Return the next answer, None when there is none now. Sets `ready`, and `silent` when no more can come."""
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

    def ask(
        self,
        fork: wire.Fork,
        gate: int,
        descriptors: Sequence[int],
        namespaces: Sequence[int] = (),
        account: Account | None = None,
    ) -> None:
        """Request a program that waits at `gate`, a pipe's reading end, with stdout, stderr and what it inherits.

        It runs in the `namespaces`, as a process of the `account`.
        """
        fork = msgspec.structs.replace(fork, namespaces=len(namespaces), account=account)
        self._send_with(wire.encode(fork), wire.PROGRAM, gate, *namespaces, *descriptors)

    def ask_for_family(
        self, family: wire.Family, gate: int, stdin: int, log: int, *, request: bytes = wire.FAMILY
    ) -> None:
        """Request a supervisor that waits at `gate`, and its zygote. `request` is FAMILY or ADOPTED."""
        self._send_with(wire.encode(family), request, gate, stdin, log)

    def ask_for_branch(self, script: str, gate: int, connection: int, said: int) -> None:
        """Request a branch for a script that waits at `gate`, serves `connection`, and writes its output to `said`."""
        self._send_with(script.encode(), wire.BRANCH, gate, connection, said)

    def ask_for_heir(self, gate: int, connection: int) -> None:
        """Request an heir that serves the socket `connection`."""
        self._send(wire.HEIR, [gate, connection])

    def _send_with(self, body: bytes, request: bytes, gate: int, *descriptors: int) -> None:
        file = os.memfd_create("zygote-request", os.MFD_CLOEXEC)
        with open(file, "wb") as written:
            written.write(body)
            written.flush()
            self._send(request, [gate, file, *descriptors])

    def _send(self, request: bytes, descriptors: list[int]) -> None:
        # A zygote that is gone does not answer. Its pidfd shows that.
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self.socket, [request], descriptors)

    def words(self) -> str:
        """Return all output of this zygote and of the zygotes it was forked from."""
        return os.pread(self._said, _LARGEST, 0).decode("utf-8", errors="replace")

    def end(self) -> int:
        """Kill it, if it still runs, and reap it. Return its exit code. Forked processes stay, heirs too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._reap()
        self.socket.close()
        os.close(self.ended)
        return code

    def forget(self) -> None:
        """Close its output, after `end`."""
        os.close(self._said)


class ZygoteProcess(Zygote):
    """A zygote that starts as a new process with this whole environment. OSError when it cannot be run."""

    def __init__(self, interpreter: str, environment: Mapping[str, str]) -> None:
        super().__init__(*start_zygote(interpreter, environment))


def start_zygote(interpreter: str, environment: Mapping[str, str]) -> tuple[int, socket.socket, int, Callable[[], int]]:
    """Start a zygote with this whole environment. Return what `Zygote` takes. OSError when it cannot be run."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    said = os.memfd_create("zygote-output", os.MFD_CLOEXEC)
    try:
        process = subprocess.Popen(
            [interpreter, "-u", "-m", "edt_sdk.training.zygote"],
            stdin=theirs.fileno(),
            stdout=said,
            stderr=said,
            env=dict(environment),
            # Python imports from its working directory first, and a job's code may write into those of the job.
            cwd="/",
            close_fds=True,
            start_new_session=True,
        )
    except OSError:
        ours.close()
        os.close(said)
        raise
    finally:
        theirs.close()
    return process.pid, ours, said, process.wait


def _reap(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
