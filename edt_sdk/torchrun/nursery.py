"""Fork the processes of a script from a process that has imported torch, so that a round starts without that delay.

An agent forks its nursery before it starts any thread. The nursery forks on request, with the protocol of the zygote
(`edt_sdk.schemas.wire.zygote`). The agent is the parent of all processes, and all are killed when the agent ends in any
way. A program that is no Python script is executed in the forked process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire import zygote as wire
from edt_sdk.torchrun.script import COMMAND_VARIABLE
from edt_sdk.training import zygote
from edt_sdk.training.member.leaving import prepare_to_fork

_PROGRAM = "edt_sdk.torchrun.script"
_PR_SET_CHILD_SUBREAPER = 36
_LARGEST = 1 << 20


class Nursery:
    """Represents the nursery in the agent. See `open_nursery`."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self._pid = pid

    def start(self, command: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int) -> ForkedProcess:
        """Start a command in this process's working directory.

        Args:
            command: the program and its arguments. `python -u [-m] …` with this interpreter runs without an exec.
            environment: all of its variables.
            stdout: descriptor. It stays the caller's.
            stderr: likewise.

        Raises:
            OSError: the system could not create another process.
        """
        environ = {**environment, COMMAND_VARIABLE: msgspec.json.encode(list(command)).decode()}
        # The umask can only be read by setting it.
        umask = os.umask(0o077)
        os.umask(umask)
        fork = wire.Fork(
            module=_PROGRAM, environ=wire.to_wire(environ), directory=os.getcwd(), umask=umask, bound=os.getpid()
        )
        read, write = os.pipe()
        # The request goes through a memory file, since an environment may exceed the size of a datagram.
        body = os.memfd_create("nursery-request", os.MFD_CLOEXEC)
        try:
            with open(body, "wb", closefd=False) as file:
                file.write(wire.encode(fork))
            socket.send_fds(self._connection, [wire.PROGRAM], [read, body, stdout, stderr])
            answer = wire.decode_answer(self._connection.recv(_LARGEST) or b"{}")
            if not isinstance(answer, wire.Forked):
                raise OSError(f"the system could not make another process ({answer})")
            # Opened before the process may pass the gate, so the pidfd cannot stand for another process with this pid.
            process = ForkedProcess(answer.pid)
            with contextlib.suppress(BrokenPipeError):  # it was killed already
                os.write(write, wire.PASS)
        finally:
            for descriptor in (read, write, body):
                os.close(descriptor)
        return process

    def close(self) -> None:
        """Kill the nursery and all other children of this process, and wait until none is left."""
        self._connection.close()
        # A killed child's children move to this process (subreaper), so repeat until the list is empty.
        while children := _children():
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in children:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def open_nursery() -> Nursery | None:
    """Fork the nursery. Call it before any thread is started.

    Returns None in each process forked from the nursery. That process then runs `edt_sdk.torchrun.script` and ends.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A subreaper inherits the orphans of its processes, so that `close` can end them.
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    agent = os.getpid()
    path = sys.path[:]
    pid = os.fork()
    if pid:
        theirs.close()
        return Nursery(ours, pid)
    ours.close()
    zygote.die_with(agent)
    prepare_to_fork()
    try:
        birth = zygote.serve(theirs)
    except OSError:
        birth = None  # the agent is gone
    if not isinstance(birth, zygote.Birth):
        os._exit(0)
    theirs.close()
    zygote.become(birth, path)
    zygote.run(birth.fork.module)
    return None


class ForkedProcess:
    """Represents a child process, which no other code may reap, with the part of `Popen` that torch's agent uses.

    When the child has ended, the rest of its process group is killed before its pid can be reused. `ended` is the end
    time on the monotonic clock. `ended` and `returncode` are None while the child runs.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.ended: float | None = None
        self._descriptor = os.pidfd_open(pid)
        # A thread notes the time: of several crashed processes, the first is the cause (decision 023).
        self._watch = threading.Thread(target=self._see_end, name=f"edt-process-{pid}", daemon=True)
        self._watch.start()

    def poll(self) -> int | None:
        """Return the exit code once the process has ended."""
        if self.returncode is None and _readable(self._descriptor, 0):
            # `ended` must be set before `returncode` shows the end.
            self._watch.join()
            # Its descendants share the process group, and must not outlive the round. Killed before waitpid: until the
            # leader is reaped, the kernel cannot give its pid to another process.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._descriptor)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process. subprocess.TimeoutExpired after this many seconds."""
        if self.returncode is None and not _readable(self._descriptor, timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        code = self.poll()
        assert code is not None, "it has ended"
        return code

    def _see_end(self) -> None:
        _readable(self._descriptor, None)
        self.ended = time.monotonic()


def _readable(descriptor: int, timeout: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += map(int, (task / "children").read_text().split())
    return found
