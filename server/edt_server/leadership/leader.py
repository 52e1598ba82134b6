"""Which of the servers over one store leads: a lease in the store, with a fencing number that only grows.

The leader holds on to its lease from a thread of its own; the others look whether it still does. A leader whose process
is seen to be dead or stopped from here is followed at once, any other when its lease has not moved for as long as it is
valid by the follower's own clock, so that clocks need not agree. Every transaction of a leader checks the number first:
one that was stopped and is let go again writes nothing more, and asks whether it still leads before it answers anybody
(decision 034). Nothing here knows what leading means (`Member` is told that).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from edt_sdk.schemas.errors import EdtError, ServerUnreachable
from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.store import Lease, Store, StoreError, StoreUnavailable, Writer
from edt_server.system.processes import is_alive
from edt_server.system.standstill import BEAT, Pulse, Watch

log = logging.getLogger(__name__)

LEASE = "leader"
STOPPED = "is stopped"
# Clocks of two hosts may differ by so much; what is longer expired was left behind by somebody who is no more.
SKEW = 30.0
# How long somebody who asks waits for a leader, and a server that could not begin to lead until it tries again.
PATIENCE, AGAIN = 15.0, 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: between renewals, until a lease that is not renewed is over, between looks of a follower."""

    renew: float
    valid: float
    look: float


# On one host a death or a stop is seen at once; the rest is for a leader that hangs in any other way, and every renewal
# costs a write to the disk.
ONE_HOST = Pace(renew=2.0, valid=6.0, look=0.2)
MANY_HOSTS = Pace(renew=0.4, valid=1.5, look=0.2)


class LeaseLost(ServerUnreachable):
    """Another server leads now; nothing of what was to be written is."""


class Leadership:
    """One process's share in a lease. Blocks; used by one thread, but `confirmed`, which any may read, and `beat`.

    Args:
        store: whose leader is to be found.
        me: this process.
        url: where it is reached by the others.
        pace: how fast.
    """

    def __init__(self, store: Store, me: ProcessIdentity, url: str, pace: Pace) -> None:
        self._store = store
        self._me = me
        self._url = url
        self._pace = pace
        self._fencing = 0
        self._renewed = float("-inf")
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._watch = Watch()
        self._pulse = Pulse()

    @property
    def confirmed(self) -> bool:
        """True while nobody else can have begun to lead, as far as this process can know without asking."""
        now, renewed = time.monotonic(), self._renewed
        return now < renewed + self._pace.valid and self._pulse.unbroken_since(renewed, now)

    def claim(self) -> Lease | None:
        """Take the lease when nobody who lives has it. None: it is ours; else the lease as somebody else has it.

        Raises:
            StoreError: the store cannot be read or written to; a leader that was stopped in the middle of a transaction
                keeps everybody else's waiting, and is named then.
        """
        found = self._store.lease(LEASE)
        why = "" if found is None else self._why_over(found)
        if found is not None and not why:
            return found
        try:
            return self._take(found, why)
        except StoreUnavailable as trouble:
            if found is None or found.holder is None or why != STOPPED:
                raise
            pid = found.holder.pid
            raise StoreUnavailable(
                f"The server that leads {STOPPED} (process {pid}), and the job store cannot be written to meanwhile: "
                f"{trouble.message}",
                hint=f"It may hold the store's lock: let it go on (kill -CONT {pid}) or end it (kill -9 {pid}).",
            ) from trouble

    def _take(self, found: Lease | None, why: str) -> Lease | None:
        begun = time.monotonic()
        expires = time.time() + self._pace.valid
        with self._store.write() as tx:
            now = tx.lease(LEASE)
            if now is not None and now.holder is not None and now != found:
                return now  # it was judged as it was before: somebody has taken it since, or its holder has come back
            dead = None if found is None else found.fencing
            mine = tx.take_lease(LEASE, self._me, now=0.0, expires=expires, url=self._url, dead=dead)
            if mine is None:
                return tx.lease(LEASE)
        if found is not None and found.holder is not None:
            log.warning("this server leads from now on: the one at %s %s", found.url or "an unknown address", why)
        self._fencing, self._renewed, self._seen, self._pulse = mine.fencing, begun, None, Pulse()
        return None

    def begin_beats(self) -> None:
        """From now on `beat` is called every `BEAT` seconds, or this process stands still."""
        self._pulse.begin(self._renewed)

    def beat(self) -> bool:
        """This process lives; True when it may have been stopped meanwhile: only a renewal confirms it again."""
        return self._pulse.beat(time.monotonic())

    def renew(self) -> bool:
        """Hold on to it; False when it is lost. StoreUnavailable when that cannot be said now."""
        begun = time.monotonic()
        with self._store.write() as tx:
            kept = tx.renew_lease(LEASE, self._fencing, expires=time.time() + self._pace.valid)
        if kept:
            self._renewed = begun
        return kept

    def give_back(self) -> None:
        """Let the next one in."""
        self._renewed = float("-inf")
        with self._store.write() as tx:
            tx.release_lease(LEASE, self._fencing)

    def guarded(self) -> Store:
        """The store for what only the leader may do: its transactions fail with LeaseLost once we do not lead."""
        fencing = self._fencing

        def check(tx: Writer) -> None:
            lease = tx.lease(LEASE)
            if lease is None or lease.holder is None or lease.fencing != fencing:
                raise LeaseLost("Another server leads now.", hint="Try again in a moment.")

        return self._store.guarded(check)

    def _why_over(self, lease: Lease) -> str:
        """Why its holder leads no more, the predicate of a sentence; "" while it does."""
        now = time.monotonic()
        if self._seen != lease:
            self._seen, self._seen_at = lease, now
        if lease.holder is None:
            return "has given it back"
        if not is_alive(lease.holder):
            return "has ended"
        if self._watch.stands_still(lease.holder, now):
            return STOPPED
        if now >= self._seen_at + self._pace.valid or time.time() > lease.expires + SKEW:
            return "has not said for too long that it leads"
        return ""


class Member:
    """One server among those over a store: it leads, or it knows who does.

    Args:
        store: open; closed by its owner, after `stop`.
        me: this process.
        url: where it is reached by the others.
        pace: see `Leadership`.
        appoint: begins to lead, with the store to do it with.
        dismiss: ends that; called when it led, and when `appoint` was cut short by the loss of the lease.
    """

    def __init__(
        self,
        store: Store,
        me: ProcessIdentity,
        url: str,
        pace: Pace,
        appoint: Callable[[Store], Awaitable[None]],
        dismiss: Callable[[], Awaitable[None]],
    ) -> None:
        self._leadership = Leadership(store, me, url, pace)
        self._pace = pace
        self._appoint = appoint
        self._dismiss = dismiss
        self._other: Lease | None = None
        self._leads = False
        self._keeper: _Keeper | None = None
        self._lost = asyncio.Event()
        self._turned = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """True while this server leads and nobody else can."""
        return self._leads and self._leadership.confirmed

    async def start(self) -> None:
        """Lead, or find out who does; from now on do whichever is right.

        Raises:
            EdtError, OSError: it cannot lead. Then it does not try again.
        """
        await self._turn()
        self._task = asyncio.create_task(self._run(), name="edt leader")

    async def stop(self) -> None:
        """Lead no more, and let the next one in at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._keeper is not None:
            await self._step_down(release=True)

    async def leader(self) -> Lease | None:
        """Who leads, None for this server; waits while nobody does.

        Raises:
            ServerUnreachable: nobody does for long.
            StoreUnavailable: this server led, and cannot hold on to that for the store's trouble.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    if self.leads:
                        return None
                    if self._other is not None:
                        return self._other
                    if self._keeper is not None and (trouble := self._keeper.trouble) is not None:
                        raise StoreUnavailable(trouble.message, hint=trouble.hint)
                    await self._turned.wait()
        except TimeoutError:
            raise self._why_nobody() from None

    def _why_nobody(self) -> ServerUnreachable:
        if self._keeper is None:
            return ServerUnreachable(
                "No server leads those that share this job store.", hint="The servers' logs say why; try again."
            )
        if not self._leads:
            return ServerUnreachable(
                "This server is starting: it is not ready to run jobs yet.",
                hint="Try again in a moment; if it stays so, the server's log says what it waits for.",
            )
        return ServerUnreachable(
            f"This server's job store takes longer to write to than the {self._pace.valid:g} s in which it has to say "
            "that it still leads.",
            hint="Jobs go on. Try again; if it stays so, the disk that the store is on is too slow or too busy.",
        )

    async def succeeded(self, leader: Lease) -> None:
        """Return when that one leads no more, as far as is known here."""
        while self._other is not None and self._other.fencing == leader.fencing:
            await self._turned.wait()

    # --- from turn to turn --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause = self._pace.look
        while True:
            if self._leads:
                await self._lost.wait()
                log.warning("another server leads now")
                await self._step_down(release=False)
            else:
                await asyncio.sleep(pause)
            pause = self._pace.look
            try:
                await self._turn()
            except (EdtError, OSError) as trouble:
                log.error("this server cannot lead: %s", trouble)
                pause = AGAIN

    async def _turn(self) -> None:
        other = await asyncio.to_thread(self._leadership.claim)
        if other is not None:
            if self._other is None:
                log.info("the server at %s leads; this one passes on to it what it is asked", other.url)
            self._other = other
            self._tell()
            return
        self._other = None
        self._tell()
        self._lost.clear()
        self._keeper = _Keeper(self._leadership, self._pace.renew, self._tell_from_thread)
        self._keeper.start()
        try:
            await self._appoint(self._leadership.guarded())
        except BaseException:
            await self._step_down(release=True)
            raise
        self._leads = True
        self._tell()

    async def _step_down(self, *, release: bool) -> None:
        led, self._leads = self._leads, False
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.to_thread(keeper.end)
        if led:
            await self._dismiss()
        if release:
            with contextlib.suppress(StoreError):  # it expires
                await asyncio.to_thread(self._leadership.give_back)

    def _tell(self) -> None:
        if self._keeper is not None and self._keeper.lost:
            self._lost.set()
        self._turned.set()
        self._turned = asyncio.Event()

    def _tell_from_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._tell)


class _Keeper:
    """Renews a lease whatever the event loop does: in time, and as soon as this process may have been stopped.

    Args:
        leadership: whose.
        every: seconds.
        tell: called with the loop it was made on, from a thread, after each renewal, also one that failed.
    """

    def __init__(self, leadership: Leadership, every: float, tell: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        self._leadership = leadership
        self._every = every
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        self._due = threading.Event()
        # Two, since a renewal may take long, on a slow disk, and the beats must not wait for it.
        self._threads = [
            threading.Thread(target=self._renew, name="edt lease", daemon=True),
            threading.Thread(target=self._beat, name="edt beats", daemon=True),
        ]
        self.lost = False
        self.trouble: StoreError | None = None  # why it could not be renewed the last time

    def start(self) -> None:
        """Begin, until the end or the lease is lost."""
        self._leadership.begin_beats()
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Renew no more; returns when it does not."""
        self._over.set()
        self._due.set()
        for thread in self._threads:
            thread.join()

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            if self._leadership.beat():
                self._due.set()

    def _renew(self) -> None:
        while True:
            self._due.wait(self._every)
            self._due.clear()
            if self._over.is_set():
                return
            try:
                self.lost = not self._leadership.renew()
            except StoreError as wrong:
                if str(wrong) != str(self.trouble):
                    log.warning("the lease could not be renewed: %s", wrong)
                self.trouble = wrong
                self._tell(self._loop)
                continue
            self.trouble = None
            # Also of one that was in time: while it took long, somebody may have begun to wait for it.
            self._tell(self._loop)
            if self.lost:
                return
