"""Leader election among the servers over one store: a lease in the store, with a fencing token that only grows.

The leader renews its lease from a thread of its own, and the followers watch the lease. A follower takes over at once
when it sees that the leader's process is dead or stopped. Otherwise it waits until the lease has not changed for the
time a lease is valid. It measures that with its own clock, so that the clocks of two hosts need not agree. Every
transaction of a leader checks the fencing token first. A leader that was stopped (SIGSTOP) and continues therefore
writes nothing more, and it confirms its lease before it answers a request (decision 034). What a leader does is not
known here: `LeaderElection` calls `on_lead` and `on_resign`.
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
from edt_server.system.standstill import BEAT, StandstillPulse, StandstillWatch

log = logging.getLogger(__name__)

LEASE = "leader"
STOPPED = "is stopped"
# Seconds that a request waits for a leader, and that a server waits after it failed to start leading.
PATIENCE, AGAIN = 15.0, 5.0


@dataclass(frozen=True, slots=True)
class LeasePace:
    """Seconds between renewals, until an unrenewed lease expires, and between two looks of a follower."""

    renew: float
    valid: float
    look: float


# On one host a follower sees at once that the leader's process is dead or stopped. The long lease only covers other
# hangs, and every renewal costs a write to the disk, so renewals are rare.
ONE_HOST = LeasePace(renew=2.0, valid=6.0, look=0.2)
MANY_HOSTS = LeasePace(renew=0.4, valid=1.5, look=0.2)


class LeaseLost(ServerUnreachable):
    """Another server leads now. The transaction was rolled back."""


class Leadership:
    """The part of this process, which others reach at `url`, in the lease of a store. Blocks.

    One thread uses it, with two exceptions: any thread may read `confirmed`, and the heartbeat thread calls `beat`.
    """

    def __init__(self, store: Store, me: ProcessIdentity, url: str, pace: LeasePace) -> None:
        self._store = store
        self._me = me
        self._url = url
        self._pace = pace
        self._fencing = 0
        self._renewed = float("-inf")
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._watch = StandstillWatch()
        self._pulse = StandstillPulse()

    @property
    def confirmed(self) -> bool:
        """Return True while no other server can have taken the lease, as far as is known without asking the store."""
        # The age of the lease is not enough: a follower on this host takes over as soon as it sees this process
        # stopped, long before the lease expires. So the heartbeat must have no gap since the renewal (decision 034).
        now, renewed = time.monotonic(), self._renewed
        return now < renewed + self._pace.valid and self._pulse.unbroken_since(renewed, now)

    def claim(self) -> Lease | None:
        """Take the lease unless a living process holds it. Return the holder's lease, None when this process has it.

        StoreError when the store cannot be read or written to. A leader that was stopped in the middle of a transaction
        may hold the store's lock. The error names that process then.
        """
        found = self._store.lease(LEASE)
        why = "" if found is None else self._reason_expired(found)
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
        # Taken before the transaction: one that takes long shortens our own view of the lease, never lengthens it.
        begun = time.monotonic()
        expires = time.time() + self._pace.valid
        with self._store.write() as tx:
            now = tx.lease(LEASE)
            if now is not None and now.holder is not None and now != found:
                # The lease changed between the look and this transaction: another server took it, or the holder renewed
                # it. The verdict on the holder no longer applies.
                return now
            dead = None if found is None else found.fencing
            mine = tx.take_lease(LEASE, self._me, now=0.0, expires=expires, url=self._url, dead=dead)
            if mine is None:
                return tx.lease(LEASE)
        if found is not None and found.holder is not None:
            log.warning("this server leads from now on: the one at %s %s", found.url or "an unknown address", why)
        self._fencing, self._renewed, self._seen, self._pulse = mine.fencing, begun, None, StandstillPulse()
        return None

    def start_heartbeat(self) -> None:
        """Start the heartbeat: from now on a gap between two calls of `beat` means that this process was stopped."""
        self._pulse.begin(self._renewed)

    def beat(self) -> bool:
        """Record a heartbeat. True after a gap: the process may have been stopped, and only a renewal confirms it."""
        return self._pulse.beat(time.monotonic())

    def renew(self) -> bool:
        """Renew the lease. Return False when it is lost. Raises StoreUnavailable when the store cannot be asked."""
        begun = time.monotonic()
        with self._store.write() as tx:
            kept = tx.renew_lease(LEASE, self._fencing, expires=time.time() + self._pace.valid)
        if kept:
            self._renewed = begun
        return kept

    def give_back(self) -> None:
        """Release the lease, so that a follower can take it at once."""
        self._renewed = float("-inf")
        with self._store.write() as tx:
            tx.release_lease(LEASE, self._fencing)

    def guarded(self) -> Store:
        """Return the leader's store. Its transactions fail with LeaseLost once another server leads."""
        fencing = self._fencing

        def check(tx: Writer) -> None:
            # Inside of the transaction: between a check before it and the commit, the lease could change hands.
            lease = tx.lease(LEASE)
            if lease is None or lease.holder is None or lease.fencing != fencing:
                raise LeaseLost("Another server leads now.", hint="Try again in a moment.")

        return self._store.guarded(check)

    def _reason_expired(self, lease: Lease) -> str:
        """Return why the holder no longer leads, as the predicate of a sentence, or "" while it leads."""
        now = time.monotonic()
        if self._seen != lease:
            self._seen, self._seen_at = lease, now
        if lease.holder is None:
            return "has given it back"
        # Known only on this host. For a process on another host or in another container the lease must expire, by our
        # own clock. Its `expires` is not read: the clocks of two hosts may differ, and with a clock that is set ahead
        # this process would take the lease from a leader that renews it.
        if not is_alive(lease.holder):
            return "has ended"
        if self._watch.stands_still(lease.holder, now):
            return STOPPED
        if now >= self._seen_at + self._pace.valid:
            return "has not said for too long that it leads"
        return ""


class LeaderElection:
    """A server's view of the election: it leads, or it knows the leader.

    `on_lead` is called when this server starts to lead, with the store that only a leader may write to. `on_resign` is
    called when it stops leading, also when the loss of the lease interrupted `on_lead`. The owner of `store` closes it
    after `stop`.
    """

    def __init__(
        self,
        store: Store,
        me: ProcessIdentity,
        url: str,
        pace: LeasePace,
        on_lead: Callable[[Store], Awaitable[None]],
        on_resign: Callable[[], Awaitable[None]],
    ) -> None:
        self._leadership = Leadership(store, me, url, pace)
        self._pace = pace
        self._on_lead = on_lead
        self._on_resign = on_resign
        self._other: Lease | None = None
        self._leads = False
        self._keeper: _Keeper | None = None
        self._lost = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """Return True while this server leads and no other server can."""
        return self._leads and self._leadership.confirmed

    async def start(self) -> None:
        """Take the lease or find its holder, and follow every change from now on.

        Raises:
            EdtError, OSError: this server got the lease and could not start to lead. It does not try again.
        """
        await self._contend()
        self._task = asyncio.create_task(self._run(), name="edt leader")

    async def stop(self) -> None:
        """Stop leading or following, and release the lease at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._keeper is not None:
            await self._step_down(release=True)

    async def leader(self) -> Lease | None:
        """Return the leader's lease, None for this server. Waits while no server leads.

        Raises:
            ServerUnreachable: no server took the lease in time.
            StoreUnavailable: this server led, and the store's trouble keeps it from renewing the lease.
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
                    await self._changed.wait()
        except TimeoutError:
            raise self._no_leader_error() from None

    def _no_leader_error(self) -> ServerUnreachable:
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
        """Return when this leader no longer leads, as far as this server knows."""
        while self._other is not None and self._other.fencing == leader.fencing:
            await self._changed.wait()

    # --- taking and losing the lease ----------------------------------------------------------------------------------

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
                await self._contend()
            except (EdtError, OSError) as trouble:
                log.error("this server cannot lead: %s", trouble)
                pause = AGAIN

    async def _contend(self) -> None:
        other = await asyncio.to_thread(self._leadership.claim)
        if other is not None:
            if self._other is None:
                log.info("the server at %s leads; this one passes on to it what it is asked", other.url)
            self._other = other
            self._notify()
            return
        self._other = None
        self._notify()
        # Renewals start before `on_lead`: starting a service can take longer than a lease is valid.
        self._lost.clear()
        self._keeper = _Keeper(self._leadership, self._pace.renew, self._notify)
        self._keeper.start()
        try:
            await self._on_lead(self._leadership.guarded())
        except BaseException:
            await self._step_down(release=True)
            raise
        self._leads = True
        self._notify()

    async def _step_down(self, *, release: bool) -> None:
        # In this order: no request is accepted as leader any more, no renewal can follow the release, the service has
        # stopped writing, and only then may a follower take the lease.
        led, self._leads = self._leads, False
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.to_thread(keeper.end)
        if led:
            await self._on_resign()
        if release:
            with contextlib.suppress(StoreError):  # an unreleased lease expires
                await asyncio.to_thread(self._leadership.give_back)

    def _notify(self) -> None:
        if self._keeper is not None and self._keeper.lost:
            self._lost.set()
        self._changed.set()
        self._changed = asyncio.Event()


class _Keeper:
    """Renews a lease in time, and at once when this process may have been stopped.

    Threads, not tasks: an event loop that is blocked for seconds must not lose the lease. `notify` is called on
    the event loop after each renewal, also after a failed one.
    """

    def __init__(self, leadership: Leadership, every: float, notify: Callable[[], None]) -> None:
        self._leadership = leadership
        self._every = every
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        self._due = threading.Event()
        # Two threads: on a slow disk a renewal takes long, and a heartbeat that waited for it would look like a stop.
        self._threads = [
            threading.Thread(target=self._renew, name="edt lease", daemon=True),
            threading.Thread(target=self._beat, name="edt beats", daemon=True),
        ]
        self.lost = False
        self.trouble: StoreError | None = None  # why the last renewal failed

    def start(self) -> None:
        """Start to renew, until `end` or until the lease is lost."""
        self._leadership.start_heartbeat()
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop renewing the lease and wait until renewal has stopped."""
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
                self.trouble = None
            except StoreError as wrong:
                if str(wrong) != str(self.trouble):
                    log.warning("the lease could not be renewed: %s", wrong)
                self.trouble = wrong
            # Also after a success: a request may have started to wait while the lease was unconfirmed.
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no request waits any more
                self._loop.call_soon_threadsafe(self._notify)
            if self.lost:
                return
