"""One process's end of the link to its supervisor (`edt_sdk.schemas.wire.link`).

A thread reads; everybody else sends and waits on a condition, nobody polls. The supervisor is the parent of all: once
its end of the socket is closed this process has no purpose and ends at once, wherever its other threads are. Only a
worker that is a member of a generation goes on: the others wait for it, and what they computed is worth a checkpoint.
To it a supervisor that is gone is the announcement of a generation above all others.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TypeVar

import msgspec

from edt_sdk.schemas.wire import link as wire

T = TypeVar("T", bound=wire.Downward)

SUPERVISOR_GONE = 1 << 62
"""What `Link.pending` is for a member whose supervisor is gone: above every generation there will ever be."""


class Link:
    """The socket, a reader thread, and what it has heard so far.

    Args:
        connection: a connected stream socket; this object owns it.

    Attributes:
        announced: called with each generation heard, in the reader's thread, so it must not wait; None for nobody.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.announced: Callable[[wire.Generation], None] | None = None
        self._connection = connection
        self._send_lock = threading.Lock()
        self._heard = threading.Condition()
        self._inbox: list[wire.Downward] = []
        self._generations: dict[int, wire.Generation] = {}
        self._pending = 0
        self._finished = False
        self._member = False
        # A forked child (a loader process) must not keep the socket open when this process is gone.
        os.register_at_fork(after_in_child=connection.close)
        threading.Thread(target=self._read, name="edt-link", daemon=True).start()

    @classmethod
    def connect(cls, path: str) -> Link:
        """The link over the supervisor's Unix socket at `path`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        return cls(connection)

    @property
    def pending(self) -> int:
        """The highest generation number heard, 0 before the first; `SUPERVISOR_GONE` to a member without one."""
        return self._pending

    def send(self, message: wire.Upward) -> None:
        """Hand a message to the kernel; from any thread. A member's is dropped when there is nobody to hear it."""
        try:
            with self._send_lock:
                self._connection.sendall(wire.encode(message))
        except OSError as error:
            self._lost(f"{type(error).__name__}: {error}")

    def become_member(self) -> None:
        """From now on a lost supervisor shows as `pending`, and does not end this process."""
        with self._heard:
            self._member = True

    def generation(self, number: int) -> wire.Generation | None:
        """Generation `number` ≤ `pending`; None when it was lost with the supervisor that announced it to others."""
        with self._heard:
            return self._generations.get(number)

    def wait_generation(self, worker: int) -> wire.Generation:
        """The newest generation that this worker is a member of, as soon as there is one."""
        with self._heard:
            while True:
                for number in sorted(self._generations, reverse=True):
                    generation = self._generations[number]
                    if any(member.worker == worker for member in generation.members):
                        return generation
                self._heard.wait()

    def wait_newer(self, number: int) -> wire.Generation | None:
        """The newest generation above `number`, whoever is in it, as soon as there is one; None without supervisor."""
        with self._heard:
            self._heard.wait_for(lambda: self._pending > number)
            return self._generations.get(self._pending)

    def take(self, *kinds: type[T], timeout: float | None = None) -> T | None:
        """The first message of these kinds, removed from the inbox.

        Args:
            *kinds: message classes.
            timeout: seconds to wait; None for as long as it takes. After it, None is returned.
        """
        with self._heard:
            self._heard.wait_for(lambda: any(isinstance(m, kinds) for m in self._inbox), timeout)
            for position, message in enumerate(self._inbox):
                if isinstance(message, kinds):
                    del self._inbox[position]
                    return message
        return None

    def finish(self) -> None:
        """Say that there is nothing to wait for any more: the supervisor may close its end without ending this process.

        Our end stays open until the process is gone, so that the supervisor does not see a lost link before the exit.
        """
        self._finished = True

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    self._hear(wire.decode_downward(line))
            why = "it closed the link"
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            why = f"{type(error).__name__}: {error}"
        self._lost(why)

    def _hear(self, message: wire.Downward) -> None:
        with self._heard:
            if isinstance(message, wire.Generation):
                self._generations[message.number] = message
                self._pending = max(self._pending, message.number)
            else:
                self._inbox.append(message)
            self._heard.notify_all()
        if self.announced is not None and isinstance(message, wire.Generation):
            self.announced(message)

    def _lost(self, why: str) -> None:
        with self._heard:
            goes_on, told = self._member or self._finished, self._pending == SUPERVISOR_GONE
            if goes_on:
                self._pending = SUPERVISOR_GONE
                self._heard.notify_all()
        if self._finished or told:
            return
        after = "after a checkpoint" if goes_on else "now"
        print(f"edt: the supervisor is gone ({why}); process {os.getpid()} ends {after}.", file=sys.stderr, flush=True)
        if not goes_on:
            end_process(1)


def end_process(code: int) -> NoReturn:
    """End this process now, with its loader processes and whatever its other threads are blocked in."""
    children = multiprocessing.active_children()
    for child in children:
        child.kill()
    for child in children:
        child.join(1)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)
