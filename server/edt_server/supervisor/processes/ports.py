"""A port of this host that nobody is given by chance while a program is on its way to it.

A bound socket that does not listen keeps the number: the system hands it to nobody who asks for any port, and it does
not stand in the way of a program that binds it by its number, as every store of torch's does, with SO_REUSEADDR.
"""

from __future__ import annotations

import socket


class KeptPort:
    """One port of loopback, kept until `close`; `number` is the port."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Keep it no longer."""
        self._socket.close()


class RunPorts:
    """The port of the newest run of a plain job; with a run's first process another one is kept.

    Args:
        host: whose.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._run = 0
        self._port: KeptPort | None = None

    def of(self, run: int) -> int:
        """The port of a run, which is the newest one or the next."""
        if self._port is None or self._run != run:
            self.close()
            self._port, self._run = KeptPort(self._host), run
        return self._port.number

    def close(self) -> None:
        """Keep none any longer."""
        if self._port is not None:
            self._port.close()
