"""The next generation's group, made while this one still trains.

A worker hears of a generation some time before the boundary at which all switch to it. Meanwhile another thread builds
its group and lets its members look at each other's memory, and a second one has the system provide the memory that the
worker will need then; what is left at the boundary is to tell each other how far everybody is. A newer announcement
makes an unfinished attempt worthless: it is dropped, with its connections, so that nobody waits for them.

Nobody computes in the new group before all its members have come to that first meeting in their own time, so nothing
that belongs to the old one is touched too early.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from edt_sdk.schemas.wire.link import Generation
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.peer_errors import Superseded
from edt_sdk.training.member.membership import Membership, is_member, rank_of

# How often somebody who waits for a group looks whether to go on waiting.
_LOOK = 0.01
Make = Callable[[Generation, Callable[[], None]], Membership]


class Upcoming:
    """The newest generation that was announced, on its way.

    Args:
        worker: number of this one.
        make: a membership in a generation, given something to call until all are there.
        meet: what its members do with the new group before the boundary.
        expect: have memory ready for (rank, world).
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
        """A generation is announced: begin with it, unless a newer one is known. From any thread; never waits."""
        with self._lock:
            if generation.number <= self._newest:
                return
            self._newest = generation.number
            former, self._attempt = self._attempt, None
            if is_member(generation, self._worker):
                self._attempt = _Attempt(generation, self._make, self._meet)
                world = len(generation.members)
                threading.Thread(
                    target=self._expect, args=(rank_of(generation, self._worker), world), name="edt-expect", daemon=True
                ).start()
        if former is not None:
            former.drop()

    def take(self, generation: Generation, waiting: Callable[[], None]) -> Membership:
        """The membership in a generation, as soon as all its members are there.

        Args:
            generation: this worker is a member of it.
            waiting: called again and again until then; raise in it to give up.

        Raises:
            Superseded: a newer one is announced.
            RuntimeError: a member is gone.
        """
        self.announce(generation)
        with self._lock:
            attempt = self._attempt
        if attempt is None or attempt.number != generation.number:
            raise Superseded
        membership = attempt.wait(waiting)
        with self._lock:
            if self._attempt is attempt:
                self._attempt = None
        return membership

    def drop(self) -> None:
        """Nothing that was announced will be taken."""
        with self._lock:
            attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.drop()


class _Attempt:
    """One membership while it is made, in a thread that can be left behind."""

    def __init__(self, generation: Generation, make: Make, meet: Callable[[Group], None]) -> None:
        self.number = generation.number
        self._generation = generation
        self._make = make
        self._meet = meet
        self._lock = threading.Lock()
        self._dropped = False
        self._made: Membership | None = None
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=f"edt-upcoming-{self.number}", daemon=True).start()

    def wait(self, waiting: Callable[[], None]) -> Membership:
        """What was made; RuntimeError when a member is gone, Superseded, and what `waiting` raises."""
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
        """Close what was made, and what will be."""
        with self._lock:
            self._dropped = True
            made, self._made = self._made, None
            self._error = None
        if made is not None:
            made.close()  # wakes the thread, should it be in a transfer, and the members at its other end

    def _look(self) -> None:
        if self._dropped:
            raise Superseded

    def _run(self) -> None:
        try:
            membership = self._make(self._generation, self._look)
            with self._lock:
                if not self._dropped:
                    self._made = membership
            if self._made is None:
                membership.close()
            else:
                self._meet(membership.group)
        except Exception as error:  # it is the waiting thread's, whatever it is
            with self._lock:
                made, self._made = self._made, None
                if not self._dropped:
                    self._error = error
            if made is not None:
                made.close()
        self._done.set()
