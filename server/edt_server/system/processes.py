"""Identify processes for certain: a pid alone is a number that another process may get next.

A process is identified by host, boot, pid namespace, pid and the clock tick at which it started. Signals go through a
pidfd that is opened first and compared afterwards, so that the pid cannot be reused between the check and the signal.
Nothing here starts or reaps a process.

A container's processes are not visible from another one, and the processes of an ended container never will be. A file
lock shows that one lives: the kernel holds it exactly as long as the process exists, whatever its namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

from edt_sdk.schemas.wire.control import ProcessIdentity

# Fields of /proc/<pid>/stat, counted after the name in brackets, which may itself have blanks and brackets (proc(5)).
_STATE, _PARENT, _START = 0, 1, 19
_ENDED = frozenset("ZXx")
PRESENCE = "supervisor.lock"
"""The file in a job's folder that its supervisor locks."""


def identify(pid: int) -> ProcessIdentity:
    """Return the identity of a process of this host. ProcessLookupError when there is none.

    The pid namespace is the caller's own: in that namespace the number means this process.
    """
    return ProcessIdentity(
        host=socket.gethostname(),
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
        pid=pid,
        start_ticks=int(stat_fields(pid)[_START]),
    )


def visible(identity: ProcessIdentity) -> bool:
    """Return whether this process could see that one if it lived: same host, same boot, same pid namespace."""
    here = (socket.gethostname(), _boot_id(), _pid_namespace())
    return (identity.host, identity.boot_id, identity.pid_namespace) == here


def same_kernel(identity: ProcessIdentity) -> bool:
    """Return whether the process was started since this machine's boot, in any container."""
    return identity.boot_id == _boot_id()


def is_alive(identity: ProcessIdentity) -> bool:
    """Return whether the process still runs. A zombie is dead.

    A process that is not `visible` counts as alive, except a process of an earlier boot of this same host.
    """
    if not visible(identity):
        return not (identity.host == socket.gethostname() and identity.boot_id != _boot_id())
    return _runs(identity)


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process. Return False when it is gone or not visible from here."""
    with open_pidfd(identity) as descriptor:
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        return True


@contextlib.contextmanager
def open_pidfd(identity: ProcessIdentity) -> Iterator[int | None]:
    """Return a descriptor that is readable when the process has exited, None when it has or is not visible here."""
    descriptor: int | None = None
    if visible(identity):
        try:
            descriptor = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            descriptor = None
    try:
        # Compared after opening: the descriptor then holds whichever process has the pid now.
        yield descriptor if descriptor is not None and _runs(identity) else None
    finally:
        if descriptor is not None:
            os.close(descriptor)


async def ended(identity: ProcessIdentity) -> None:
    """Wait until the process has exited, any process of this host. Return at once where it is not visible."""
    with open_pidfd(identity) as descriptor:
        if descriptor is not None:
            loop = asyncio.get_running_loop()
            event = asyncio.Event()
            loop.add_reader(descriptor, event.set)
            try:
                await event.wait()
            finally:
                loop.remove_reader(descriptor)


def parent_of(pid: int) -> int:
    """Return the parent of a process of this pid namespace. ProcessLookupError when there is no such process."""
    return int(stat_fields(pid)[_PARENT])


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the third (the state) on. ProcessLookupError when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"There is no process {pid}.") from None
    return text[text.rindex(")") + 1 :].split()


def pids_here(pids: Collection[int], neighbour: int) -> dict[int, int]:
    """Return the pids that processes have here, by those that they have in the pid namespace of `neighbour`.

    A process that has ended is left out, unless the two namespaces are the same. {} when `neighbour` has ended.
    """
    try:
        namespace = _namespace_of(neighbour)
    except OSError:
        return {}
    if namespace == _pid_namespace():
        return {pid: pid for pid in pids}
    found: dict[int, int] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            lines = Path(f"/proc/{name}/status").read_text(encoding="utf-8", errors="replace").splitlines()
            numbers = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
            if len(numbers) > 1 and int(numbers[-1]) in pids and _namespace_of(int(name)) == namespace:
                found[int(numbers[-1])] = int(name)
        except OSError:
            continue  # it has exited, or belongs to another account
    return found


def _runs(identity: ProcessIdentity) -> bool:
    try:
        fields = stat_fields(identity.pid)
    except ProcessLookupError:
        return False
    # The start time distinguishes a process from a later one with the same pid.
    return int(fields[_START]) == identity.start_ticks and fields[_STATE] not in _ENDED


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _namespace_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def announce(path: Path) -> int:
    """Hold the lock until this process ends. Return its descriptor, or -1 where files cannot be locked."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # an earlier supervisor still holds it, and will exit
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    return -1


def is_held(path: Path) -> bool:
    """Return whether any process of this kernel holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A shared probe: two readers at the same time must not take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
