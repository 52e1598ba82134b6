"""The loop that carries out what is stored of deployments.

It compares the records with what the edge has counted and where the jobs are, and does what is missing: it lets a
revision take over, stops the job of one that answers no more, and asks for as many slots as the load needs. Verbs
change the records only. So a server that dies in the middle of anything goes on with it when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from edt_sdk.schemas.errors import Conflict, EdtError, NotFound
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.serving.edge_file import Counters, EdgeDeployment, EdgeState, Target
from edt_sdk.schemas.serving.replica_channel import socket_of
from edt_sdk.schemas.wire.control import ACCOUNT
from edt_server.catalogue.records import DEPLOYMENT
from edt_server.core.events import JobDemand
from edt_server.deployments import DeploymentRecord, EdgeProcess, Load, RevisionRecord, difference, verdict
from edt_server.ledger import Change
from edt_server.store import CatalogueRow, JobRow, StoreError

if TYPE_CHECKING:
    from edt_server.service.service import Service

log = logging.getLogger(__name__)

_INTERVAL = 0.25  # seconds between two looks at the edge while there are deployments
_PATIENCE = 3.0  # seconds for the edge to read a new file
_NONE = Counters()


class DeploymentReconciler:
    """The deployments of all users, and what is done for them.

    Attributes:
        rows: as last committed, by name.
        edge: the process that takes their requests.
        loads: by the job of a revision that answers.
    """

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self.rows: dict[str, CatalogueRow] = {}
        self.edge = EdgeProcess(settings.control_dir, settings.job_environ, settings.serve_host, settings.serve_port)
        self.loads: dict[str, Load] = {}
        self._service = service
        self._living: set[str] = set()  # jobs of deployments
        self._begun: dict[str, Counters] = {}  # what had been counted of a job when a canary was started
        self._state: EdgeState | None = None
        self._told_before: dict[str, EdgeDeployment] = {}
        self._ring = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[Any] | None = None

    async def adopt(self) -> None:
        """Go on with the deployments there are."""
        await self._read()
        alive = [state for state in JobState if not state.final]
        living = await asyncio.to_thread(self._service.store.jobs, states=alive)
        self._living = {row.id for row in living if row.spec.framework == Framework.SERVE}
        self._task = asyncio.create_task(self._run(), name="edt deployments")

    async def stop(self) -> None:
        """Stop looking after them. Edge and replicas go on, unless there is nothing to answer."""
        if self._task is None:
            return  # not even adopted: what there is belongs to another start
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if not any(record_of(row).active for row in self.rows.values()):
            await asyncio.to_thread(self.edge.end)

    def hear(self, states: Iterable[tuple[JobRow, JobState | None]]) -> None:
        """Take note of jobs that have begun or ended."""
        for row, _ in states:
            if row.spec.framework == Framework.SERVE:
                (self._living.discard if row.state.final else self._living.add)(row.id)
                self._ring.set()

    def ring(self) -> None:
        """Look at once: something was changed."""
        self._ring.set()

    async def followed(self) -> None:
        """Wait until the edge follows what was committed before this call, for seconds at most."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._ring.set()
        with contextlib.suppress(TimeoutError):  # no edge runs, or it is busy
            async with asyncio.timeout(_PATIENCE):
                await waiting

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def _reason(self, row: CatalogueRow, revision: RevisionRecord) -> str:
        """Return why a revision has no replica now, as a sentence, "" while one is about to answer."""
        try:
            view = await self._service.job(row.owner, revision.job)
        except NotFound:
            return ""
        if view.state.final:
            return view.message.partition("\n")[0]
        return "" if view.reason is None else view.reason.text

    def counted(self, job: str) -> Counters:
        """Return what the edge has counted of a revision's job, as of the last look."""
        return _NONE if self._state is None else self._state.targets.get(job, _NONE)

    def shares(self, record: DeploymentRecord) -> dict[int, int]:
        """Return the percent of the callers that each revision answers now, by its number."""
        coming = record.revision(record.coming)
        taken = coming.canary or 0 if coming is not None and self.counted(coming.job).replicas else 0
        return {record.coming: taken, record.active: 100 - taken}

    async def update(self, row: CatalogueRow, change_of: Callable[[DeploymentRecord], DeploymentRecord]) -> None:
        """Change the record of a deployment, as it is in the transaction."""
        await self._service.change(lambda change: changed(change, row, change_of))
        await self.refresh(row)

    async def refresh(self, row: CatalogueRow) -> None:
        """Read a deployment again, and look at once."""
        for each in await asyncio.to_thread(self._service.store.entries, row.owner, DEPLOYMENT):
            if each.id == row.id:
                self.rows[row.name] = each
        self._ring.set()

    async def _read(self) -> None:
        rows = await asyncio.to_thread(self._service.store.entries, None, DEPLOYMENT)
        self.rows = {row.name: row for row in rows}

    def _answering(self) -> set[str]:
        """Return the jobs of all revisions that answer or are about to."""
        return {each.job for row in self.rows.values() for each in record_of(row).answering}

    async def job(self, row: CatalogueRow, revision: RevisionRecord) -> JobRow | None:
        """Return the job of a revision, None when it was deleted."""
        try:
            return await self._service.mine(row.owner, revision.job)
        except NotFound:
            return None

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._ring.clear()
            busy = bool(self.rows or self._living)
            if busy:
                try:
                    await self._look()
                except (EdtError, StoreError, OSError) as wrong:
                    log.warning("deployments could not be looked after: %s", wrong)
                except Exception:
                    log.exception("deployments could not be looked after")  # by a mistake of ours; the next look may
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL if busy else None):
                    await self._ring.wait()
            if busy:
                await asyncio.sleep(_INTERVAL / 5)  # several changes at once are looked at once

    async def _look(self) -> None:
        """Compare what is with what is to be, and do what is missing."""
        waiting = len(self._waiting)
        self._state = await self.edge.state()
        told = {}
        for name in sorted(self.rows):
            try:
                if (row := self.rows.get(name)) is not None:  # it may be deleted meanwhile
                    await self._follow(row)
                    told[name] = await self._told(self.rows.get(name, row))
            except EdtError as wrong:  # such as an account that is gone: the others are looked after all the same
                log.warning("deployment %s could not be looked after: %s", name, wrong)
                if name in self._told_before:
                    told[name] = self._told_before[name]
        self._told_before = told
        number = await asyncio.to_thread(self.edge.tell, tuple(told.values()))
        if self._state is not None and self._state.number == number:
            for each in self._waiting[:waiting]:
                if not each.done():
                    each.set_result(None)
            del self._waiting[:waiting]
        # Without a revision that answers, it would only refuse.
        needed = any(record_of(row).active for row in self.rows.values())
        await asyncio.to_thread(self.edge.ensure if needed else self.edge.end)
        answering = self._answering()
        if self._living - answering:
            # A job is there as soon as its transaction is committed. The row of its deployment is read later.
            await self._read()
            answering = self._answering()
        for job in self._living - answering:
            await self._retire(job, number)
        for job in set(self.loads) - answering:
            self.loads.pop(job)
            self._begun.pop(job, None)

    async def _follow(self, row: CatalogueRow) -> None:
        """Let a revision take over, or give it up, and ask for the slots that the load needs."""
        record = record_of(row)
        active, coming = record.revision(record.active), record.revision(record.coming)
        if active is not None:
            job = await self.job(row, active)
            if job is None or job.state in (JobState.KILLED, JobState.FINISHED):
                await self.update(row, lambda there: there.stopped("It answered until its job was stopped."))
                return
            if not active.answered and self.counted(active.job).replicas:
                await self.update(row, lambda there: there.has_answered(active.number))
            await self._scale(record, active, job)
        if coming is None:
            return
        job = await self.job(row, coming)
        if job is None or job.state.final:
            why = "Its job was deleted." if job is None else job.message.partition("\n")[0]
            await self.update(row, lambda there: there.aborted(coming.number, f"It could not take over. {why}"))
        elif self.counted(coming.job).replicas:
            if coming.canary is None:
                await self.update(row, lambda there: there.promoted(coming.number))
                return
            await self._scale(record, coming, job)
            if active is not None and (why := self._against(active.job, coming.job)):
                await self.update(row, lambda there: there.aborted(coming.number, f"It was given up: {why}"))

    def _against(self, old: str, new: str) -> str:
        """Return why a canary must not go on, from what was counted of both since it began."""
        since = [(self._begun.setdefault(job, self.counted(job)), self.counted(job)) for job in (old, new)]
        return verdict(*(difference(*each) for each in since))

    async def _scale(self, record: DeploymentRecord, revision: RevisionRecord, job: JobRow) -> None:
        """Ask for as many slots as the load of a revision needs."""
        if job.state is not JobState.RUNNING:
            return  # its first replica has not shown yet that the version can be served
        if self._state is None:
            return
        load = self.loads.setdefault(revision.job, Load(max(1, record.settings.replicas[0])))
        others_wait = any(each.queued and not each.replicas for each in self._state.targets.values())
        wanted = load.hear(self.counted(revision.job), record.settings, time.monotonic(), others_wait=others_wait)

        def work(change: Change) -> None:
            core = change.core
            if revision.job in core.jobs and not core.suspended(revision.job) and core.asked(revision.job) != wanted:
                change.apply(JobDemand(revision.job, wanted))

        if await self._service.asked(revision.job) != wanted:
            await self._service.change(work)

    async def _retire(self, job: str, number: int) -> None:
        """Stop a job whose revision answers no more, once the edge has its last answer."""
        state = self._state
        if state is None:
            # An edge that does not run has no answer to wait for.
            if await asyncio.to_thread(lambda: self.edge.address) is not None:
                return
        elif state.number < number or job in state.targets:
            return
        row = await asyncio.to_thread(self._service.store.job, job)
        if row is not None and not row.state.final:
            with contextlib.suppress(Conflict):  # it has ended by itself
                await self._service.stop_job(row.owner, job, "Its deployment needs it no more.")
        self._living.discard(job)

    async def _told(self, row: CatalogueRow) -> EdgeDeployment:
        """Return a deployment as the edge has to know it."""
        record = record_of(row)
        settings, shares, targets = record.settings, self.shares(record), []
        for revision in record.answering:
            reason = "" if self.counted(revision.job).replicas else await self._reason(row, revision)
            targets.append(self._target(row, revision, shares[revision.number], reason))
        return EdgeDeployment(
            name=row.name,
            targets=tuple(targets),
            keys=tuple(key.told for key in record.keys),
            public=settings.public,
            origins=settings.origins,
        )

    def _target(self, row: CatalogueRow, revision: RevisionRecord, share: int, reason: str) -> Target:
        settings = self._service.settings
        account = settings.isolation_of(row.owner).account if settings.isolation.kind == ACCOUNT else None
        return Target(
            job=revision.job,
            revision=revision.number,
            version=revision.version,
            socket=str(socket_of(settings.runtime_dir / revision.job)),
            owner=None if account is None else (account.uid, account.gid),
            share=share,
            reason=reason,
            deadline=revision.deadline,
            max_batch=revision.max_batch,
        )


def changed(change: Change, row: CatalogueRow, change_of: Callable[[DeploymentRecord], DeploymentRecord]) -> None:
    """Change the record of a deployment in a transaction, as it is there. NotFound when it was deleted."""
    there = change.tx.entry(row.id)
    if there is None:
        raise NotFound(f"{row.name} was deleted.", field="name")
    change.tx.update_entry(row.id, msgspec.to_builtins(change_of(record_of(there))), change.now)


def record_of(row: CatalogueRow) -> DeploymentRecord:
    """Return the record of a deployment."""
    return msgspec.convert(row.data, DeploymentRecord)
