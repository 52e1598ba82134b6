"""The verbs that only read: a user's jobs, what became of them, and the cluster, as it was last committed.

What the core knows is read in the writer thread, between two decisions; rows and files in other threads, so that
nobody's decision waits for a long list. `_mine` is the only way from a job's id to a job, also for verbs that change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.forecast import Forecast
from edt_sdk.schemas.job import JobPatch, JobProgress, JobSpec, JobState, JobView, Reason
from edt_sdk.schemas.what_if import WhatIf
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.channel import Supervision
from edt_server.history import TimelineFeed
from edt_server.jobs import Stored, check_change, stored
from edt_server.ledger import Commits, Ledger, Paces
from edt_server.outputs import results
from edt_server.service import access, forecast, views, what_if
from edt_server.service.cluster import cluster, standing, unexplained
from edt_server.service.latest_events import LatestEvents
from edt_server.service.latest_rows import LatestRows
from edt_server.service.sharing import Sharing
from edt_server.settings import Settings
from edt_server.store import JobRow, StoreError
from edt_server.system.device_claims import DeviceClaims
from edt_server.system.interpreters import Interpreter, Interpreters


class Reading:
    """The part of `Service` that changes nothing."""

    settings: Settings
    sharing: Sharing
    threads_per_slot: int
    _commits: Commits
    _rows: LatestRows
    _events: LatestEvents
    _ledger: Ledger
    _claims: DeviceClaims
    _supervision: Supervision
    _timeline: TimelineFeed
    _paces: Paces
    _interpreters: Interpreters
    _living: set[str]

    async def mine(self, user: str, job: str) -> JobRow:
        """The user's job. NotFound, or NotAllowed when it is somebody else's."""
        return self._mine(user, job, await self._rows.read(job, self._ledger.row))

    @property
    def capacity(self) -> int:
        """How many slots there are now."""
        return len(self._ledger.core.slots)

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
            ended += await self._commits.read(lambda: [self._show(row) for row in living])
        ended.sort(key=lambda view: (view.created, view.id), reverse=True)
        return [view if access.may(user, view.owner) else views.public_view(view) for view in ended]

    async def described(
        self, user: str, *, states: Iterable[JobState] | None = None, limit: int | None = None
    ) -> list[tuple[JobRow, JobView]]:
        """The user's jobs in these states (None for all), each as it was submitted and as it is now.

        The newest first, at most `limit`.
        """
        wanted = None if states is None else list(states)

        def read() -> tuple[list[JobRow], dict[str, JobView]]:
            rows = self._ledger.store.jobs(owner=user, states=wanted, limit=limit)
            return rows, {row.id: self._show(row) for row in rows if row.state.final}

        rows, shown = await asyncio.to_thread(read)
        living = [row for row in rows if row.id not in shown]
        if living:
            shown |= await self._commits.read(lambda: {row.id: self._show(row) for row in living})
        return [(row, shown[row.id]) for row in rows]

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
        events = await asyncio.to_thread(self._events.of, job, views.WORKER_KINDS, list[Event])
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
            raise ended_already(row, "changed")
        check_change(row.spec, patch)
        now = await self._commits.read(what_if.look, self._ledger, self.progress, time.time())
        return await asyncio.to_thread(what_if.answer, now, job, patch)

    async def forecast(self, user: str, spec: JobSpec) -> Forecast:
        """When such a job would start if the user submitted it now. Nothing is changed.

        Raises:
            InvalidRequest, Unprocessable: it would be refused for its specification.
        """
        spec.check()

        def look() -> tuple[what_if.Now, dict[str, tuple[float, float]]]:
            return what_if.look(self._ledger, self.progress, time.time()), dict(self._paces.ends())

        now, ends = await self._commits.read(look)
        return await asyncio.to_thread(forecast.forecast, now, ends, user, spec)

    async def stored(self, user: str, job: str) -> Stored:
        """What the job was made of, for another one like it. NotFound, NotAllowed."""
        row = await self.mine(user, job)
        return await asyncio.to_thread(stored, self.paths(row), row)

    async def interpreters(self, paths: Iterable[str]) -> list[Interpreter]:
        """What a job may run in: the default first, then those of these programs that are Pythons."""
        return await self._interpreters.those(paths)

    async def checkpoints(self, user: str, job: str) -> list[results.Checkpoint]:
        """The checkpoints the job has written."""
        return await asyncio.to_thread(results.checkpoints, self.paths(await self.mine(user, job)))

    async def result(self, user: str, job: str, part: str, *, streams: bool = True) -> results.ResultZip:
        """A part of the job's result as a zip, not read yet; without `streams` only what lies in its folders."""
        paths = self.paths(await self.mine(user, job))
        return await asyncio.to_thread(partial(results.plan, paths, part, streams=streams))

    async def cluster(self, user: str) -> dict[str, Any]:
        """Slots with the job in each, groups, jobs that live, and the threads of a slot."""

        def read() -> dict[str, Any]:
            rows = self._ledger.store.jobs(states=[state for state in JobState if not state.final])
            return cluster(self._ledger.core, rows)

        others = await asyncio.to_thread(self._claims.elsewhere)
        elsewhere = [{"device": device, "data_dir": claim.data_dir} for device, claim in sorted(others.items())]
        answer = await self._commits.read(read)
        for job in unexplained(answer, user):
            job["reason"] = await self._commits.read(self._why, job["id"])  # one by one: decisions come in between
        return {**answer, "threads_per_slot": self.threads_per_slot, "elsewhere": elsewhere}

    async def standing(self) -> dict[str, Any]:
        """Slots and groups as `cluster` tells them, the devices of other stores, and the names of the jobs in slots.

        Names are in the order in which the jobs came.
        """

        def read() -> dict[str, Any]:
            core = self._ledger.core
            answer = standing(core)
            holders = {slot["job"] for slot in answer["slots"] if slot["job"] is not None}
            return {**answer, "names": {job: self._ledger.name(job) for job in core.jobs if job in holders}}

        others = await asyncio.to_thread(self._claims.elsewhere)
        return {**await self._commits.read(read), "elsewhere": [{"device": device} for device in sorted(others)]}

    def _why(self, job: str) -> str:
        row = self._ledger.store.job(job)
        reason = None if row is None else self._show(row).reason
        return "" if reason is None else reason.text

    def paths(self, row: JobRow) -> JobPaths:
        """Where the job's files are."""
        return JobPaths(self.settings.data_dir, row.owner, row.id)

    # --- one place for each -------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> StoreError | None:
        """Why nothing can be written to the store now, None when all is well. Jobs go on all the same."""
        return self._commits.trouble

    def progress(self, job: str) -> JobProgress | None:
        """The newest progress heard, None when there is none newer than the store's."""
        return self._supervision.progress(job)

    def _mine(self, user: str, job: str, row: JobRow) -> JobRow:
        access.check(user, row.owner, job)
        return row

    async def _view(self, row: JobRow) -> JobView:
        return await self._commits.read(self._show, row)

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


def ended_already(row: JobRow, what: str) -> Conflict:
    """The error for a job that has ended and cannot be `what` ("changed", "stopped") any more."""
    ended = time.strftime("%H:%M:%S", time.localtime(row.ended))
    return Conflict(
        f"Job {row.id} is {row.state.value} since {ended}; it cannot be {what} any more.",
        hint="Clone it to run it once more: job.clone(), or `edt clone`.",
        job=row.id,
        state=row.state.value,
    )
