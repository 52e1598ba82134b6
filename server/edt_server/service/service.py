"""`Service`: one method for each verb on a user's jobs, and the parts that have verbs of their own.

The service lives in the Jupyter Server's event loop and never blocks it. The ledger is changed and read in one writer
thread (`ledger/writer.py`), files in other threads. Every verb names its user, and `access.checked` guards each way
from a job's id to a job. A verb that changes a job does so in one transaction, and its effects follow once the
transaction is committed (`Effects`). `open_service` in `assembly.py` makes a service and closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edt_sdk.pictures.parts.colours import colour_for_new
from edt_sdk.pictures.parts.look import JOB_COLOURS, job_colour
from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.forecast import Forecast, WhatIf
from edt_sdk.schemas.job import SCHEDULED, JobPatch, JobSpec, JobState, JobView, Reason
from edt_sdk.schemas.plan import InstanceGroup
from edt_sdk.schemas.registered import Registered
from edt_sdk.schemas.serving.versions import VersionReference, is_version
from edt_sdk.schemas.wire.control import ACCOUNT
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.catalogue.catalogue import Catalogue
from edt_server.catalogue.places import check_folder
from edt_server.channel import SpareSupervisors, Supervision
from edt_server.core.core import Core
from edt_server.core.events import JobChanged
from edt_server.files import job_files
from edt_server.history import TimelineFeed
from edt_server.jobs import Stored, UncommittedSubmissions, check_change, sized, stored, submission
from edt_server.ledger import Change, LedgerWriter, recovery, reports, suspension
from edt_server.outputs import results
from edt_server.service import access, forecast, views, what_if
from edt_server.service.cluster import cluster, standing, unexplained
from edt_server.service.coming_hosts import ComingHosts, with_hosts
from edt_server.service.deployments import Deployments
from edt_server.service.elastic_hosts import ElasticHosts
from edt_server.service.forecast import ForecastRates
from edt_server.service.hosts import HostService, JoinedHosts
from edt_server.service.hub import Hub
from edt_server.service.latest import LatestEvents, LatestRows
from edt_server.service.picture_service import Picturing
from edt_server.service.projects import Projects
from edt_server.service.quotas import Quotas, check_waiting
from edt_server.service.searches import Searches
from edt_server.service.sharing import Sharing
from edt_server.service.validations import Validations
from edt_server.service.versions import Versions
from edt_server.service.what_if import Now
from edt_server.settings import Settings
from edt_server.store import JobRow, Store, StoreError
from edt_server.suggestions import Suggestions
from edt_server.system.device_claims import DeviceClaims
from edt_server.system.interpreters import Interpreter, Interpreters, Listed

T = TypeVar("T")

_WAIT_FOR_PROCESSES = 10.0  # seconds that resuming or deleting a job waits for the last of its processes


@dataclass(eq=False)
class Service:
    """A scheduler over a data folder.

    Attributes:
        threads_per_slot: for jobs that do not choose.
        _uncommitted: submissions with a commit in doubt.
        _living: ids of the jobs that have not ended, kept up to date by `Effects`.
        _listed: the interpreters that users may choose, None for any.
        fleet: the hosts that join over the network, None for a server that accepts none.
        elastic: the providers that give hosts, None for none.
    """

    settings: Settings
    sharing: Sharing
    hub: Hub
    threads_per_slot: int
    _writer: LedgerWriter
    _supervision: Supervision
    _spares: SpareSupervisors
    _claims: DeviceClaims
    _rates: ForecastRates
    _timeline: TimelineFeed
    _uncommitted: UncommittedSubmissions
    _living: Set[str]
    _listed: Listed | None
    fleet: JoinedHosts | None = None
    elastic: ElasticHosts | None = None

    def __post_init__(self) -> None:
        self._ledger = self._writer.ledger
        self._deleting: set[str] = set()
        self._interpreters = Interpreters(
            self.settings.interpreter,
            self.settings.job_environ,
            self._listed,
            ours=self.settings.isolation.kind == ACCOUNT,
        )
        self._rows = LatestRows(self._writer)
        self._events = LatestEvents(self._ledger.store, lambda: self._ledger.seq)
        self.catalogue = Catalogue(self)
        self.validations = Validations(self)
        self.versions = Versions(self)
        self.projects = Projects(self)
        self.deployments = Deployments(self)
        private = (self.settings.data_dir, self.settings.runtime_dir)
        self.searches = Searches(self, Suggestions(self.settings.job_environ, self.settings.isolation, private))
        self.pictures = Picturing(self, self._events)
        self.quotas = Quotas(self._writer, self.settings.data_dir)
        self.hosts = HostService(self._writer, self.sharing, self.settings, self.fleet, self.elastic)

    # --- its own state ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have a spare supervisor ready for the first job: a client uses the service."""
        self._spares.wake()

    @property
    def busy(self) -> bool:
        """Return True while a job has not ended."""
        return bool(self._living)

    @property
    def working(self) -> int:
        """Return how many jobs hold slots. They go on when this service is closed."""
        core = self._ledger.core
        return sum(1 for job in core.jobs if core.holding(job))

    @property
    def store(self) -> Store:
        """Return the open store."""
        return self._ledger.store

    @property
    def uploads(self) -> Path:
        """Return where an upload may be kept until it is submitted."""
        return self.settings.data_dir / "uploads"

    @property
    def trouble(self) -> StoreError | None:
        """Why nothing can be written to the store now, None when all is well. Jobs go on all the same."""
        return self._writer.trouble

    def now(self) -> float:
        """Return the time of day by which decisions are made, in seconds since the epoch."""
        return self._ledger.clock.now()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def mine(self, user: str, job: str) -> JobRow:
        """Return the user's job. NotFound, or NotAllowed when it belongs to another user."""
        return access.checked(user, await self._rows.read(job, self._ledger.row))

    @property
    def capacity(self) -> int:
        """Return the number of slots now."""
        return len(self._ledger.core.slots)

    async def asked(self, job: str) -> int:
        """Return how many slots a living job asks for now, 0 for another one."""
        core = self._ledger.core
        return await self._writer.read(lambda: core.asked(job) if job in core.jobs else 0)

    def ended(self, job: str) -> bool:
        """Return whether the job has ended or was deleted, as last committed."""
        return job not in self._living

    async def job(self, user: str, job: str) -> JobView:
        """Return the job as it is now."""
        return await self._writer.read(self._show, await self.mine(user, job))

    async def jobs(
        self,
        user: str,
        *,
        everybody: bool = False,
        state: JobState | None = None,
        tag: str | None = None,
        project: str | None = None,
        experiment: str | None = None,
        search: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> list[JobView]:
        """Return the user's jobs, newest first. With `everybody` also return the public view of other users' jobs.

        With `tag`, `project` or `experiment` only the user's own jobs, since these are not public. For `search`,
        `before` and `limit` see `Store.jobs`.
        """
        labels = {"tag": tag, "project": project, "experiment": experiment}
        owner = None if everybody and not any(labels.values()) else user
        states = None if state is None else [state]
        found = await self._shown(owner=owner, states=states, search=search, before=before, limit=limit, **labels)
        return [view if access.may(user, view.owner) else views.public_view(view) for _, view in found]

    async def described(
        self, user: str, *, states: Iterable[JobState] | None = None, limit: int | None = None
    ) -> list[tuple[JobRow, JobView]]:
        """Return the user's jobs in these states, newest first, each as submitted and as it is now."""
        return await self._shown(owner=user, states=states, limit=limit)

    async def events(self, user: str, job: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return the job's events with a number above `after`, oldest first."""
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
        """Return which job held how many slots, when and why, see `TimelineFeed.read`."""
        if job is not None:
            await self.mine(user, job)
        found = await asyncio.to_thread(self._timeline.read, job=job, start=start, end=end, points=points)
        return {"capacity": len(self._ledger.core.slots), **found}

    async def workers(self, user: str, job: str) -> list[dict[str, Any]]:
        """Return the workers of the job that run now."""
        row = await self.mine(user, job)
        if row.state.final:
            return []
        events = await asyncio.to_thread(self._events.of, job, views.WORKER_KINDS, list[Event])
        return views.running_workers(events, self._ledger.core.slots)

    async def what_if(self, user: str, job: str, patch: JobPatch) -> WhatIf:
        """Return how many slots each job would hold with this change, and when the job would end. Changes nothing."""
        row = await self.mine(user, job)
        patch.check()  # after the owner was checked: another user learns nothing, not even that the change is wrong
        if row.state.final:
            raise ended_already(row, "changed")
        now = await self.looked()
        group = _group_of(now.core, job, patch.instance_group)
        check_change(row.spec, row.settings, patch, group, admin=self._is_admin(user))
        # On a copy of the core and in another thread: the answer may take long, and decisions must not wait for it.
        return await asyncio.to_thread(what_if.answer, now, job, patch)

    async def looked(self) -> Now:
        """Return a private copy of the present state, for forecasts."""
        return await self._writer.read(
            what_if.look, self._ledger, self._supervision.progress, self.now(), self._coming()
        )

    async def forecast(self, user: str, spec: JobSpec) -> Forecast:
        """Return when such a job would start if the user submitted it now. Changes nothing."""
        spec.check()
        # What a submission refuses, its preview refuses too.
        await self._interpreters.choose(spec)
        group = self.sharing.plan.group(spec.instance_group)
        self.sharing.plan.portable(group, spec.env)
        if not self._is_admin(user):
            group.check_priority(spec.priority)
        now = await self.looked()
        return await asyncio.to_thread(forecast.forecast, now, self._rates.ends(), user, spec)

    async def stored(self, user: str, job: str) -> Stored:
        """Return what the job was made of, for another job like it. NotFound, NotAllowed."""
        row = await self.mine(user, job)
        return await asyncio.to_thread(stored, self.paths(row), row)

    async def interpreters(self, paths: Iterable[str]) -> list[Interpreter]:
        """Return the interpreters a job may run in: the default first, then each of these programs that is a Python."""
        return await self._interpreters.those(paths)

    async def checkpoints(self, user: str, job: str) -> list[results.Checkpoint]:
        """Return the checkpoints the job has written."""
        return await asyncio.to_thread(results.checkpoints, self.paths(await self.mine(user, job)))

    async def result(self, user: str, job: str, part: str, *, streams: bool = True) -> results.ResultZip:
        """Return a part of the result as a zip that is not read yet. Without `streams` only files of its folders."""
        paths = self.paths(await self.mine(user, job))
        return await asyncio.to_thread(partial(results.plan, paths, part, streams=streams))

    async def cluster(self, user: str) -> dict[str, Any]:
        """Return slots with the job in each, groups, living jobs, the threads of a slot, and an admin's warnings."""

        def read() -> dict[str, Any]:
            rows = self._ledger.store.jobs(states=[state for state in JobState if not state.final])
            return cluster(self._ledger.core, rows)

        others = await asyncio.to_thread(self._claims.elsewhere)
        elsewhere = [{"device": device, "data_dir": claim.data_dir} for device, claim in sorted(others.items())]
        answer = await self._writer.read(read)
        for job in unexplained(answer, user):
            # One by one, so that decisions can come in between.
            job["reason"] = await self._writer.read(self._why, job["id"])
        warnings = list(self.settings.warnings) if self._is_admin(user) else []
        own = {"threads_per_slot": self.threads_per_slot, "elsewhere": elsewhere, "warnings": warnings}
        return {**answer, **own}

    async def standing(self) -> dict[str, Any]:
        """Return slots and groups as in `cluster`, and the names of the jobs in slots, in their order of arrival."""

        def read() -> dict[str, Any]:
            core = self._ledger.core
            answer = standing(core)
            holders = {slot["job"] for slot in answer["slots"] if slot["job"] is not None}
            return {**answer, "names": {job: self._ledger.name(job) for job in core.jobs if job in holders}}

        others = await asyncio.to_thread(self._claims.elsewhere)
        return {**await self._writer.read(read), "elsewhere": [{"device": device} for device in sorted(others)]}

    def _why(self, job: str) -> str:
        row = self._ledger.store.job(job)
        reason = None if row is None else self._show(row).reason
        return "" if reason is None else reason.text

    def paths(self, row: JobRow) -> JobPaths:
        """Return where the job's files are."""
        return JobPaths(self.settings.data_dir, row.owner, row.id)

    async def _shown(self, **chosen: Any) -> list[tuple[JobRow, JobView]]:
        """Return the rows that are chosen (see `Store.jobs`) with their views, in the order of the store."""

        def read() -> tuple[list[JobRow], dict[str, JobView]]:
            rows = self._ledger.store.jobs(**chosen)
            # Ended jobs do not change any more, so their views need not be made between two decisions.
            return rows, {row.id: self._show(row) for row in rows if row.state.final}

        rows, shown = await asyncio.to_thread(read)
        living = [row for row in rows if row.id not in shown]
        if living:
            # Between two changes, because the view of a living job reads the core, which the writer thread changes.
            shown |= await self._writer.read(lambda: {row.id: self._show(row) for row in living})
        return [(row, shown[row.id]) for row in rows]

    def _show(self, row: JobRow) -> JobView:
        progress, ends = self._supervision.progress(row.id), self._rates.ends()
        view = views.job_view(self._ledger, row, self.settings.data_dir, progress, self.now(), ends)
        if view.reason is not None and (coming := self._coming()):
            group = self._ledger.core.group_of(row.id).resource_group
            view = msgspec.structs.replace(view, reason=with_hosts(view.reason, coming.get(group, ())))
        return view if view.reason is None or not self.sharing.has_gpus else self._explained(view, view.reason)

    def _coming(self) -> Mapping[str, Sequence[ComingHosts]]:
        return {} if self.elastic is None else self.elastic.coming()

    def _explained(self, view: JobView, reason: Reason) -> JobView:
        others = self._claims.elsewhere()
        if not others:
            return view
        named = ", ".join(f"{device} ({claim.data_dir})" for device, claim in sorted(others.items()))
        text = f"{reason.text} Jobs of another job store on this machine are in {named}."
        return msgspec.structs.replace(view, reason=msgspec.structs.replace(reason, text=text))

    # --- changing -----------------------------------------------------------------------------------------------------

    async def change(self, work: Callable[[Change], T]) -> T:
        """Run `work` in a transaction, and act on it once it is committed, see `ledger/writer.py`."""
        return await self._writer.change(work)

    async def submit(
        self,
        user: str,
        spec: JobSpec,
        package: Path,
        *,
        training: Registered | None = None,
        weights: Path | None = None,
        budget: int | None = None,
        config: Mapping[str, Any] | None = None,
        search: str = "",
        entered: Callable[[Change, str], None] | None = None,
    ) -> JobView:
        """Make a job from a package (a file, left where it is). When that is refused, nothing is left behind.

        Args:
            user: the owner.
            spec: the settings.
            package: the archive.
            training: what it uses from the catalogue as a training of a model, or the training that it validates.
            weights: the weights it starts with, also in place of the weights of the job in `spec.warm_start`.
            budget: epochs after which it holds, see `set_budget`.
            config: what its script finds as `config.json` in its folder, the values of a trial.
            search: id of the search that it is a trial of.
            entered: callback, run with the job's id in the transaction that enters it.
        """
        spec = sized(spec.check())
        suspension.check_budget(spec, budget)
        group = self.sharing.plan.group(spec.instance_group)
        if not self._is_admin(user):
            group.check_priority(spec.priority)
        self.sharing.plan.portable(group, spec.env)  # or refuse what it cannot have
        spec = msgspec.structs.replace(spec, instance_group=group.name, search=search)
        # Before any file is unpacked: an impossible job should cost nothing.
        await self._writer.read(self._ledger.core.fits, spec.instance_group, spec.min_workers, spec.slots_per_unit)
        await self._writer.read(check_waiting, self._ledger.core, user, group)
        await self.quotas.check_bytes(user, group)
        await asyncio.to_thread(self.settings.isolation_of, user)
        interpreter = await self._interpreters.choose(spec)
        threads = spec.threads_per_slot or self.threads_per_slot
        spec = await self.catalogue.datasets.registered(user, spec, training)
        if weights is None and is_version(spec.warm_start):
            weights, version = await self.versions.weights(user, VersionReference.of(spec.warm_start))
            # An alias may mean another version later.
            spec = msgspec.structs.replace(spec, warm_start=version)
        elif spec.warm_start and weights is None:
            former = await self.mine(user, spec.warm_start)
            weights = await asyncio.to_thread(job_files.weights_of, self.paths(former))
        living = tuple(self._living)
        recent: Iterable[JobRow] = ()
        # Without it the colour is an arbitrary one. The change below meets the same trouble, and starts the recovery.
        with contextlib.suppress(StoreError):
            recent = await asyncio.to_thread(self._ledger.store.jobs, limit=len(JOB_COLOURS))
        # The id decides the colour, so that no other place has to remember it. Two submissions at the same moment may
        # get the same one.
        colour = colour_for_new(living, (row.id for row in recent))

        def fits(made: str) -> bool:
            return job_colour(made) == colour

        accepted = await asyncio.to_thread(
            submission.place, self.settings, user, spec, package, interpreter, threads, weights, config, fits
        )

        def enter(change: Change) -> None:
            # Once more in the transaction: several submissions at once must not exceed a quota.
            check_waiting(change.core, user, change.core.plan.group(spec.instance_group))
            accepted.enter(change)
            suspension.set_budget(change, accepted.job, budget)
            if entered is not None:
                entered(change, accepted.job)

        try:
            await self.change(enter)
        except (StoreError, asyncio.CancelledError):
            # It may have been committed all the same, so its files stay until the store answers.
            self._uncommitted.add(accepted.paths)
            raise
        except BaseException:
            await asyncio.to_thread(job_files.remove, accepted.paths)
            raise
        return await self.job(user, accepted.job)

    async def change_settings(self, user: str, job: str, patch: JobPatch) -> JobView:
        """Change settings of a job by a patch that was checked already.

        Settings that the scheduler needs can change while the job lives, the others at any time.
        """
        scheduling = patch.scheduling()
        if patch.instance_group is not None:
            await self._check_move(user, job, patch.instance_group)

        def work(change: Change) -> JobRow:
            row = access.checked(user, change.row(job))
            if changes := scheduling.changes():
                if row.state.final:
                    raise ended_already(row, "changed")
                group = _group_of(change.core, job, patch.instance_group)
                check_change(row.spec, row.settings, patch, group, admin=self._is_admin(user))
                if patch.instance_group is not None:
                    if patch.instance_group != row.settings.instance_group and not change.core.holding(job):
                        check_waiting(change.core, user, group)
                    change.core.fits(patch.instance_group, row.spec.min_workers, row.spec.slots_per_unit)
                before = {name: getattr(row.settings, name) for name in changes}
                change.apply(JobChanged(job, scheduling), before=before, by=user)
            if others := [name for name in patch.changes() if name not in SCHEDULED]:
                change.append(kinds.REMARK, job, {"text": f"{user} changed its {' and '.join(others)}."})
            return change.tx.update_job(job, settings=patch.apply_to(row.settings))

        return await self._changed(user, job, work)

    async def stop_job(self, user: str, job: str, why: str = "") -> JobView:
        """End a job as KILLED: at once when it has no process, else as soon as its processes have ended."""
        until_then = why or f"{user} is stopping it."
        why = why or f"Stopped by {user}."

        def work(change: Change) -> JobRow:
            row = access.checked(user, change.row(job))
            if row.state.final:
                raise ended_already(row, "stopped")
            if not row.supervised:
                reports.end(change, job, JobState.KILLED, why)
                job_files.clear_traces(self.settings.runtime_dir, job)
            else:
                # An event, so that the next server ends the job too if this one dies before the supervisor hears of it.
                change.append(recovery.STOP_REQUESTED, job, {"why": why})
                change.tx.update_job(job, message=until_then)
            return change.row(job)

        row = await self.change(work)
        if not row.state.final:
            self._supervision.end(job, why)
        return await self._writer.read(self._show, row)

    async def stop_all(self, user: str) -> list[str]:
        """Stop all jobs of the user that have not ended, and return their ids.

        First the searches, which start jobs, and the deployments, which would wait for replicas.
        """
        await self.searches.stop_all(user)
        await self.deployments.stop_all(user)
        stopped: list[str] = []
        for row in await self._writer.read(lambda: self._ledger.store.jobs(owner=user)):
            if not row.state.final:
                try:
                    await self.stop_job(user, row.id)
                except Conflict:
                    continue  # it ended by itself in the meantime
                stopped.append(row.id)
        return stopped

    async def suspend(self, user: str, job: str) -> JobView:
        """Take all slots from a job until it is resumed. When its workers have left, it is SUSPENDED (not final)."""

        def work(change: Change) -> JobRow:
            row = access.checked(user, change.row(job))
            if row.state.final:
                raise ended_already(row, "suspended")
            return suspension.suspend(change, job, user)

        return await self._changed(user, job, work)

    async def set_budget(self, user: str, job: str, budget: int | None) -> JobView:
        """Let a job train to the end of epoch `budget` (never less than before), and hold there. None for no bound.

        A job that holds goes on if that is more. Not for users: a search sets the budgets of its trials.
        """

        def work(change: Change) -> JobRow:
            row = access.checked(user, change.row(job))
            if row.state.final:
                raise ended_already(row, "changed")
            return suspension.set_budget(change, job, budget)

        return await self._changed(user, job, work)

    async def resume(self, user: str, job: str, checkpoint: str = "", instance_group: str | None = None) -> JobView:
        """Resume a job that is suspended, or that was stopped or failed after it started to train.

        It resumes from `checkpoint`, such as "epoch-3" ("" for the newest), in the queue `instance_group` (None for its
        last one).
        """
        row = await self.mine(user, job)
        if instance_group is not None:
            await self._check_move(user, job, instance_group)
        paths = self.paths(row)
        await asyncio.to_thread(check_folder, self.settings.data_dir, row.owner, job, row.spec)
        # The next attempt would wait for the processes of the last one, which hold its lock (docs/decisions/010).
        if row.state.final and not await self._supervision.gone(job, _WAIT_FOR_PROCESSES):
            raise Conflict(f"Processes of job {job} are still ending.", hint="Try again in a moment.", job=job)

        def work(change: Change) -> JobRow:
            row = access.checked(user, change.row(job))
            self._refuse_while_deleted(job)
            present = row.settings.instance_group
            named = present if instance_group is None else instance_group
            if instance_group is not None:
                move, group = JobPatch(instance_group=named), change.core.plan.group(named)
                check_change(row.spec, row.settings, move, group, admin=self._is_admin(user))
            # A suspended job counts as waiting already. One that has ended comes back.
            if row.state.final or named != present:
                for group in change.core.plan.leaves():
                    if group.name == named:
                        check_waiting(change.core, user, group)
            if not row.state.final and job in recovery.stop_requests(self._ledger.store, [job]):
                raise Conflict(
                    f"Job {job} is being stopped.",
                    hint="Wait until it has ended, as job.wait() or `edt wait` do, then resume it.",
                    job=job,
                    state=row.state.value,
                )
            return suspension.resume(change, paths, job, user, checkpoint, instance_group)

        return await self._changed(user, job, work)

    async def delete(self, user: str, job: str) -> None:
        """Remove an ended job with all its files. Conflict when it has not ended, or is deleted already."""
        row = _ended(await self.mine(user, job))
        await self._supervision.gone(job, _WAIT_FOR_PROCESSES)
        self._refuse_while_deleted(job)
        self._deleting.add(job)
        try:
            # `_deleting` refuses every resume from now on. This change fails if one was committed before.
            await self.change(lambda change: _ended(change.row(job)))
            await asyncio.to_thread(job_files.remove, self.paths(row))
            await asyncio.to_thread(job_files.clear_traces, self.settings.runtime_dir, job)
            # The row last: when the files cannot be removed, the job is still there and can be deleted again.
            await self.change(lambda change: change.tx.delete_job(job))
        finally:
            self._deleting.discard(job)

    async def _changed(self, user: str, job: str, work: Callable[[Change], JobRow]) -> JobView:
        """Change the job and return its new view. The transaction itself may have given it a slot."""
        await self.change(work)
        return await self.job(user, job)

    async def _check_move(self, user: str, job: str, instance_group: str) -> None:
        """Raise Conflict when a quota of stored bytes of the group that the job moves to is used up."""
        group = self.sharing.plan.group(instance_group)
        if group.name != (await self.mine(user, job)).settings.instance_group:
            await self.quotas.check_bytes(user, group)

    def _is_admin(self, user: str) -> bool:
        return access.is_admin(user, self.settings.admins)

    def _refuse_while_deleted(self, job: str) -> None:
        if job in self._deleting:
            raise Conflict(f"Job {job} is being deleted.", hint="Clone another job, or submit it anew.", job=job)


def _group_of(core: Core, job: str, named: str | None) -> InstanceGroup:
    """Return the group that the job is in, or that it moves to. Unprocessable where jobs cannot be in that."""
    return core.group_of(job) if named is None else core.plan.group(named)


def ended_already(row: JobRow, what: str) -> Conflict:
    """Return the error for an ended job that cannot be `what` ("changed", "stopped") any more."""
    ended = time.strftime("%H:%M:%S", time.localtime(row.ended))
    return Conflict(
        f"Job {row.id} is {row.state.value} since {ended}; it cannot be {what} any more.",
        hint="Clone it to run it once more: job.clone(), or `edt clone`.",
        job=row.id,
        state=row.state.value,
    )


def _ended(row: JobRow) -> JobRow:
    if not row.state.final:
        raise Conflict(f"Job {row.id} is {row.state.value}.", hint="Stop it first, then delete it.", job=row.id)
    return row
