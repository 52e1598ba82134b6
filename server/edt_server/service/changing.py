"""The verbs that change a user's jobs, each in one transaction: submit, update, stop, suspend, resume, delete.

What has to be found out before, or done with files, is done outside of it; what follows from it is done by the service
once it is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.job import JobPatch, JobSpec, JobState, JobView
from edt_sdk.schemas.registered import Registered
from edt_server.catalogue.catalogue import Catalogue
from edt_server.catalogue.pinned import check_folder
from edt_server.core.events import JobChanged
from edt_server.files import job_files
from edt_server.jobs import Doubts, check_change, sized, submission
from edt_server.ledger import STOP_REQUESTED, Change, reports, stop_requests, suspension
from edt_server.service.reading import Reading, ended_already
from edt_server.store import JobRow, StoreError

T = TypeVar("T")

_PATIENCE_WITH_THE_DEAD = 10.0


class Changing(Reading):
    """The part of `Service` that changes jobs."""

    catalogue: Catalogue
    _doubts: Doubts
    _deleting: set[str]

    async def change(self, work: Callable[[Change], T]) -> T:
        """Run `work` in a transaction, and do what follows from it once it is committed; see `commits.py`."""
        return await self._commits.change(work)

    async def submit(
        self,
        user: str,
        spec: JobSpec,
        package: Path,
        *,
        training: Registered | None = None,
        weights: Path | None = None,
    ) -> JobView:
        """Make a job of a package (a file, left where it is).

        Args:
            user: who it belongs to.
            spec: what is asked for.
            package: the archive.
            training: what it uses of the catalogue as a training of a model, or what it validates.
            weights: what it begins with, also in place of those of the job that `spec.warm_start` names.

        Raises:
            InvalidRequest, Unprocessable: the specification cannot be used here.
            NotFound, NotAllowed: the job whose weights it begins with is not there, or somebody else's.
            PackageError: the package cannot. Nothing is left behind.
        """
        spec = sized(spec.check())
        spec = msgspec.structs.replace(spec, instance_group=self.sharing.plan.group(spec.instance_group).name)
        await self._commits.read(self._ledger.core.fits, spec.instance_group, spec.min_workers, spec.slots_per_unit)
        interpreter = await self._interpreters.choose(spec)
        threads = spec.threads_per_slot or self.threads_per_slot
        spec = await self.catalogue.registered(user, spec, training)
        if spec.warm_start and weights is None:
            former = await self.mine(user, spec.warm_start)
            weights = await asyncio.to_thread(job_files.weights_of, self.paths(former))
        accepted = await asyncio.to_thread(
            submission.place, self.settings, user, spec, package, interpreter.path, threads, weights
        )
        try:
            await self.change(accepted.enter)
        except (StoreError, asyncio.CancelledError):
            # It may have been committed all the same: its files stay until that is known.
            self._doubts.about(accepted.paths, self._ledger.store)
            raise
        except BaseException:
            await asyncio.to_thread(job_files.remove, accepted.paths)
            raise
        return await self.job(user, accepted.job)

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
                raise ended_already(row, "changed")
            check_change(row.spec, patch)
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

        return await self._changed(user, job, work)

    async def stop_job(self, user: str, job: str) -> JobView:
        """End a job as KILLED: at once when nothing of it runs, else as soon as its processes have ended.

        Raises:
            Conflict: it has ended.
        """
        why = f"Stopped by {user}."

        def work(change: Change) -> JobRow:
            row = self._mine(user, job, change.row(job))
            if row.state.final:
                raise ended_already(row, "stopped")
            if not row.supervised:
                reports.end(change, job, JobState.KILLED, why)
                job_files.clear_traces(self.settings.runtime_dir, job)
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
        for row in await self._commits.read(lambda: self._ledger.store.jobs(owner=user)):
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
                raise ended_already(row, "suspended")
            return suspension.suspend(change, job, user)

        return await self._changed(user, job, work)

    async def resume(self, user: str, job: str, checkpoint: str = "", instance_group: str | None = None) -> JobView:
        """Let a job go on that is suspended, or that was stopped or failed after it began to train.

        Args:
            user: who asks.
            job: its id.
            checkpoint: what to go on from, such as "epoch-3"; "" for the newest there is.
            instance_group: the queue it goes on in; None for the one it was in.

        Raises:
            Conflict: it is over for good, it is being stopped, or a checkpoint was named while workers still run.
            Unprocessable: its queue or its data set was removed meanwhile, or there is no queue of that name.
            InvalidRequest, NotFound: there can be no, or there is no checkpoint of that name.
        """
        row = await self.mine(user, job)
        paths = self.paths(row)
        await asyncio.to_thread(check_folder, self.settings.data_dir, row.owner, job, row.spec)
        if row.state.final and not await self._supervision.gone(job, _PATIENCE_WITH_THE_DEAD):
            raise Conflict(f"Processes of job {job} are still ending.", hint="Try again in a moment.", job=job)

        def work(change: Change) -> JobRow:
            row = self._mine(user, job, change.row(job))
            self._refuse_while_deleted(job)
            if not row.state.final and job in stop_requests(self._ledger.store, [job]):
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
        await self._supervision.gone(job, _PATIENCE_WITH_THE_DEAD)
        self._refuse_while_deleted(job)
        self._deleting.add(job)
        try:
            # Who resumes it from now on is refused; who did before has it.
            await self.change(lambda change: _ended(change.row(job)))
            await asyncio.to_thread(job_files.remove, self.paths(row))
            await asyncio.to_thread(job_files.clear_traces, self.settings.runtime_dir, job)
            await self.change(lambda change: change.tx.delete_job(job))
        finally:
            self._deleting.discard(job)

    async def _changed(self, user: str, job: str, work: Callable[[Change], JobRow]) -> JobView:
        """Change the job; it, with what followed from that: the end of the transaction may have given it a slot."""
        await self.change(work)
        return await self.job(user, job)

    def _refuse_while_deleted(self, job: str) -> None:
        if job in self._deleting:
            raise Conflict(f"Job {job} is being deleted.", hint="Clone another job, or submit it anew.", job=job)


def _ended(row: JobRow) -> JobRow:
    if not row.state.final:
        raise Conflict(f"Job {row.id} is {row.state.value}.", hint="Stop it first, then delete it.", job=row.id)
    return row
