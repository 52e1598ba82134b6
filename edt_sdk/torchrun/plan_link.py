"""An agent's end of the link to its supervisor: who is in which round, as soon as it is said.

A thread reads; whoever waits for a round is woken, nobody polls. A supervisor that is gone is told as such: the agent
ends its processes as for any change, which lets scripts write their checkpoints, and then itself.
"""

from __future__ import annotations

import contextlib
import socket
import threading

import msgspec

from edt_sdk.schemas.wire import link as wire


class PlanLink:
    """The socket, a reader thread, and the newest that it has heard.

    Args:
        connection: a connected stream socket; this object owns it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._heard = threading.Condition()
        self._newest: wire.Round | None = None
        self._halted = 0
        self._gone = False
        threading.Thread(target=self._read, name="edt-link", daemon=True).start()

    @classmethod
    def connect(cls, path: str) -> PlanLink:
        """The link over the supervisor's Unix socket at `path`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        return cls(connection)

    def send(self, message: wire.FromAgent) -> None:
        """Hand a message to the kernel; dropped when there is nobody to hear it, which the reader finds out too."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(wire.encode(message))

    @property
    def gone(self) -> bool:
        """True when the supervisor is."""
        with self._heard:
            return self._gone

    def over(self, number: int) -> bool:
        """Whether round `number` is to end here, or has been followed by another."""
        with self._heard:
            return self._gone or self._halted >= number or (self._newest is not None and self._newest.number > number)

    def next_round(self, after: int) -> wire.Round | None:
        """The newest round above `after`, as soon as there is one; None without a supervisor."""
        with self._heard:
            self._heard.wait_for(lambda: self._gone or (self._newest is not None and self._newest.number > after))
            return None if self._gone else self._newest

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError), self._connection.makefile("rb") as lines:
            for line in lines:
                self._hear(wire.decode_downward(line))
        with self._heard:
            self._gone = True
            self._heard.notify_all()

    def _hear(self, message: wire.Downward) -> None:
        with self._heard:
            match message:
                case wire.Round():
                    self._newest = message
                case wire.Halt(round=number):
                    self._halted = max(self._halted, number)
            self._heard.notify_all()
