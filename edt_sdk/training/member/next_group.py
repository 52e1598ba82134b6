"""Build the next generation's group while the current one still trains.

A worker hears of a generation some time before the boundary at which all members switch to it. In the meantime one
thread builds the group and maps the members' memory, and a second thread has the system provide the memory that the
worker will need then. At the boundary the members only exchange their positions. A newer announcement makes an
unfinished attempt worthless. The attempt is dropped with its connections, so that no member waits for them.

No member computes in the new group before all of its members have made that first exchange in their main threads, so
nothing of the old group is touched too early.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from edt_sdk.schemas.wire.link import Generation
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.peer_errors import Superseded
from edt_sdk.training.member.membership import GroupMembership, is_member, rank_of

# Seconds between two checks whether to go on waiting for a group.
_LOOK = 0.01
Make = Callable[[Generation, Callable[[], None]], GroupMembership]


class NextGroup:
    """Prepares the newest announced generation for a worker.

    `make` makes a membership and calls its second argument until all members are there. `meet` is what the members do
    with the new group before the boundary. `expect` gets memory ready for (rank, world).
    """

    def __init__(
        self, worker: int, make: Make, meet: Callable[[Group], None], expect: Callable[[int, int], None]
    ) -> None:
        self._worker = worker
        self._make = make
        self._meet = meet
        self._expect = expect
        self._lock = threading.Lock()
        self._newest = 0
        self._attempt: _Attempt | None = None

    def announce(self, generation: Generation) -> None:
        """Start to prepare a generation unless a newer one is known. Callable from any thread, and never waits."""
        with self._lock:
            if generation.number <= self._newest:
                return
            self._newest = generation.number
            former, self._attempt = self._attempt, None
            if is_member(generation, self._worker):
                self._attempt = _Attempt(generation, self._make, self._meet)
                world = len(generation.members)
                # In a second thread: providing pages takes tens of ms, and the other members wait for the build
                # (decision 025).
                threading.Thread(
                    target=self._expect, args=(rank_of(generation, self._worker), world), name="edt-expect", daemon=True
                ).start()
        # Dropped after the lock is released, so that closing a group never holds up `take` in the training's thread.
        if former is not None:
            former.drop()

    def take(self, generation: Generation, waiting: Callable[[], None]) -> GroupMembership:
        """Wait until all members of a generation are there, and return the membership of this worker.

        `waiting` is called repeatedly until then. Raise in it to give up.

        Raises:
            Superseded: a newer generation is announced.
            RuntimeError: a member is gone.
        """
        self.announce(generation)
        with self._lock:
            attempt = self._attempt
        if attempt is None or attempt.number != generation.number:
            raise Superseded
        membership = attempt.wait(waiting)
        with self._lock:
            # A newer announcement may have replaced the attempt while this thread waited.
            if self._attempt is attempt:
                self._attempt = None
        return membership

    def drop(self) -> None:
        """Drop the announced generation, which will not be taken."""
        with self._lock:
            attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.drop()


class _Attempt:
    """Makes a membership in a thread that can be abandoned."""

    def __init__(self, generation: Generation, make: Make, meet: Callable[[Group], None]) -> None:
        self.number = generation.number
        self._generation = generation
        self._make = make
        self._meet = meet
        self._lock = threading.Lock()
        self._dropped = False
        self._made: GroupMembership | None = None
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=f"edt-upcoming-{self.number}", daemon=True).start()

    def wait(self, waiting: Callable[[], None]) -> GroupMembership:
        """Return the membership. Superseded when the attempt was dropped. An error that `waiting` raises drops it."""
        try:
            while not self._done.wait(_LOOK):
                waiting()
        except BaseException:
            self.drop()
            raise
        with self._lock:
            made, self._made = self._made, None
            error, self._error = self._error, None
        if error is not None:
            raise error
        if made is None:
            raise Superseded
        return made

    def drop(self) -> None:
        """Close the membership, also one that is still being made."""
        with self._lock:
            self._dropped = True
            made, self._made = self._made, None
            self._error = None
        if made is not None:
            made.close()  # wakes this thread in a transfer, and the members at its other end

    def _look(self) -> None:
        if self._dropped:
            raise Superseded

    def _run(self) -> None:
        try:
            membership = self._make(self._generation, self._look)
            # The lock decides the race with `drop`: either `drop` finds the membership and closes it, or it is closed
            # here.
            with self._lock:
                if not self._dropped:
                    self._made = membership
            if self._made is None:
                membership.close()
            else:
                self._meet(membership.group)
        except Exception as error:  # any error belongs to the waiting thread
            with self._lock:
                made, self._made = self._made, None
                # After `drop` the error only shows that the group was closed under this thread.
                if not self._dropped:
                    self._error = error
            if made is not None:
                made.close()
        self._done.set()
