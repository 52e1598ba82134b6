"""Talk to the supervisor from one process of a job (`edt_sdk.schemas.wire.link`).

One thread reads. The other threads send under a lock, or wait on a condition without polling. The supervisor is the
parent of all processes of a job: once its end of the socket is closed, this process ends at once, wherever its other
threads are. Only a worker that is a member of a generation goes on, because its peers wait for it and their state is
worth a checkpoint. Such a worker takes the loss of the supervisor for the announcement of a generation above all
others.
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
"""The value of `Link.pending` for a member without a supervisor: above every generation number."""


class Link:
    """Owns a connected stream socket, with a reader thread and the messages received so far.

    `announced` is called with each generation received. It runs in the reader's thread and must not wait.
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
        # A forked loader process must not keep the socket open after this process is gone.
        os.register_at_fork(after_in_child=connection.close)
        threading.Thread(target=self._read, name="edt-link", daemon=True).start()

    @classmethod
    def connect(cls, path: str) -> Link:
        """Connect to the supervisor's Unix socket at `path`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        return cls(connection)

    @property
    def pending(self) -> int:
        """Return the highest generation number received: 0 before the first, `SUPERVISOR_GONE` without a supervisor."""
        return self._pending

    def send(self, message: wire.Upward) -> None:
        """Send a message from any thread. A member's message is dropped when the supervisor is gone."""
        try:
            # Without the lock, parts of two messages could interleave: sendall may need several system calls.
            with self._send_lock:
                self._connection.sendall(wire.encode(message))
        except OSError as error:
            self._lost(f"{type(error).__name__}: {error}")

    def become_member(self) -> None:
        """Let a lost supervisor set `pending` from now on, instead of ending this process."""
        with self._heard:
            self._member = True

    def generation(self, number: int) -> wire.Generation | None:
        """Return generation `number` ≤ `pending`, None when the supervisor died before it announced that here."""
        with self._heard:
            return self._generations.get(number)

    def wait_generation(self, worker: int) -> wire.Generation:
        """Wait for a generation that this worker is a member of, and return the newest such generation."""
        with self._heard:
            while True:
                for number in sorted(self._generations, reverse=True):
                    generation = self._generations[number]
                    if any(member.worker == worker for member in generation.members):
                        return generation
                self._heard.wait()

    def wait_newer(self, number: int) -> wire.Generation | None:
        """Wait for a generation above `number` and return the newest generation, None without a supervisor."""
        with self._heard:
            self._heard.wait_for(lambda: self._pending > number)
            return self._generations.get(self._pending)

    def take(self, *kinds: type[T], timeout: float | None = None) -> T | None:
        """Remove the first message of these kinds from the inbox and return it, None after `timeout` seconds."""
        with self._heard:
            self._heard.wait_for(lambda: any(isinstance(m, kinds) for m in self._inbox), timeout)
            for position, message in enumerate(self._inbox):
                if isinstance(message, kinds):
                    del self._inbox[position]
                    return message
        return None

    def finish(self) -> None:
        """Let the supervisor close its end of the link without ending this process.

        This end stays open until the process is gone, so that the supervisor does not see a lost link before the exit.
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
                # Never lower it: a failed send in another thread may have set SUPERVISOR_GONE while lines are still
                # being read.
                self._pending = max(self._pending, message.number)
            else:
                self._inbox.append(message)
            self._heard.notify_all()
        # Called without the lock: the callback takes the lock of `NextGroup`, and nested locks could deadlock.
        if self.announced is not None and isinstance(message, wire.Generation):
            self.announced(message)

    def _lost(self, why: str) -> None:
        with self._heard:
            goes_on, told = self._member or self._finished, self._pending == SUPERVISOR_GONE
            if goes_on:
                self._pending = SUPERVISOR_GONE
                self._heard.notify_all()
        # The reader and a failed send may both come here. Only the first one prints.
        if self._finished or told:
            return
        after = "after a checkpoint" if goes_on else "now"
        print(f"edt: the supervisor is gone ({why}); process {os.getpid()} ends {after}.", file=sys.stderr, flush=True)
        if not goes_on:
            end_process(1)


def end_process(code: int) -> NoReturn:
    """End this process now, with its loader processes, whatever its other threads are blocked in."""
    # os._exit skips the exit handler with which multiprocessing ends its children.
    children = multiprocessing.active_children()
    for child in children:
        child.kill()
    for child in children:
        child.join(1)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # its reader is gone, it is closed, or None
            stream.flush()
    # Not sys.exit: it only raises in this thread, while other threads may be blocked inside the library.
    os._exit(code)
