"""Reserve a port of this host, so that no other program gets it by chance before the intended program binds it.

A bound socket that does not listen reserves the number: the system gives it to no program that asks for any port. A
program that binds it by number with SO_REUSEADDR, as every torch store does, still succeeds.
"""

from __future__ import annotations

import socket


class RunPorts:
    """The port of the newest run of a plain job. A new run gets a new port."""

    def __init__(self) -> None:
        self._run = 0
        self._socket: socket.socket | None = None

    def of(self, run: int, address: str) -> int:
        """Return the port of a run, which is the newest one or the next, at an address of this host."""
        if self._socket is None or self._run != run:
            self.close()
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            self._run, self._socket = run, socket.socket(family, socket.SOCK_STREAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((address, 0))
        port: int = self._socket.getsockname()[1]
        return port

    def close(self) -> None:
        """Release the port, if there is one."""
        if self._socket is not None:
            self._socket.close()
