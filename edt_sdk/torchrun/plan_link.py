"""Connect an agent to its supervisor, and deliver the members of each round as soon as they are announced.

A reader thread wakes the thread that waits for a round, without polling. When the supervisor is gone, the agent ends
its processes as for any change, so that scripts can write their checkpoints, and then ends itself.
"""

from __future__ import annotations

import contextlib
import socket
import threading

import msgspec

from edt_sdk.schemas.wire import link as wire


class PlanLink:
    """Holds the socket, a reader thread, and the newest announcements."""

    def __init__(self, path: str) -> None:
        """Connect to the supervisor's Unix socket at `path`."""
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(path)
        self._sending = threading.Lock()
        self._heard = threading.Condition()
        self._newest: wire.Round | None = None
        self._halted = 0
        self._gone = False
        threading.Thread(target=self._read, name="edt-link", daemon=True).start()

    def send(self, message: wire.FromAgent) -> None:
        """Pass a message to the kernel. It is dropped when the supervisor is gone, which the reader also detects."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(wire.encode(message))

    @property
    def gone(self) -> bool:
        """Return True when the supervisor is gone."""
        with self._heard:
            return self._gone

    def over(self, number: int) -> bool:
        """Return whether round `number` must end here, or has been superseded."""
        with self._heard:
            return self._gone or self._halted >= number or (self._newest is not None and self._newest.number > number)

    def next_round(self, after: int) -> wire.Round | None:
        """Wait for the newest round above `after`. None without a supervisor."""
        with self._heard:
            self._heard.wait_for(lambda: self._gone or (self._newest is not None and self._newest.number > after))
            return None if self._gone else self._newest

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError), self._connection.makefile("rb") as lines:
            for line in lines:
                self._hear(wire.decode_downward(line))
        with self._heard:
            # Set under the condition, so that no waiter can miss the wake-up.
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
