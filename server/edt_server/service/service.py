"""The service: joins core, store, supervisors and files; its verbs are in `reading.py` and `changing.py`.

Lives in the Jupyter Server's event loop and never blocks it: the ledger is changed and read in one writer thread
(`commits.py`), files in others. Every verb names its user. Stopping the service leaves every job as it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from edt_sdk.schemas.job import JobProgress, JobState
from edt_server.catalogue.catalogue import Catalogue
from edt_server.catalogue.places import clear_incoming
from edt_server.channel import Hosts, Supervision, Warm
from edt_server.files import job_files
from edt_server.history import TimelineFeed
from edt_server.jobs import Doubts, Limits, Retention
from edt_server.ledger import Commits, Ledger, Outcome, Paces, stop_requests
from edt_server.service.changing import Changing
from edt_server.service.clock import Clock, next_tell
from edt_server.service.device_watch import watch_devices
from edt_server.service.hub import Hub
from edt_server.service.latest_events import LatestEvents
from edt_server.service.latest_rows import LatestRows
from edt_server.service.measuring import Measuring
from edt_server.service.picturing import Picturing
from edt_server.service.sharing import Sharing
from edt_server.service.validations import Validations
from edt_server.settings import Settings
from edt_server.store import JobRow, Store
from edt_server.system.device_claims import DeviceClaims
from edt_server.system.interpreters import Interpreters
from edt_server.system.pauses import spare_what_is_here
from edt_server.system.private_files import make_private_dir
from edt_server.system.processes import identify, is_alive
from edt_server.system.runtime import ServerLock
from edt_server.system.slots import find_host, threads_per_slot

log = logging.getLogger(__name__)
T = TypeVar("T")
StateListener = Callable[[JobRow, JobState | None], None]


class Service(Changing):
    """One scheduler over one data folder.

    Args:
        settings: what the administrator decided.
        on_state: told every change of a job's state, after it is committed, with the state before.
        store: what to write to, open, of a server that leads those over it (see `leader.py`), and closed by whoever
            opened it; None to open the configured one, for a service that knows that it is the only one.
    """

    def __init__(
        self, settings: Settings, *, on_state: StateListener | None = None, store: Store | None = None
    ) -> None:
        self.settings = settings
        self.hub = Hub()
        self.sharing = Sharing(self.change, lambda: self._ledger.core.plan)
        self.catalogue = Catalogue(self)
        self.validations = Validations(self)
        self.threads_per_slot = settings.threads_per_slot
        self._on_state = on_state
        self._interpreters = Interpreters(settings.interpreter)
        self._commits = Commits(self._act)
        self._rows = LatestRows(self._commits)
        self._store = store
        self._hosts = Hosts(settings, self.sharing.set_hosts) if settings.local_hosts else None
        self._lock = ServerLock(settings.runtime_dir / "server.lock") if store is None else None
        self._doubts = Doubts(self._commits)
        self._living: set[str] = set()
        self._deleting: set[str] = set()
        self._clock = Clock(self.change, self._next_wake)
        self._paces = Paces()
        self._measuring = Measuring(self.change)
        self._watching: asyncio.Task[None] | None = None
        self._retention: Retention
        self._reading: asyncio.Task[None] | None = None
        self._warm: Warm

    # --- start and stop -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, find the slots, adopt the jobs that live.

        Raises:
            ServerUnreachable: another service that was given no store runs the jobs of this data folder.
            StoreError: the store cannot be used; nothing in it was changed.
        """
        if self._lock is not None:
            self._lock.acquire()
        try:
            await asyncio.to_thread(self._make_folders)
            self._ledger = await self._commits.open(self._open_ledger)
            self._claims = DeviceClaims(self.settings.data_dir, self.settings.runtime_dir, identify(os.getpid()))
            self._ledger.claims = self._claims
            await self._commits.read(self._ledger.keep_claims)
            self.sharing.elsewhere = self._claims.elsewhere
            await self._look_for_slots()
            self._timeline = TimelineFeed(self._ledger.store, lambda: self._ledger.seq, self._ledger.name)
            self._events = LatestEvents(self._ledger.store, lambda: self._ledger.seq)
            self.pictures = Picturing(self, self._events)
            settings = self.settings
            # A spare is a child of this process, and could not become one of an agent's.
            warm_workers = 0 if self._hosts else settings.warm_workers
            self._warm = Warm(warm_workers, settings.runtime_dir, settings.interpreter, self.threads_per_slot)
            self._supervision = Supervision(settings, self.change, self._heard, self._warm, self._hosts)
            await self._supervision.start()
            await self._adopt()
            self._watching = asyncio.create_task(
                watch_devices(self._claims, self.sharing, keep=lambda: self._commits.read(self._ledger.keep_claims)),
                name="edt devices",
            )
            limits = Limits(settings.retention_days, settings.retention_bytes)
            self._retention = Retention(
                limits,
                self._ledger.store,
                self.change,
                settings.data_dir,
                settings.runtime_dir,
                lambda job: self._supervision.gone(job, 0.0),
            )
            self._retention.start()
            self._clock.start()
            # A long history takes a while to read: begun now, nobody waits for it later.
            self._reading = asyncio.create_task(asyncio.to_thread(self._timeline.catch_up), name="edt timeline")
            spare_what_is_here()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Let go of everything; supervisors, drivers and workers go on."""
        self.hub.close()
        await self._clock.stop()
        await self._measuring.stop()
        await self._doubts.stop()
        await self._commits.stop_healing()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._hosts is not None:
            await self._hosts.stop()
        if hasattr(self, "_retention"):
            await self._retention.stop()
        if hasattr(self, "_supervision"):
            await self._supervision.stop()
            await self._warm.stop()
        if hasattr(self, "_timeline"):
            self._timeline.close()
            if self._reading is not None:
                await asyncio.gather(self._reading, return_exceptions=True)
        await self._commits.stop(close=self._store is None)
        if self._lock is not None:
            self._lock.release()

    def wake(self) -> None:
        """Somebody uses the service: have a spare supervisor ready for the first job."""
        self._warm.wake()

    @property
    def busy(self) -> bool:
        """True while a job has not ended."""
        return bool(self._living)

    @property
    def store(self) -> Store:
        """The open store."""
        return self._ledger.store

    @property
    def uploads(self) -> Path:
        """Where an upload may be kept until it is submitted."""
        return self.settings.data_dir / "uploads"

    def _open_ledger(self) -> Ledger:
        if self._store is None:
            return Ledger.open(self.settings.store_url, self.settings.plan)
        return Ledger(self._store, self.settings.plan)

    def _make_folders(self) -> None:
        make_private_dir(self.settings.data_dir)
        job_files.clear_uploads(self.uploads)
        clear_incoming(self.settings.data_dir)

    async def _look_for_slots(self) -> None:
        if self._hosts is not None:
            await self._hosts.start()
            hosts = self._hosts.there
        else:
            hosts = (await asyncio.to_thread(find_host, self.settings.local_slots),)
        # Nobody listens yet: what this decides is acted on when the jobs are adopted.
        plan = self.settings.plan
        await self._commits.read(self._ledger.change, lambda change: self.sharing.begin(change, plan, hosts))
        # A host that is away for a moment does not change what a job computes with.
        slots = sum(self.settings.local_hosts.values()) or len(self._ledger.core.slots)
        self.threads_per_slot = self.settings.threads_per_slot or threads_per_slot(slots)

    async def _adopt(self) -> None:
        rows = await self._commits.read(self._ledger.store.jobs)
        stopping = await self._commits.read(
            stop_requests, self._ledger.store, [r.id for r in rows if not r.state.final]
        )
        adopted: set[str] = set()
        for row in rows:
            # An ended job's supervisor may still wait for the answer to its last report.
            if not row.state.final or (row.supervisor is not None and is_alive(row.supervisor)):
                self._supervision.adopt(row, stopping=stopping.get(row.id))
                adopted.add(row.id)
            if not row.state.final:
                self._living.add(row.id)
        await asyncio.to_thread(job_files.clear_sockets, self.settings.runtime_dir, adopted)

    # --- what follows from a change -----------------------------------------------------------------------------------

    def _act(self, outcome: Outcome) -> None:
        for row, before in outcome.states:
            (self._living.discard if row.state.final else self._living.add)(row.id)
            if row.state is not JobState.RUNNING:
                self._paces.forget(row.id)
            if row.state.final:
                self._measuring.forget(row.id)
            log.info("job %s is %s, before=%s", row.id, row.state, before)
            if self._on_state is not None:
                self._on_state(row, before)
        for job, allocation in outcome.allocations.items():
            self._supervision.allocate(job, allocation)
            self._measuring.moved(job, time.time())
        for job in outcome.launches:
            self._supervision.begin(job)
        for job in {*outcome.jobs, *outcome.allocations}:
            self.hub.ring(job)
        self._clock.look()

    async def _next_wake(self) -> float | None:
        return await self._commits.read(next_tell, self._ledger, time.time())

    def _heard(self, job: str, progress: JobProgress) -> None:
        now = time.time()
        self._paces.heard(job, progress, now)
        self.hub.ring(job)
        if any(group.throughput_aware for group in self.sharing.plan.instance_groups):
            self._measuring.heard(job, progress, now)
