"""`open_service`: open the parts of a service in their order, adopt the jobs that live, and close everything again.

The parts are closed in reverse order, also when the start fails half-way. Closing a service leaves every job as it is:
supervisors, drivers and workers go on. `Effects` is what follows from each committed change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from edt_sdk.schemas.job import JobProgress, JobState
from edt_server.catalogue.places import clear_incoming
from edt_server.channel import SpareSupervisors, Supervision
from edt_server.files import job_files
from edt_server.fleet import Fleet
from edt_server.history import TimelineFeed
from edt_server.jobs import Retention, RetentionLimits, UncommittedSubmissions
from edt_server.ledger import ChangeOutcome, Ledger, LedgerWriter, open_writer, recovery
from edt_server.service.clock import Clock
from edt_server.service.elastic_hosts import ElasticHosts
from edt_server.service.forecast import ForecastRates
from edt_server.service.hub import Hub
from edt_server.service.pauses import spare_what_is_here
from edt_server.service.service import Service
from edt_server.service.sharing import Sharing
from edt_server.service.speeds import SpeedMeter
from edt_server.settings import Settings
from edt_server.store import JobRow, Store, StoreError
from edt_server.system.device_claims import DeviceClaims
from edt_server.system.interpreters import Listed
from edt_server.system.private_files import make_private_dir
from edt_server.system.processes import identify, is_alive
from edt_server.system.runtime import server_lock
from edt_server.system.slots import find_host, threads_per_slot, usable_cores
from edt_server.system.steady_clock import SteadyClock

log = logging.getLogger(__name__)
StateListener = Callable[[JobRow, JobState | None], None]

LOOK_AT_DEVICES = 1.0  # seconds between two looks at the GPUs that other stores use


@asynccontextmanager
async def open_service(
    settings: Settings,
    *,
    on_state: StateListener | None = None,
    store: Store | None = None,
    listed: Listed | None = None,
) -> AsyncIterator[Service]:
    """Open the store, find the slots, adopt the jobs that live.

    Args:
        settings: the administrator's.
        on_state: callback, run with every change of a job's state after it is committed, and the state before.
        store: an open store owned by the caller (leader mode, see `leadership/`). None opens the configured one, under
            a lock that keeps a second service out of the data folder (single-server mode). ServerUnreachable when
            another service has the lock.
        listed: callback that returns the interpreters that users may choose, besides the default. None for any.
    """
    async with AsyncExitStack() as stack:
        if store is None:
            # Two services over one store would each decide from their own memory. A leader has the lease instead
            # (docs/decisions/014).
            stack.enter_context(server_lock(settings.runtime_dir / "server.lock"))
        await asyncio.to_thread(_make_folders, settings)

        def open_ledger() -> Ledger:
            if store is None:
                return Ledger.open(settings.store_url, settings.plan)
            return Ledger(store, settings.plan)

        writer = await stack.enter_async_context(open_writer(open_ledger, close=store is None))
        ledger = writer.ledger
        claims = ledger.claims = DeviceClaims(settings.data_dir, settings.runtime_dir, identify(os.getpid()))
        await writer.read(ledger.keep_claims)
        sharing = Sharing(writer, claims, settings.admins)
        fleet = Fleet(settings, sharing.set_hosts) if settings.local_hosts or settings.fleet_listen else None
        if fleet is not None:
            stack.push_async_callback(fleet.stop)
            await fleet.open()
        there = fleet.there if fleet else (await asyncio.to_thread(find_host, settings.local_slots),)
        # Not through `writer.change`: what this decides is acted on when the jobs are adopted.
        await writer.read(ledger.change, lambda change: sharing.begin(change, settings.plan, there))
        # By the slots of this machine alone: a host that comes or goes does not change what a job computes with.
        here = {*settings.local_hosts, socket.gethostname()}
        slots = sum(slot.host in here for slot in ledger.core.slots) or usable_cores()
        threads = settings.threads_per_slot or threads_per_slot(slots)

        timeline = TimelineFeed(ledger.store, lambda: ledger.seq, ledger.name)
        # A spare is a child of this process, and could not become one of an agent's. Agents have templates.
        spares = SpareSupervisors(
            0 if settings.local_hosts else settings.warm_workers,
            settings.runtime_dir,
            settings.interpreter,
            threads,
            settings.job_environ,
        )
        stack.push_async_callback(spares.stop)
        hub, rates = Hub(), ForecastRates()
        speeds = SpeedMeter(writer.change)

        def progressed(job: str, progress: JobProgress) -> None:
            now = ledger.clock.now()
            rates.heard(job, progress, now)
            hub.ring(job)
            if any(group.throughput_aware for group in sharing.plan.instance_groups):
                speeds.heard(job, progress, now)

        supervision = Supervision(settings, writer.change, progressed, spares, fleet)
        stack.push_async_callback(supervision.stop)
        limits = RetentionLimits(settings.retention_days, settings.retention_bytes)
        retention = Retention(
            limits,
            ledger.store,
            writer.change,
            settings.data_dir,
            settings.runtime_dir,
            lambda job: supervision.gone(job, 0.0),
        )
        stack.push_async_callback(retention.stop)
        if fleet is not None:
            # Once more, before supervision stops: that waits for launches, and a launch may wait for a host.
            stack.push_async_callback(fleet.stop)
        # A change that succeeds after supervision has stopped could not start the supervisor that it asks for.
        stack.push_async_callback(writer.stop_healing)
        uncommitted = UncommittedSubmissions(writer)
        stack.push_async_callback(uncommitted.stop)
        stack.push_async_callback(speeds.stop)
        clock = Clock(writer)
        stack.push_async_callback(clock.stop)
        effects = Effects(supervision, clock, hub, rates, speeds, ledger.clock, on_state)
        writer.follow(effects.act)
        parts = supervision, spares, claims, rates, timeline, uncommitted, effects.living, listed, fleet
        elastic = ElasticHosts(settings, writer, sharing, fleet)
        service = Service(settings, sharing, hub, threads, writer, *parts, elastic)
        # After `writer.follow`: a report that arrives now already has its effects.
        await _adopt(settings, writer, supervision, effects.living)
        if fleet is not None:
            await fleet.follow()
        stack.push_async_callback(elastic.stop)
        elastic.start()
        writer.follow(lambda outcome: service.searches.ring(outcome.jobs))
        stack.push_async_callback(service.searches.stop)
        await service.searches.adopt()
        writer.follow(lambda outcome: service.deployments.reconciler.hear(outcome.states))
        stack.push_async_callback(service.deployments.reconciler.stop)
        await service.deployments.reconciler.adopt()
        watching = asyncio.create_task(_watch_devices(claims, sharing, writer), name="edt devices")
        stack.push_async_callback(_finished, watching)
        stack.callback(watching.cancel)
        retention.start()
        clock.start()
        # A long history takes a while to read: it is read now, so that no request waits for it later.
        reading = asyncio.create_task(asyncio.to_thread(timeline.catch_up), name="edt timeline")
        stack.push_async_callback(_finished, reading)
        stack.callback(timeline.close)  # a thread cannot be cancelled, so it is asked to end
        stack.callback(hub.close)
        spare_what_is_here()
        yield service


def _make_folders(settings: Settings) -> None:
    make_private_dir(settings.data_dir)
    job_files.clear_uploads(settings.data_dir / "uploads")
    clear_incoming(settings.data_dir)


async def _adopt(settings: Settings, writer: LedgerWriter, supervision: Supervision, living: set[str]) -> None:
    """Listen to supervisors, and take over the jobs of the last server."""
    store = writer.ledger.store
    rows = await writer.read(store.jobs)
    living.update(row.id for row in rows if not row.state.final)
    stopping = await writer.read(recovery.stop_requests, store, sorted(living))
    adopted: set[str] = set()
    await supervision.start()
    # Nothing is awaited from here to the last adoption: a supervisor that connects in between would be refused,
    # because its key is not admitted yet.
    for row in rows:
        # An ended job's supervisor may still wait for the answer to its last report.
        if not row.state.final or (row.supervisor is not None and is_alive(row.supervisor)):
            supervision.adopt(row, stopping=stopping.get(row.id))
            adopted.add(row.id)
    await asyncio.to_thread(job_files.clear_sockets, settings.runtime_dir, adopted)


async def _watch_devices(claims: DeviceClaims, sharing: Sharing, writer: LedgerWriter) -> NoReturn:
    """Offer the GPUs that no other store's job uses, and give up those that our own jobs have left."""
    known: set[str] | None = None
    while True:
        await asyncio.sleep(LOOK_AT_DEVICES)
        if not sharing.has_gpus:
            continue
        now = set(await asyncio.to_thread(claims.elsewhere))
        if now != known:
            with contextlib.suppress(StoreError):  # the writer has logged it; the next look tries again
                await sharing.look_again()
                known = now
        await writer.read(writer.ledger.keep_claims)


async def _finished(task: asyncio.Task[Any]) -> None:
    await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Effects:
    """The parts of a service that act on a change, and the ids of the jobs that have not ended."""

    supervision: Supervision
    clock: Clock
    hub: Hub
    rates: ForecastRates
    speeds: SpeedMeter
    time: SteadyClock
    on_state: StateListener | None
    living: set[str] = field(default_factory=set)

    def act(self, outcome: ChangeOutcome) -> None:
        """Do what a committed change asks for."""
        for row, before in outcome.states:
            (self.living.discard if row.state.final else self.living.add)(row.id)
            if row.state is not JobState.RUNNING:
                self.rates.forget(row.id)
            if row.state.final:
                self.speeds.forget(row.id)
            log.info("job %s is %s, before=%s", row.id, row.state, before)
            if self.on_state is not None:
                self.on_state(row, before)
        for job, allocation in outcome.allocations.items():
            self.supervision.allocate(job, allocation)
            self.speeds.moved(job, self.time.now())
        for job in outcome.launches:
            self.supervision.begin(job)
        for job in {*outcome.jobs, *outcome.allocations}:
            self.hub.ring(job)
        # Any change may move the time of the core's next own event.
        self.clock.look()
