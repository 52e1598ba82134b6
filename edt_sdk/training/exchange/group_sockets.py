"""End the waits of a gloo group from another thread, by a shutdown of its connections.

gloo hides its sockets and waits in them without an end. A peer whose machine is cut off closes nothing, and to drop the
group does not wake the thread that waits (measured: still there after 18 s). A shutdown does, on both sides, within
milliseconds. The kernel's own limit for unanswered data (TCP_USER_TIMEOUT) is no help: it also ends the connection to a
peer that is alive and does not read, and gloo then tells nobody.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

Places = frozenset[tuple[str, int]]
"""Addresses, each a host and a port."""
# Two devices that are created at once could not tell their listeners apart.
_creating = threading.Lock()


class Door:
    """Gloo's device of a member, bound to the address `interface`, and the `places` where it listens."""

    def __init__(self, interface: str) -> None:
        gloo: Any = dist.ProcessGroupGloo  # torch's type stubs lack it
        with _creating:
            before = {each.getsockname()[:2] for each in _own_sockets() if _listens(each)}
            self.device = gloo.create_device(hostname=interface)
            after = {each.getsockname()[:2] for each in _own_sockets() if _listens(each)}
        # Another thread of the user's code may have begun to listen too, on this very interface: then there are two.
        self.places: Places = frozenset(after - before)


def written(places: Places) -> str:
    """Return places as one text."""
    return " ".join(f"{host}|{port}" for host, port in places)


def places_of(text: bytes) -> Places:
    """Return the places in a text that `written` made."""
    parts = (each.rpartition("|") for each in text.decode().split())
    return frozenset((host, int(port)) for host, _, port in parts)


def shut_down(places: Places) -> None:
    """Shut down this process's connections from or to these listeners."""
    for each in _own_sockets() if places else ():
        with contextlib.suppress(OSError):  # it listens, or its peer has closed it
            if each.getpeername()[:2] in places or each.getsockname()[:2] in places:
                each.shutdown(socket.SHUT_RDWR)


def _own_sockets() -> Iterator[socket.socket]:
    """Yield a copy of each TCP socket of this process, which is closed when the next one is asked for."""
    for name in os.listdir("/proc/self/fd"):
        try:
            copied = os.dup(int(name))
        except OSError:  # closed in the meantime
            continue
        if not stat.S_ISSOCK(os.fstat(copied).st_mode):
            os.close(copied)
            continue
        with socket.socket(fileno=copied) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                yield found


def _listens(found: socket.socket) -> bool:
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
