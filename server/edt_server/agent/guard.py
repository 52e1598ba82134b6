"""Guard the agent: when the agent ends, for whatever reason, everything below it is killed at once.

The guard is the agent's parent and the next subreaper above it: a process below the agent that loses its parent becomes
a child of the agent, or of the guard when the agent is gone. The guard only waits for that, and kills an agent that was
stopped. The kernel also kills supervisors and outposts with the agent, and the agent with the guard. So the death of
both leaves only workers, which notice that their supervisor is gone and exit by themselves (decision 015).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import time

STOPPED_PATIENCE = 5.0
_LOOK = 0.5
_LOCK_PATIENCE = 10.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def guarded(lock: str) -> bool:
    """Fork the agent. Return False in the agent, which continues, and True in its guard, when everything below is gone.

    When another guard holds the lock of the host for long, the host is that guard's, and the result is True at once.
    """
    if not _hold(lock):
        return True
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Blocked for `sigtimedwait`, which reports that the child has ended or was stopped.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    own = os.getpid()
    agent = os.fork()
    if agent == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        die_with(own)
        os.setsid()
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        return False
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _pass_on(agent))
    _watch(agent)
    end_children()
    return True


def _hold(lock: str) -> bool:
    """Take the lock. Return False when it cannot be had. Never closed: it is free when guard and agent are gone."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        else:
            return True


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which must be its parent, ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The race: the parent may have ended before the kernel was asked, and then it sends no signal.
    if os.getppid() != parent:
        os._exit(1)  # it had ended before


def end_children() -> None:
    """Kill and reap all descendants: those that lose their parent become children of this process."""
    while True:
        for pid in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            # One after the other: the death of a supervisor makes its processes children of this one.
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> list[int]:
    """Return the pids of this process's children."""
    own = str(os.getpid())
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _stat(name)[1:2] == [own]]


def state_of(pid: int) -> str:
    """Return the process's state as in /proc/<pid>/stat, "" when there is none."""
    return "".join(_stat(str(pid))[:1])


def _stat(pid: str) -> list[str]:
    """Return the fields from the state on, an empty list when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text[text.rindex(")") + 1 :].split()


def _watch(agent: int) -> None:
    """Return when the agent has exited. Kill it when it stays stopped."""
    stopped: float | None = None
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK)
        if os.waitid(os.P_PID, agent, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        if state_of(agent) not in ("T", "t"):
            stopped = None
        elif stopped is None:
            stopped = time.monotonic()
        elif time.monotonic() - stopped > STOPPED_PATIENCE:
            os.kill(agent, signal.SIGKILL)


def _pass_on(agent: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(agent, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
