"""Reserve a port of this host, so that no other program gets it by chance before the intended program binds it.

A bound socket that does not listen reserves the number: the system gives it to no program that asks for any port. A
program that binds it by number with SO_REUSEADDR, as every torch store does, still succeeds.
"""

from __future__ import annotations

import socket


class RunPorts:
    """The port, at this address, of the newest run of a plain job. A new run gets a new port."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._run = 0
        self._socket: socket.socket | None = None

    def of(self, run: int) -> int:
        """Return the port of a run, which is the newest one or the next."""
        if self._socket is None or self._run != run:
            self.close()
            self._run, self._socket = run, socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((self._host, 0))
        port: int = self._socket.getsockname()[1]
        return port

    def close(self) -> None:
        """Release the port, if there is one."""
        if self._socket is not None:
            self._socket.close()
