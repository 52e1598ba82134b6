"""Suspend and resume, and hold at an epoch, as changes of the ledger.

A job is SUSPENDED when its last slot is free. Until then it keeps its state. A job that was stopped or failed resumes
under its own id, as a further attempt over the same files. The only side effect is the file that names the checkpoint
to resume from. It must exist before a worker can look for it, hence before the commit. The file therefore also names
the event, and it counts only if that event was committed.

A job with a budget of epochs suspends itself when it has used it up (docs/decisions/046). More budget resumes it.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import Conflict, InvalidRequest, NotFound, Unprocessable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobPatch, JobSpec, JobState
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import is_regular, read_regular, regular_files
from edt_server.core.events import JobBudget, JobChanged, JobDemand, JobResumed, JobSuspended
from edt_server.ledger.ledger import Change, arrival
from edt_server.store import JobRow
from edt_server.system.private_files import write_private

# Accepted names of a checkpoint: as in `checkpoint/training-<k>/`, or as WMLA names the file of an epoch.
_NAME = re.compile(r"(?:(epoch|update)-|model_(epoch)_)(\d{1,18})(?:\.ckpt|\.pth)?\Z")
_WORKING = (JobState.LAUNCHING, JobState.RUNNING, JobState.RECOVERING)
_ENDED = (JobState.KILLED, JobState.FAILED)
_RESUMES = (kinds.JOB_ARRIVED, kinds.JOB_RESUMED)


def suspend(change: Change, job: str, by: str) -> JobRow:
    """Let a living job release all slots and ask for none until it is resumed. A second call changes nothing."""
    if not change.core.suspended(job) or change.core.held(job):
        seq = change.apply(JobSuspended(job), by=by)
        settle(change, job, cause=seq)
    return change.row(job)


def check_budget(spec: JobSpec, budget: int | None) -> None:
    """Raise Unprocessable unless a job of this kind can hold after so many epochs. None is no bound."""
    if budget is None:
        return
    if budget < 1:
        raise Unprocessable(f"A budget is at least one epoch, not {budget}.", field="budget")
    if spec.framework != Framework.EDT:
        raise Unprocessable(
            f"A job of the framework {spec.framework} cannot hold at an epoch: only its script knows where its epochs "
            "end, and without a slot it would start again.",
            hint=f"Use framework={Framework.EDT.value!r}, the elastic engine.",
            field="framework",
        )
    if spec.registered is not None and spec.registered.validates is not None:
        raise Unprocessable("A validation has no epochs to hold at.", field="budget")


def set_budget(change: Change, job: str, budget: int | None) -> JobRow:
    """Let the trainings of a living job go on to the end of epoch `budget`, None for no bound.

    A job that holds goes on if that is more. The same budget again changes nothing.

    Raises:
        Unprocessable: see `check_budget`.
        Conflict: it is less than before.
    """
    row, before = change.row(job), change.core.budget(job)
    check_budget(row.spec, budget)
    if budget == before:
        return row
    # Its members may have passed that epoch, or be in it: where they hold would depend on when they hear of it.
    if before is not None and budget is not None and budget < before:
        raise Conflict(f"Job {job} may train {before} epochs already; {budget} is less.", job=job, field="budget")
    held = change.core.held(job)
    seq = change.apply(JobBudget(job, budget))
    if held and not change.core.held(job):
        _go_on(change, job, seq)
    return change.row(job)


def settle(change: Change, job: str, *, cause: int | None = None) -> None:
    """Set the state of a job after its last slot was released: SUSPENDED, or PENDING when it asks for another."""
    row, core = change.row(job), change.core
    if row.state.final or job not in core.jobs or core.holding(job) or core.leaving(job):
        return
    if core.suspended(job):
        if row.state is not JobState.SUSPENDED:
            change.set_state(job, JobState.SUSPENDED, cause=cause)
    elif core.asked(job) and row.state in _WORKING:
        change.wait(job, cause=cause)


def resume(
    change: Change, paths: JobPaths, job: str, by: str, checkpoint: str = "", instance_group: str | None = None
) -> JobRow:
    """Resume a job that is suspended, was stopped, or failed. Any other job stays as it is.

    Args:
        change: the transaction.
        paths: of the job.
        job: its id.
        by: the user.
        checkpoint: where to resume from, such as "epoch-3", "update-1200" or "model_epoch_3". "" for the newest.
        instance_group: the queue for the resumed job. None for its last one.

    Raises:
        Conflict: it is over for good, or holds, or a checkpoint was named while workers still run.
        Unprocessable: its queue was removed in the meantime, or there is no such queue.
        InvalidRequest, NotFound: this is no name of a checkpoint, or there is no such checkpoint.
    """
    row = change.row(job)
    _check(row)
    if row.state not in _ENDED and (held := change.core.held(job)):
        raise Conflict(
            f"Job {job} has reached {held[0]} of {held[1]} epochs and holds: its search decides when it goes on.",
            hint="Clone it to train it without its search: job.clone(), or `edt clone`.",
            job=job,
            state=row.state.value,
        )
    group = _queue(change, row, instance_group)
    if group != row.settings.instance_group:
        patch = JobPatch(instance_group=group)
        if row.state not in _ENDED:
            change.apply(JobChanged(job, patch), before={"instance_group": row.settings.instance_group}, by=by)
        row = change.tx.update_job(job, settings=patch.apply_to(row.settings))
    if row.state not in (JobState.SUSPENDED, *_ENDED):
        if checkpoint:
            again = "Suspend it first, then resume it from the checkpoint."
            raise Conflict(
                f"Job {job} is {row.state.value}: it cannot be put back to a checkpoint while workers run.",
                hint="Wait until it is SUSPENDED." if change.core.suspended(job) else again,
                job=job,
                state=row.state.value,
            )
        if not change.core.suspended(job):
            return row
    _forget_uncommitted(change, paths, job)
    chosen = find(paths, checkpoint) if checkpoint else ""
    said: dict[str, Any] = {"by": by, "checkpoint": chosen} if chosen else {"by": by}
    if row.state in _ENDED:
        spec = msgspec.structs.replace(row.spec, **msgspec.structs.asdict(row.settings))
        seq = change.apply(arrival(job, row.owner, spec), name=row.spec.name, again=True, **said)
        # The core has forgotten an ended job, and its events have not.
        budgets = change.ledger.store.events(job=job, kinds=[kinds.JOB_BUDGET])
        if budgets:
            change.apply(JobBudget(job, budgets[-1].data["budget"]), cause=seq)
        # No process of the last attempt runs. The next attempt is launched with its first slot.
        change.tx.update_job(job, supervisor=None, public_key="", ended=None)
    else:
        seq = change.apply(JobResumed(job), **said)
    _go_on(change, job, seq)
    if chosen:
        # Before the commit, because a worker may start, and look for this file, right after it.
        write_private(paths.resume_from, f"{chosen}\n{seq}\n".encode())
    return change.row(job)


def _queue(change: Change, row: JobRow, wanted: str | None) -> str:
    """Return the queue for the resumed job, after a check that the job fits there."""
    name = row.settings.instance_group if wanted is None else change.core.plan.group(wanted).name
    leaves = [group.name for group in change.core.plan.leaves()]
    if name and name not in leaves:  # a row without one is in the first
        raise Unprocessable(
            f"The instance group {name!r} that job {row.id} was in is not there any more.",
            hint=f"Resume it in another, such as instance_group={leaves[0]!r}, or at a shell: "
            f"edt resume {row.id} --instance-group {shlex.quote(leaves[0])} (there are: {', '.join(leaves)}).",
            job=row.id,
            field="instance_group",
        )
    if row.state in _ENDED or name != row.settings.instance_group:
        change.core.fits(name, row.spec.min_workers, row.spec.slots_per_unit)
    return name


def _forget_uncommitted(change: Change, paths: JobPaths, job: str) -> None:
    """Remove the file that names a checkpoint if its event was never committed.

    A file of a committed event stays until a worker has resumed from it, also over a further suspension.
    """
    try:
        name, _, number = read_regular(paths.resume_from).decode().partition("\n")
    except FileNotFoundError:
        return
    seq = int(number) if number.strip().isdecimal() else 0
    # The number of a rolled back event may have been reused by another event, so the checkpoint is compared too.
    for event in change.ledger.store.events(job=job, kinds=_RESUMES, after=seq - 1, limit=1):
        if event.seq == seq and event.data.get("checkpoint") == name:
            return
    paths.resume_from.unlink(missing_ok=True)


def _go_on(change: Change, job: str, seq: int) -> None:
    row, core = change.row(job), change.core
    if row.state in _WORKING:
        return  # its workers have not left yet, or are being replaced
    if not core.asked(job):  # between two trainings
        if row.supervised:
            change.set_state(job, JobState.RUNNING, cause=seq)
            return
        # Its main script has to run again, which takes a slot.
        change.apply(JobDemand(job, 1), cause=seq)
    if not core.holding(job):
        change.wait(job, cause=seq)
    # Else the transaction ends with `launch_granted`.


def find(paths: JobPaths, name: str) -> str:
    """Return the checkpoint of the newest training with this name, such as `epoch-3`, or raise what `resume` raises."""
    match = _NAME.match(name)
    if match is None:
        raise InvalidRequest(
            f"{name!r} is not the name of a checkpoint.",
            hint="Name it as job.checkpoints() does, such as epoch-3 or update-1200.",
            field="checkpoint",
        )
    wanted = f"{match[1] or match[2]}-{int(match[3])}"
    numbers = [path.stem.removeprefix("training-") for path in paths.job_dir.glob("training-*.payload")]
    newest = max((int(number) for number in numbers if number.isdecimal()), default=0)
    folder = paths.checkpoints(newest)
    if not is_regular(folder / f"{wanted}.ckpt", within=paths.result_dir):
        files = regular_files(folder, "*.ckpt", within=paths.result_dir)
        there = ", ".join(stem for _, stem in sorted((info.st_mtime, path.stem) for path, info in files)[-8:])
        raise NotFound(
            f"Job {paths.job_id} has no checkpoint {wanted}.",
            hint=f"There are {there}." if there else "There is none at all: resume it without naming one.",
            job=paths.job_id,
            field="checkpoint",
        )
    return wanted


def _check(row: JobRow) -> None:
    """Raise Conflict when the job cannot be resumed any more."""
    what = ""
    if row.state in (JobState.FINISHED, JobState.ERROR):
        what = "is finished" if row.state is JobState.FINISHED else "could not be started"
    elif row.state in _ENDED and row.shards is None and row.spec.framework == Framework.EDT:
        what = f"is {row.state.value} and never began to train"
    if what:
        raise Conflict(
            f"Job {row.id} {what}: there is nothing to resume.",
            hint="Clone it to run it once more: job.clone(), or `edt clone`.",
            job=row.id,
            state=row.state.value,
        )
