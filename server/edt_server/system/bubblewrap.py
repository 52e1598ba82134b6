"""Start a sandbox with bubblewrap, and say why this machine cannot have one.

A sandbox is a first process with namespaces of its own: user, mount, pid, IPC, and network if it shall reach none. For
processes of other accounts it has no user namespace, which would know only one account, and is started by root. What it
shows is a list of mounts, everything else is not there. The first process only waits, until its stdin ends, and
everything in the sandbox is killed with it. Other processes enter its namespaces (`edt_sdk.training.namespaces`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.wire.control import Account

log = logging.getLogger(__name__)

PROGRAM = "bwrap"
_PATIENCE = 5.0
_USERS = (
    "Where user namespaces are off, the administrator of the machine can allow them (sysctl "
    "kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0; in a container its seccomp "
    "profile)."
)
_NO_USERS = "In a container root may need the capability SYS_ADMIN (--cap-add SYS_ADMIN) and another seccomp profile."
_INSTALL = "Install bubblewrap 0.8 or newer (apt-get install bubblewrap, dnf install bubblewrap)"
# What a program needs of the machine: libraries, name services, certificates, time zone. No other file of /etc: the
# service may be root, and then every file is its own.
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
_ETC = (
    "alternatives", "ca-certificates", "crypto-policies", "fonts", "group", "hosts", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "OpenCL", "passwd", "pki", "protocols", "resolv.conf",
    "services", "ssl", "timezone", "vulkan",
)  # fmt: skip
# Processors, devices, drivers and control groups, but no debugging interface of the kernel.
_SYS = ("block", "bus", "class", "dev", "devices", "fs/cgroup", "module")
_DEVICES = ("/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/infiniband")
# The first process ignores the ends of the processes that it adopts, so the kernel reaps them. `cat` says that the
# mounts are done, by repeating a byte.
_WAIT = ("/usr/bin/env", "--ignore-signal=CHLD", "cat")
# ioctl_ns(2): the user namespace that owns a namespace.
_NS_GET_USERNS = 0xB701
# proc_pid_stat(5): the flags of a process, counted from behind its name, and the one that says that it ends.
_FLAGS = 6
_PF_EXITING = 0x4


class _Info(msgspec.Struct):
    first: int = msgspec.field(name="child-pid")


@dataclass(frozen=True, slots=True)
class Mounts:
    """What a sandbox shows, each at the path that it has outside. Later ones lie over earlier ones.

    Attributes:
        readable: read-only files and folders. Those that do not exist are left out.
        empty: folders that are shown empty and read-only, though they may hold what follows.
        writable: files and folders.
        hidden: files in writable folders that nobody can open there.
        fixed: files and folders in writable or empty folders that are shown read-only.
        home: the home folder, empty and not kept.
        kept: folders of the machine, read and write.
        temporary: the folder that is shown as /tmp and /var/tmp.
    """

    readable: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    home: str = ""
    kept: tuple[str, ...] = ()
    temporary: str = ""

    def arguments(self) -> list[str]:
        """Return the options of bubblewrap for the machine's own parts and for these mounts."""
        words = [word for name in _SYSTEM for word in _system(f"/{name}")]
        words += [word for name in ("/etc", "/sys/fs", "/var") for word in ("--dir", name)]
        words += [word for name in _ETC for word in ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")]
        words += [word for name in _SYS for word in ("--ro-bind-try", f"/sys/{name}", f"/sys/{name}")]
        words += ["--ro-bind-try", "/opt", "/opt", "--proc", "/proc", "--dev", "/dev"]
        words += ["--perms", "1777", "--tmpfs", "/dev/shm"]
        words += [word for name in _DEVICES for path in glob(name) for word in ("--dev-bind", path, path)]
        if self.home:
            words += ["--tmpfs", self.home]
        words += _above(self.kept) + [word for path in self.kept for word in ("--bind", path, path)]
        for place in ("/tmp", "/var/tmp"):
            words += ["--bind", self.temporary, place] if self.temporary else ["--tmpfs", place]
        words += _above(self.readable) + [word for path in self.readable for word in ("--ro-bind-try", path, path)]
        # One of them may lie in another.
        words += [word for path in sorted(self.empty, key=len) for word in ("--tmpfs", path)]
        words += _above(self.writable) + [word for path in self.writable for word in ("--bind", path, path)]
        words += _above(self.fixed) + [word for path in self.fixed for word in ("--ro-bind", path, path)]
        words += [word for path in self.hidden for word in ("--ro-bind", os.devnull, path)]
        return words + [word for path in self.empty for word in ("--remount-ro", path)]


class Sandbox:
    """A running sandbox. Everything in it ends when all copies of `lifeline`, a pipe's writing end, are closed.

    Without `users` it has no user namespace, so that processes of any account can be in it. That takes root.

    Raises:
        EdtError: bubblewrap is not there, or cannot make it.
    """

    def __init__(self, mounts: Mounts, lifeline: tuple[int, int], *, network: bool = True, users: bool = True) -> None:
        stdin, self._lifeline = lifeline
        command = [*_namespaces(network=network, users=users), "--as-pid-1", *mounts.arguments()]
        said = os.memfd_create("bwrap-output", os.MFD_CLOEXEC)
        info, told = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command, "--info-fd", str(told), "--", *_WAIT],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd="/",
                # The first process shows its own in /proc/1/environ.
                env={"PATH": os.defpath},
                pass_fds=[told],
                start_new_session=True,
            )
            os.close(told)
            told = -1
            with open(info, "rb") as file:
                description = file.read()
            os.write(self._lifeline, b".")
            assert self._process.stdout is not None
            self._echo = self._process.stdout
            if not self._echo.read(1):
                self._echo.close()
                self._process.wait()
                raise EdtError(
                    f"A sandbox cannot be started: {os.pread(said, 1 << 12, 0).decode(errors='replace').strip()}.",
                    hint=f"{_USERS if users else _NO_USERS} {_INSTALL}.",
                )
        finally:
            os.close(said)
            if told >= 0:
                os.close(told)
                os.close(info)
        self.first = msgspec.json.decode(description, type=_Info).first
        """The pid of the first process, which adopts the orphans of all others."""
        self._ended = os.pidfd_open(self.first)
        names = ["mnt", "ipc", "pid", *([] if network else ["net"]), *(["user"] if users else [])]
        opened = [os.open(f"/proc/{self.first}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]
        # The user namespace that owns the others comes first. The innermost comes last: it owns none, and with it a
        # process can enter no more.
        self.namespaces: Sequence[int] = (*([fcntl.ioctl(opened[0], _NS_GET_USERNS)] if users else []), *opened)
        """Descriptors of its namespaces, in the order in which they have to be entered."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The pids of bubblewrap and of the first process."""
        return self._process.pid, self.first

    @property
    def alive(self) -> bool:
        """Return whether processes can enter it."""
        if self._process.poll() is not None:
            return False
        # The kernel kills all others before the end of the first one is told: no process can enter from then on.
        try:
            stat = Path(f"/proc/{self.first}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return not int(stat.rpartition(")")[2].split()[_FLAGS]) & _PF_EXITING

    def close(self) -> None:
        """Kill everything in it. Blocks until all have exited, some seconds at most.

        Processes that this one has forked into it have to be reaped before: the kernel keeps the first one until then.
        """
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._ended, signal.SIGKILL)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            log.warning("the sandbox %s does not end", self.pids)
        self._echo.close()
        for descriptor in (self._ended, *self.namespaces):
            os.close(descriptor)
        self.namespaces = ()


def bounded(
    mounts: Mounts, command: Sequence[str], folder: str, *, network: bool = True, account: Account | None = None
) -> list[str]:
    """Return what runs a command in a sandbox of its own, which ends with the process that starts it.

    With an account the command runs as that account, and it takes root. The command starts in the folder.
    """
    becoming = [] if account is None else [
        "setpriv", f"--reuid={account.uid}", f"--regid={account.gid}", f"--groups={','.join(map(str, account.groups))}",
        "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs",
    ]  # fmt: skip
    kept = [] if account is None else ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"]
    return [
        *_namespaces(network=network, users=account is None), *(word for each in kept for word in ("--cap-add", each)),
        "--die-with-parent", *mounts.arguments(), "--chdir", folder, "--", *becoming, *command,
    ]  # fmt: skip


def check(*, users: bool = True) -> None:
    """Start a sandbox and end it. EdtError when this machine cannot have one, with what would help."""
    lifeline = os.pipe2(os.O_CLOEXEC)
    try:
        Sandbox(Mounts(), lifeline, users=users).close()
    finally:
        for descriptor in lifeline:
            os.close(descriptor)


def _namespaces(*, network: bool, users: bool) -> list[str]:
    words = [_program(), "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]
    words += ["--unshare-user", "--disable-userns"] if users else []
    return words if network else [*words, "--unshare-net"]


def _program() -> str:
    found = shutil.which(PROGRAM)
    if found is None:
        raise EdtError("A sandbox cannot be started: there is no bwrap on this machine.", hint=f"{_INSTALL}.")
    return found


def _above(paths: Iterable[str]) -> list[str]:
    """Return the options for the folders above these. bubblewrap itself makes them for root alone."""
    return [word for path in paths if os.path.exists(path) for word in ("--dir", os.path.dirname(path))]


def _system(path: str) -> Iterable[str]:
    """Return the options for a folder of the system, which may be a link into another one."""
    if os.path.islink(path):
        return "--symlink", os.readlink(path), path
    return ("--ro-bind", path, path) if Path(path).is_dir() else ()
