"""The service: joins core, store, supervisors and files, and has one method for each verb.

Lives in the Jupyter Server's event loop and never blocks it: the ledger is changed and read in one writer thread,
files in others. A change is committed before it is acted on, and changes are acted on in the order they were
committed. Every verb names its user, and `_mine` is the only way from a job's id to a job. Stopping the service
leaves every job as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import Conflict, EdtError
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobPatch, JobProgress, JobSpec, JobState, JobView, Reason
from edt_sdk.schemas.paths import JobPaths
from edt_sdk.schemas.what_if import WhatIf
from edt_server import access, reports, results, submission, suspension, views, what_if
from edt_server.clock import Clock
from edt_server.cluster import cluster, unexplained
from edt_server.core import JobChanged
from edt_server.device_claims import DeviceClaims
from edt_server.hosts import Hosts
from edt_server.hub import Hub
from edt_server.interpreters import Interpreters
from edt_server.ledger import Change, Ledger, Outcome
from edt_server.paces import Paces
from edt_server.pauses import spare_what_is_here
from edt_server.private_files import make_private_dir
from edt_server.processes import identify, is_alive
from edt_server.retention import Limits, Retention
from edt_server.runtime import ServerLock
from edt_server.settings import Settings
from edt_server.sharing import Sharing
from edt_server.slots import find_host, threads_per_slot
from edt_server.speeds import Speeds, measure
from edt_server.store import JobRow, Store, StoreError
from edt_server.supervision import STOP_REQUESTED, Supervision
from edt_server.timeline_feed import TimelineFeed
from edt_server.warm import Warm

log = logging.getLogger(__name__)
T = TypeVar("T")
StateListener = Callable[[JobRow, JobState | None], None]

_PATIENCE_WITH_THE_DEAD = 10.0
_STORE_AWAY = 1.0
_LOOK_AT_DEVICES = 1.0


class Service:
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
        self.threads_per_slot = settings.threads_per_slot
        self._on_state = on_state
        self._interpreters = Interpreters(settings.interpreter)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="edt-writer")
        self._order = asyncio.Lock()
        self._store = store
        self._hosts = Hosts(settings, self.sharing.set_hosts) if settings.local_hosts else None
        self._lock = ServerLock(settings.runtime_dir / "server.lock") if store is None else None
        self._trouble: StoreError | None = None
        self._healing: asyncio.Task[None] | None = None
        self._doubts: set[asyncio.Task[None]] = set()
        self._living: set[str] = set()
        self._clock = Clock(self.change, self._next_wake)
        self._paces = Paces()
        self._speeds = Speeds()
        self._measuring: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._claims: DeviceClaims
        self._watching: asyncio.Task[None] | None = None
        self._ledger: Ledger
        self._supervision: Supervision
        self._retention: Retention
        self._timeline: TimelineFeed
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
            self._ledger = await self._in_writer(self._open_ledger)
            self._claims = DeviceClaims(self.settings.data_dir, self.settings.runtime_dir, identify(os.getpid()))
            self._ledger.claims = self._claims
            await self._in_writer(self._ledger.keep_claims)
            self.sharing.elsewhere = self._claims.elsewhere
            await self._look_for_slots()
            self._timeline = TimelineFeed(self._ledger.store, lambda: self._ledger.seq, self._ledger.name)
            settings = self.settings
            # A spare is a child of this process, and could not become one of an agent's.
            warm_workers = 0 if self._hosts else settings.warm_workers
            self._warm = Warm(warm_workers, settings.runtime_dir, settings.interpreter, self.threads_per_slot)
            self._supervision = Supervision(settings, self.change, self._heard, self._warm, self._hosts)
            await self._supervision.start()
            await self._adopt()
            self._watching = asyncio.create_task(self._watch_devices(), name="edt devices")
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
        await asyncio.gather(*self._measuring, return_exceptions=True)
        waiting = [*self._doubts, *(() if self._healing is None else (self._healing,))]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
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
        if hasattr(self, "_ledger"):
            await self._in_writer(self._ledger.keep_snapshot)
            if self._store is None:
                await self._in_writer(self._ledger.close)
        self._writer.shutdown(wait=False)
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
    def uploads(self) -> Path:
        """Where an upload may be kept until it is submitted."""
        return self.settings.data_dir / "uploads"

    def _open_ledger(self) -> Ledger:
        if self._store is None:
            return Ledger.open(self.settings.store_url, self.settings.plan)
        return Ledger(self._store, self.settings.plan)

    def _make_folders(self) -> None:
        make_private_dir(self.settings.data_dir)
        submission.clear_uploads(self.uploads)

    async def _look_for_slots(self) -> None:
        if self._hosts is not None:
            await self._hosts.start()
            hosts = self._hosts.there
        else:
            hosts = (await asyncio.to_thread(find_host, self.settings.local_slots),)
        # Nobody listens yet: what this decides is acted on when the jobs are adopted.
        await self._in_writer(self._ledger.change, lambda change: self.sharing.begin(change, self.settings.plan, hosts))
        # A host that is away for a moment does not change what a job computes with.
        slots = sum(self.settings.local_hosts.values()) or len(self._ledger.core.slots)
        self.threads_per_slot = self.settings.threads_per_slot or threads_per_slot(slots)

    async def _watch_devices(self) -> None:
        """Offer a GPU that another store's jobs have left, and none that they are in."""
        known: set[str] | None = None
        while True:
            await asyncio.sleep(_LOOK_AT_DEVICES)
            if not self.sharing.has_gpus:
                continue
            now = set(await asyncio.to_thread(self._claims.elsewhere))
            if now != known:
                with contextlib.suppress(StoreError):  # said elsewhere; the next look tries again
                    await self.sharing.look_again()
                    known = now
            await self._in_writer(self._ledger.keep_claims)

    async def _adopt(self) -> None:
        rows = await self._in_writer(self._ledger.store.jobs)
        stopping = await self._in_writer(self._stops, [row.id for row in rows if not row.state.final])
        adopted: set[str] = set()
        for row in rows:
            # An ended job's supervisor may still wait for the answer to its last report.
            if not row.state.final or (row.supervisor is not None and is_alive(row.supervisor)):
                self._supervision.adopt(row, stopping=stopping.get(row.id))
                adopted.add(row.id)
            if not row.state.final:
                self._living.add(row.id)
        await asyncio.to_thread(submission.clear_sockets, self.settings.runtime_dir, adopted)

    def _stops(self, living: Sequence[str]) -> dict[str | None, str]:
        """Why each of the jobs is to be stopped; one that came back later is not."""
        stopping: dict[str | None, str] = {}
        for event in self._ledger.store.events(jobs=living, kinds=[STOP_REQUESTED, kinds.JOB_ARRIVED]):
            if event.kind == STOP_REQUESTED:
                stopping[event.job] = str(event.data.get("why", ""))
            else:
                stopping.pop(event.job, None)
        return stopping

    # --- changing the ledger ------------------------------------------------------------------------------------------

    async def change(self, work: Callable[[Change], T]) -> T:
        """Run `work` in a transaction, and do what follows from it once it is committed."""
        try:
            async with self._order:
                value, outcome = await self._in_writer(lambda: self._ledger.change(work))
                self._act(outcome)
            if self._ledger.snapshot_due and (self._keeping is None or self._keeping.done()):
                self._keeping = asyncio.create_task(self._in_writer(self._ledger.keep_snapshot))  # nobody waits for it
        except StoreError as trouble:
            self._heal(trouble)
            raise
        return value

    @property
    def trouble(self) -> StoreError | None:
        """Why nothing can be written to the store now, None when all is well. Jobs go on all the same."""
        return self._trouble

    def _heal(self, trouble: StoreError) -> None:
        """Look until the store can be written to again; what was left undone then follows."""
        if str(trouble) != str(self._trouble):
            log.error("%s", trouble)
        self._trouble = trouble
        if self._healing is None:
            self._healing = asyncio.create_task(self._until_well(), name="edt store")

    async def _until_well(self) -> None:
        while self._trouble is not None:
            await asyncio.sleep(_STORE_AWAY)
            with contextlib.suppress(StoreError):  # `change` has said so
                await self.change(lambda change: change.tx.probe())
                self._trouble = None
        self._healing = None
        log.warning("the job store can be written to again")

    def _act(self, outcome: Outcome) -> None:
        for row, before in outcome.states:
            (self._living.discard if row.state.final else self._living.add)(row.id)
            if row.state is not JobState.RUNNING:
                self._paces.forget(row.id)
            if row.state.final:
                self._speeds.forget(row.id)
            log.info("job %s is %s, before=%s", row.id, row.state, before)
            if self._on_state is not None:
                self._on_state(row, before)
        for job, allocation in outcome.allocations.items():
            self._supervision.allocate(job, allocation)
        for job in outcome.launches:
            self._supervision.begin(job)
        for job in {*outcome.jobs, *outcome.allocations}:
            self.hub.ring(job)
        self._clock.look()

    async def _in_writer(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work, *args)

    async def _next_wake(self) -> float | None:
        return await self._in_writer(lambda: self._ledger.core.next_wake(time.time()))

    # --- verbs that change --------------------------------------------------------------------------------------------

    async def submit(self, user: str, spec: JobSpec, package: Path) -> JobView:
        """Make a job of a package (a file, left where it is).

        Raises:
            InvalidRequest, Unprocessable: the specification cannot be used here.
            NotFound, NotAllowed: the job whose weights it begins with is not there, or somebody else's.
            PackageError: the package cannot. Nothing is left behind.
        """
        spec.check()
        spec = msgspec.structs.replace(spec, instance_group=self.sharing.plan.group(spec.instance_group).name)
        await self._in_writer(self._ledger.core.fits, spec.instance_group, spec.min_workers, spec.slots_per_unit)
        interpreter = await self._interpreters.choose(spec)
        threads = spec.threads_per_slot or self.threads_per_slot
        weights: Path | None = None
        if spec.warm_start:
            former = await self.mine(user, spec.warm_start)
            weights = await asyncio.to_thread(submission.weights_of, self.paths(former))
        accepted = await asyncio.to_thread(
            submission.place, self.settings, user, spec, package, interpreter.path, threads, weights
        )
        try:
            await self.change(accepted.enter)
        except (StoreError, asyncio.CancelledError):
            # It may have been committed all the same: its files stay until that is known.
            task = asyncio.create_task(self._remove_unless_entered(accepted.paths), name=f"edt doubt {accepted.job}")
            self._doubts.add(task)
            task.add_done_callback(self._doubts.discard)
            raise
        except BaseException:
            await asyncio.to_thread(submission.remove, accepted.paths)
            raise
        return await self.job(user, accepted.job)

    async def _remove_unless_entered(self, paths: JobPaths) -> None:
        while True:
            with contextlib.suppress(StoreError):
                if await self._in_writer(self._ledger.store.job, paths.job_id) is None:
                    await asyncio.to_thread(submission.remove, paths)
                return
            await asyncio.sleep(_STORE_AWAY)

    async def update(self, user: str, job: str, patch: JobPatch) -> JobView:
        """Change a living job's priority, maximum of workers or queue.

        Raises:
            Conflict: it has ended.
            Unprocessable: no such queue, or a value out of bounds.
        """
        patch.check()

        def work(change: Change) -> JobRow:
            row = self._mine(user, job, change.row(job))
            if row.state.final:
                raise _ended(row, "changed")
            wanted = {
                "priority": patch.priority,
                "max_workers": patch.max_workers,
                "instance_group": patch.instance_group,
            }
            if patch.instance_group is not None:
                change.core.fits(patch.instance_group, row.spec.min_workers, row.spec.slots_per_unit)
            changes = {key: value for key, value in wanted.items() if value is not None}
            before = {key: getattr(row, key) for key in changes}
            event = JobChanged(job, patch.priority, patch.max_workers, patch.instance_group)
            change.apply(event, before=before, by=user)
            return change.tx.update_job(job, **changes) if changes else row

        return await self._view(await self.change(work))

    async def stop_job(self, user: str, job: str) -> JobView:
        """End a job as KILLED: at once when nothing of it runs, else as soon as its processes have ended.

        Raises:
            Conflict: it has ended.
        """
        why = f"Stopped by {user}."

        def work(change: Change) -> JobRow:
            row = self._mine(user, job, change.row(job))
            if row.state.final:
                raise _ended(row, "stopped")
            if not row.supervised:
                reports.end(change, job, JobState.KILLED, why)
                submission.clear_traces(self.settings.runtime_dir, job)
            else:
                change.append(STOP_REQUESTED, job, {"why": why})
            return change.row(job)

        row = await self.change(work)
        if not row.state.final:
            self._supervision.end(job, why)
        return await self._view(row)

    async def stop_all(self, user: str) -> list[str]:
        """Stop all jobs of the user that have not ended; their ids."""
        stopped: list[str] = []
        for row in await self._in_writer(lambda: self._ledger.store.jobs(owner=user)):
            if not row.state.final:
                try:
                    await self.stop_job(user, row.id)
                except Conflict:
                    continue  # it ended by itself meanwhile
                stopped.append(row.id)
        return stopped

    async def suspend(self, user: str, job: str) -> JobView:
        """Take all slots from a job until it is resumed. It is SUSPENDED when its workers have left; not final.

        Raises:
            Conflict: it has ended.
        """

        def work(change: Change) -> JobRow:
            row = self._mine(user, job, change.row(job))
            if row.state.final:
                raise _ended(row, "suspended")
            return suspension.suspend(change, job, user)

        return await self._view(await self.change(work))

    async def resume(self, user: str, job: str, checkpoint: str = "") -> JobView:
        """Let a job go on that is suspended, or that was stopped or failed after it began to train.

        Args:
            user: who asks.
            job: its id.
            checkpoint: what to go on from, such as "epoch-3"; "" for the newest there is.

        Raises:
            Conflict: it is over for good, or a checkpoint was named while workers still run.
            InvalidRequest, NotFound: there can be no, or there is no checkpoint of that name.
        """
        row = await self.mine(user, job)
        paths = self.paths(row)
        if row.state.final and not await self._supervision.gone(job, _PATIENCE_WITH_THE_DEAD):
            raise Conflict(f"Processes of job {job} are still ending.", hint="Try again in a moment.", job=job)

        def work(change: Change) -> JobRow:
            self._mine(user, job, change.row(job))
            return suspension.resume(change, paths, job, user, checkpoint)

        return await self._view(await self.change(work))

    async def delete(self, user: str, job: str) -> None:
        """Remove an ended job with all its files. Conflict when it has not ended."""
        row = await self.mine(user, job)
        if not row.state.final:
            raise Conflict(f"Job {job} is {row.state.value}.", hint="Stop it first, then delete it.", job=job)
        await self._supervision.gone(job, _PATIENCE_WITH_THE_DEAD)
        await asyncio.to_thread(submission.remove, self.paths(row))
        await asyncio.to_thread(submission.clear_traces, self.settings.runtime_dir, job)
        await self.change(lambda change: change.tx.delete_job(job))

    # --- verbs that read ----------------------------------------------------------------------------------------------

    async def mine(self, user: str, job: str) -> JobRow:
        """The user's job. NotFound, or NotAllowed when it is somebody else's."""
        return self._mine(user, job, await self._in_writer(self._ledger.row, job))

    def ended(self, job: str) -> bool:
        """Whether nothing of the job runs any more, as it was last committed; also of one that was deleted."""
        return job not in self._living

    async def job(self, user: str, job: str) -> JobView:
        """The job as it is now."""
        return await self._view(await self.mine(user, job))

    async def jobs(
        self,
        user: str,
        *,
        everybody: bool = False,
        state: JobState | None = None,
        before: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> list[JobView]:
        """The user's jobs, newest first; with `everybody` also what is public of the others'.

        At most `limit`, and only those that come after the one of `before`: when it was created, and its id.
        """
        owner = None if everybody else user
        states = None if state is None else [state]

        def read() -> tuple[list[JobView], list[JobRow]]:
            rows = self._ledger.store.jobs(owner=owner, states=states, before=before, limit=limit)
            # Ended jobs do not change any more: decisions need not wait until those are shown.
            return [self._show(row) for row in rows if row.state.final], [r for r in rows if not r.state.final]

        ended, living = await asyncio.to_thread(read)
        if living:
            ended += await self._in_writer(lambda: [self._show(row) for row in living])
        ended.sort(key=lambda view: (view.created, view.id), reverse=True)
        return [view if access.may(user, view.owner) else views.public_view(view) for view in ended]

    async def events(self, user: str, job: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The job's events with a number above `after`, oldest first."""
        await self.mine(user, job)
        return await asyncio.to_thread(lambda: self._ledger.store.events(job=job, after=after, limit=limit))

    async def timeline(
        self,
        user: str,
        job: str | None = None,
        *,
        start: float | None = None,
        end: float | None = None,
        points: int | None = None,
    ) -> dict[str, Any]:
        """Who held how many slots when and why; see `TimelineFeed.read`."""
        if job is not None:
            await self.mine(user, job)
        told = await asyncio.to_thread(self._timeline.read, job=job, start=start, end=end, points=points)
        return {"capacity": len(self._ledger.core.slots), **told}

    async def workers(self, user: str, job: str) -> list[dict[str, Any]]:
        """The workers of the job that run now."""
        row = await self.mine(user, job)
        if row.state.final:
            return []
        events = await asyncio.to_thread(lambda: self._ledger.store.events(job=job, kinds=views.WORKER_KINDS))
        return views.running_workers(events, self._ledger.core.slots)

    async def what_if(self, user: str, job: str, patch: JobPatch) -> WhatIf:
        """Who would hold how many slots with this change, and when the job would end. Nothing is changed.

        Raises:
            Conflict: it has ended.
            Unprocessable: the change itself would be refused.
        """
        row = await self.mine(user, job)
        patch.check()
        if row.state.final:
            raise _ended(row, "changed")
        now = await self._in_writer(what_if.look, self._ledger, self.progress, time.time())
        return await asyncio.to_thread(what_if.answer, now, job, patch)

    async def checkpoints(self, user: str, job: str) -> list[results.Checkpoint]:
        """The checkpoints the job has written."""
        return await asyncio.to_thread(results.checkpoints, self.paths(await self.mine(user, job)))

    async def result(self, user: str, job: str, part: str) -> results.ResultZip:
        """A part of the job's result as a zip, not read yet."""
        return await asyncio.to_thread(results.plan, self.paths(await self.mine(user, job)), part)

    async def cluster(self, user: str) -> dict[str, Any]:
        """Slots with the job in each, groups, jobs that live, and the threads of a slot."""

        def read() -> dict[str, Any]:
            rows = self._ledger.store.jobs(states=[state for state in JobState if not state.final])
            return cluster(self._ledger.core, rows)

        others = await asyncio.to_thread(self._claims.elsewhere)
        elsewhere = [{"device": device, "data_dir": claim.data_dir} for device, claim in sorted(others.items())]
        answer = await self._in_writer(read)
        for job in unexplained(answer, user):
            job["reason"] = await self._in_writer(self._why, job["id"])  # one by one: decisions come in between
        return {**answer, "threads_per_slot": self.threads_per_slot, "elsewhere": elsewhere}

    def _why(self, job: str) -> str:
        row = self._ledger.store.job(job)
        reason = None if row is None else self._show(row).reason
        return "" if reason is None else reason.text

    def paths(self, row: JobRow) -> JobPaths:
        """Where the job's files are."""
        return JobPaths(self.settings.data_dir, row.owner, row.id)

    # --- one place for each -------------------------------------------------------------------------------------------

    def _mine(self, user: str, job: str, row: JobRow) -> JobRow:
        access.check(user, row.owner, job)
        return row

    async def _view(self, row: JobRow) -> JobView:
        return await self._in_writer(self._show, row)

    def _show(self, row: JobRow) -> JobView:
        view = views.job_view(
            self._ledger, row, self.settings.data_dir, self.progress(row.id), now=time.time(), ends=self._paces.ends()
        )
        return view if view.reason is None or not self.sharing.has_gpus else self._explained(view, view.reason)

    def _explained(self, view: JobView, reason: Reason) -> JobView:
        others = self._claims.elsewhere()
        if not others:
            return view
        named = ", ".join(f"{device} ({claim.data_dir})" for device, claim in sorted(others.items()))
        text = f"{reason.text} Jobs of another job store on this machine are in {named}."
        return msgspec.structs.replace(view, reason=msgspec.structs.replace(reason, text=text))

    def _heard(self, job: str, progress: JobProgress) -> None:
        now = time.time()
        self._paces.heard(job, progress, now)
        self.hub.ring(job)
        aware = any(group.throughput_aware for group in self.sharing.plan.instance_groups)
        if aware and self._speeds.due(job, now):
            task = asyncio.create_task(self._measure(job, progress, now))
            self._measuring.add(task)
            task.add_done_callback(self._measuring.discard)

    async def _measure(self, job: str, progress: JobProgress, now: float) -> None:
        try:
            await self.change(lambda change: measure(change, job, progress, now))
        except EdtError as error:
            log.warning("the speed of job %s could not be noted: %s", job, error)

    def progress(self, job: str) -> JobProgress | None:
        """The newest progress heard, None when there is none newer than the store's."""
        return self._supervision.progress(job)


def _ended(row: JobRow, what: str) -> Conflict:
    ended = time.strftime("%H:%M:%S", time.localtime(row.ended))
    return Conflict(
        f"Job {row.id} is {row.state.value} since {ended}; it cannot be {what} any more.",
        hint="Submit it again to run it once more.",
        job=row.id,
        state=row.state.value,
    )
