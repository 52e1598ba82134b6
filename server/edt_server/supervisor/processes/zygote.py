"""The supervisor's end of one zygote, started from nothing or forked as an heir: to ask, to hear, to end and to reap.

The protocol is in `edt_sdk.schemas.wire.zygote`; when to ask, and what to do when one dies, is for `forker`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence

from edt_sdk.schemas.wire import zygote as wire

_LARGEST = 1 << 20


class Zygote:
    """A zygote that exists, a child of this process.

    Args:
        pid: its process id; not reaped by anybody else.
        connection: our end of its socket.
        said: what it writes to, a memory file.
        reap: waits for its end; its exit code.
        ready: what is known of its imports, None while it is still importing.

    Attributes:
        socket: our end of its socket.
        ended: its pidfd, readable when it has ended.
        ready: its first answer, None while it is still importing.
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
        """The zygote that this one has forked to come after it; it has imported what this one has."""
        return Zygote(pid, connection, os.dup(self._said), lambda: _wait(pid), self.ready)

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

    def ask(self, fork: wire.Fork, gate: int, descriptors: Sequence[int]) -> None:
        """Ask for a program.

        Args:
            fork: what it is.
            gate: the reading end of the pipe at which it waits.
            descriptors: stdout, stderr, and what it inherits.
        """
        body = os.memfd_create("zygote-request", os.MFD_CLOEXEC)
        try:
            with open(body, "wb", closefd=False) as file:
                file.write(wire.encode(fork))
            self._send(wire.PROGRAM, [gate, body, *descriptors])
        finally:
            os.close(body)

    def ask_for_heir(self, gate: int, connection: int) -> None:
        """Ask for an heir that serves the socket `connection`."""
        self._send(wire.HEIR, [gate, connection])

    def _send(self, request: bytes, descriptors: list[int]) -> None:
        # One that is gone does not answer; its pidfd tells.
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self.socket, [request], descriptors)

    def words(self) -> str:
        """All that it and those before it have written."""
        return os.pread(self._said, _LARGEST, 0).decode("utf-8", errors="replace")

    def end(self) -> int:
        """Kill it, if it still runs, and reap it; its exit code. Forked processes stay, heirs too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._reap()
        self.socket.close()
        os.close(self.ended)
        return code

    def forget(self) -> None:
        """Give up what it wrote, after `end`."""
        os.close(self._said)


class ZygoteProcess(Zygote):
    """A zygote from nothing.

    Args:
        interpreter: the job's Python.
        environment: all variables it starts with.

    Raises:
        OSError: the interpreter cannot be run.
    """

    def __init__(self, interpreter: str, environment: Mapping[str, str]) -> None:
        self.interpreter = interpreter
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        said = os.memfd_create("zygote-output", os.MFD_CLOEXEC)
        try:
            process = subprocess.Popen(
                [interpreter, "-u", "-m", "edt_sdk.training.zygote"],
                stdin=theirs.fileno(),
                stdout=said,
                stderr=said,
                env=dict(environment),
                close_fds=True,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            os.close(said)
            raise
        finally:
            theirs.close()
        super().__init__(process.pid, ours, said, process.wait)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
