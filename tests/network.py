"""Machines of a test: network namespaces on a bridge of their own, where cables can be pulled.

A program on such a machine has an address, a host name, pids and a /dev/shm of its own, and shares the disk. So its
workers reach those of another machine by TCP alone. Needs root; traffic stays between the namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

_CLONE_NEWNET = 0x40000000
_networks = itertools.count()  # of this process: one test may have its own beside that of its module
_libc = ctypes.CDLL(None, use_errno=True)
# In namespaces of its own for pids, mounts and the host name. The bind mount is another boot to all who look.
_MACHINE = """
hostname "$0"; mount -t tmpfs -o size=256m tmpfs /dev/shm
for hidden in $EDT_HIDDEN; do mount -t tmpfs -o size=1m tmpfs "$hidden"; done; unset EDT_HIDDEN
mount -t proc proc /mnt  # a whole one, without which the kernel lets no sandbox have its own
cat /proc/sys/kernel/random/uuid > /dev/shm/boot_id; mount --bind /dev/shm/boot_id /proc/sys/kernel/random/boot_id
exec "$@"
"""


class Network:
    """Machines with these names, as a context manager. Skips the test where there are no network namespaces."""

    def __init__(self, *names: str) -> None:
        self._prefix = f"edt{os.getpid()}-{next(_networks)}-"
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}
        self._programs: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Network:
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as wrong:
            self.close()
            said = getattr(wrong, "stderr", b"") or str(wrong).encode()
            if os.environ.get("EDT_NEED_NAMESPACES"):
                raise
            pytest.skip(f"no network namespaces here: {said.decode().strip()}")
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all programs on the machines, and remove them."""
        for program in self._programs:
            program.kill()
            program.wait()
        for name in ("bridge", *self.addresses):
            self.kill(name)
            subprocess.run(["ip", "netns", "del", self._prefix + name], capture_output=True, check=False)

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str] = os.environ,
        hidden: Sequence[Path] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a program on a machine. The folders `hidden` are empty there."""
        unshare = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside = [*unshare, "--propagation", "private", "bash", "-c", _MACHINE, name, *command]
        with log.open("ab") as said:
            program = subprocess.Popen(
                ["ip", "netns", "exec", self._prefix + name, *inside],
                stdout=said,
                stderr=said,
                env={**environ, "EDT_HIDDEN": " ".join(map(str, hidden))},
            )
        self._programs.append(program)
        return program

    def kill(self, name: str) -> None:
        """Kill every program on a machine, which does not say goodbye to anybody."""
        for pid in self.pids(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pids(self, name: str) -> list[int]:
        """Return what runs on a machine, by the pids that they have here."""
        listed = subprocess.run(["ip", "netns", "pids", self._prefix + name], capture_output=True, check=False)
        return [int(pid) for pid in listed.stdout.split()]

    def pid(self, name: str, there: int) -> int:
        """Return the pid that a process has here which has the pid `there` on its machine: 1 for the program itself."""
        for pid in self.pids(name):
            with contextlib.suppress(FileNotFoundError):
                status = Path(f"/proc/{pid}/status").read_text().splitlines()
                if next(line for line in status if line.startswith("NSpid:")).split()[2:] == [str(there)]:
                    return pid
        raise ProcessLookupError(f"no process {there} on {name}")

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Let this thread, and what it starts, use the network of a machine."""
        with open("/proc/thread-self/ns/net", "rb") as before, open(f"/run/netns/{self._prefix}{name}", "rb") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def cut(self, name: str) -> None:
        """Pull a machine's cable: nothing reaches it any more, and nobody is told."""
        _ip("-n", f"{self._prefix}bridge", "link", "set", self._port(name), "nomaster")

    def heal(self, name: str) -> None:
        """Plug it in again."""
        _ip("-n", f"{self._prefix}bridge", "link", "set", self._port(name), "master", "br0", "up")

    def part(self, *names: str, parted: bool = True) -> None:
        """Let these machines not reach each other any more, and nobody is told. All others reach them."""
        for name in names:
            bridge = ["bridge", "link", "set", "dev", self._port(name), "isolated", "on" if parted else "off"]
            inside = ["ip", "netns", "exec", f"{self._prefix}bridge", *bridge]
            subprocess.run(inside, capture_output=True, check=True)

    def add_private(self, name: str, address: str) -> None:
        """Give a machine an address that no other one has a route to, as behind a NAT."""
        _ip("-n", self._prefix + name, "addr", "add", f"{address}/32", "dev", "lo")

    def limit(self, name: str, rate: str) -> None:
        """Let a machine send no faster than this, such as "1gbit"."""
        shaped = f"tc qdisc replace dev eth0 root tbf rate {rate} burst 256kb latency 50ms".split()
        subprocess.run(["ip", "netns", "exec", self._prefix + name, *shaped], capture_output=True, check=True)

    def unlimit(self, name: str) -> None:
        """Let it send as fast as it can again."""
        free = ["tc", "qdisc", "del", "dev", "eth0", "root"]
        subprocess.run(["ip", "netns", "exec", self._prefix + name, *free], capture_output=True, check=True)

    def namespace(self, name: str) -> int:
        """Return the inode of a machine's network, by which /proc tells whose a process is."""
        return os.stat(f"/run/netns/{self._prefix}{name}").st_ino

    def _make(self) -> None:
        bridge = f"{self._prefix}bridge"
        _ip("netns", "add", bridge)
        _ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        _ip("-n", bridge, "link", "set", "br0", "up")
        for name, address in self.addresses.items():
            there = self._prefix + name
            _ip("netns", "add", there)
            _ip("-n", bridge, "link", "add", self._port(name), "type", "veth", "peer", "name", "eth0", "netns", there)
            self.heal(name)
            _ip("-n", there, "addr", "add", f"{address}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                _ip("-n", there, "link", "set", link, "up")

    def _port(self, name: str) -> str:
        return f"port-{name}"


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:  # `os.setns` is of Python 3.12
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, check=True)
