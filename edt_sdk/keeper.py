"""Run a program on a leash: when the process that started it ends, in whatever way, all its descendants are killed.

A server's jobs are made to outlive the server. The jobs of a server in a test, a demo or a benchmark must end with that
program, also when it is killed. So a small process runs in between: the keeper, a subreaper, which becomes the parent
of the program and of all descendants that lose theirs. It holds one end of a pipe, and the starter holds the other. It
waits until the pipe is closed (`LeashedProcess.let_go`) or the last descendant has ended, and ends.

This file is the starter's handle and, run as a program, the keeper. It needs only the standard library, and Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_UNLEASHED = "unleashed"


class LeashedProcess:
    """Represents a running program in its own session, with `env` as all of its variables.

    With `leashed` it and its descendants end with this process. Otherwise they end by themselves.

    Raises:
        OSError: there is no such program, or the system cannot start a process.
    """

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: BinaryIO, leashed: bool = True
    ) -> None:
        # -I and -S: the keeper needs only the standard library, and the variables in `env` must not change how it
        # starts.
        keeper = [sys.executable, "-I", "-S", __file__, *([] if leashed else [_UNLEASHED]), "--", *command]
        with _LEASHES.new() if leashed else contextlib.nullcontext() as leash:
            # This process ends at once. The keeper is its child.
            told = subprocess.run(
                keeper,
                stdin=subprocess.DEVNULL if leash is None else leash.far,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=cwd,
                env=env,
                check=False,
                start_new_session=True,
            ).stdout
            pids = told.split()
            if len(pids) != len(("keeper", "program")):
                raise OSError(f"{command[0]} could not be started. See {log.name}.")
        self._leash = leash
        self._keeper = _Process(int(pids[0]))
        self._program = _Process(int(pids[1]))
        self.pid = self._program.pid

    def ended(self, timeout: float = 0.0) -> bool:
        """Wait at most `timeout` seconds, and return whether the program has ended."""
        return self._program.ended(timeout)

    def all_ended(self, timeout: float = 0.0) -> bool:
        """Wait at most `timeout` seconds, and return whether all descendants have ended too."""
        return self._keeper.ended(timeout)

    def let_go(self, timeout: float) -> bool:
        """Kill the program and its descendants, or without a leash only wait for them.

        Returns whether all have ended after at most `timeout` seconds.
        """
        leash, self._leash = self._leash, None
        if leash is not None:
            _LEASHES.drop(leash)
        return self.all_ended(timeout)

    def send_signal(self, number: signal.Signals) -> None:
        """Send the program a signal, unless it has ended."""
        self._program.send_signal(number)


class _Process:
    """A process that need not be a child. A pidfd identifies it, so that a reused pid is never mistaken for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = -1
        with contextlib.suppress(ProcessLookupError):  # it has ended
            self._descriptor = os.pidfd_open(pid)

    def ended(self, timeout: float = 0.0) -> bool:
        if self._descriptor >= 0:
            waiting = select.poll()
            waiting.register(self._descriptor, select.POLLIN)
            if not waiting.poll(1000 * timeout):
                return False
            os.close(self._descriptor)
            self._descriptor = -1
        return True

    def send_signal(self, number: signal.Signals) -> None:
        if not self.ended():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)


class _Leash(NamedTuple):
    """Holds a pipe: `near` is the end in this process, `far` the end in the keeper."""

    near: int
    far: int


class _Leashes:
    """Holds the leashes of this process until they are dropped or the process ends. A forked child drops them all."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        os.register_at_fork(after_in_child=self._forked)

    @contextlib.contextmanager
    def new(self) -> Iterator[_Leash]:
        """Make a leash with a far end that is open during the block, and drop the leash when the block fails."""
        far, near = os.pipe()
        leash = _Leash(near, far)
        self._held.add(near)
        try:
            yield leash
        except BaseException:
            self.drop(leash)
            raise
        finally:
            os.close(far)

    def drop(self, leash: _Leash) -> None:
        self._held.discard(leash.near)
        os.close(leash.near)

    def _forked(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)
        self._held.clear()


_LEASHES = _Leashes()


# --- the process between ----------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> None:
    """Start the command after `--`, write the pids to stdout, and be its keeper."""
    at = arguments.index("--")
    if os.fork():
        os._exit(0)  # the starter need not reap the keeper
    os.setsid()
    # Without a leash it watches a pipe that it holds both ends of, which never closes.
    life = os.pipe()[0] if _UNLEASHED in arguments[:at] else 0
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The end of a child must wake poll(). Python writes to the wakeup descriptor only for signals with a handler.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    own = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(arguments[at + 1 :], own)
    os.write(1, b"%d %d\n" % (own, pid))
    os.close(1)
    waiting = select.poll()
    for descriptor in (life, woken):
        waiting.register(descriptor, select.POLLIN)
    while _reaped():
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if life in ready:
            _end_children()
            return
        os.read(woken, 4096)


def _become(command: Sequence[str], keeper: int) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    # stdin is the leash and stdout a pipe that the starter reads until it is closed. The program must hold neither.
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The keeper may have died before the call of prctl.
    if os.getppid() != keeper:
        os._exit(1)
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _reaped() -> bool:
    """Reap the children that have ended, and return whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _end_children() -> None:
    """Kill and reap all descendants. A process that loses its parent becomes a child of this one."""
    with contextlib.suppress(ChildProcessError):
        while True:
            # List them again after every death: the children of a killed process become children of this one.
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> list[int]:
    own = os.getpid()
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == own:
                found.append(int(name))
    return found


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    main(sys.argv[1:])
