"""The loss of a supervisor, as a change of the ledger: the job keeps its slots and gets another supervisor.

The job does not die with its supervisor: its workers hold the state and write a checkpoint when the supervisor is gone.
Only the number of attempts in a row without progress is limited. Acts on nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobProgress, JobState
from edt_server.core.events import JobDemand
from edt_server.ledger import reports, suspension
from edt_server.ledger.ledger import Change
from edt_server.store import Store

STOP_REQUESTED = "stop_requested"
MOST_IN_VAIN = 3
# A machine is lost for reasons of its own, and now and then because of what a job does to it.
MOST_LOST_HOSTS = 10
# Events of an attempt with progress, or of a user's request to try again.
_FRUIT = frozenset(
    {
        *(kinds.GENERATION, kinds.TRAINING_STARTED, kinds.TRAINING_ENDED),
        *(kinds.JOB_ARRIVED, kinds.JOB_RESUMED, kinds.RELOCATED),
    }
)


def stop_requests(store: Store, living: Sequence[str]) -> dict[str, str]:
    """Return job → reason for jobs with an open stop request. A job that was resumed after it has none."""
    stopping: dict[str, str] = {}
    for event in store.events(jobs=living, kinds=[STOP_REQUESTED, kinds.JOB_ARRIVED]):
        if event.job is None:
            continue
        if event.kind == STOP_REQUESTED:
            stopping[event.job] = str(event.data.get("why", ""))
        else:
            stopping.pop(event.job, None)
    return stopping


def supervisor_lost(
    change: Change,
    job: str,
    said: str,
    *,
    stopping: str | None = None,
    progress: JobProgress | None = None,
    host: str = "",
) -> None:
    """Record that the job's supervisor ended before the job did, after all its reports were taken.

    Args:
        change: the transaction.
        job: one that has not ended.
        said: the last lines of the supervisor's log.
        stopping: why the job is to be stopped, None when it is not.
        progress: the newest received, stored for clients that look before the next attempt reports.
        host: the host that it was lost with, "" when it ended by itself.
    """
    row = change.row(job)
    if stopping is not None:
        reports.end(change, job, JobState.KILLED, stopping)
        return
    data: dict[str, object] = {"attempt": row.attempt, "said": said}
    before = _chosen(change, job)
    if moves := bool(before) and before[-1].kind == kinds.RELOCATED:
        data["moved_to"] = _next_host(change, job)
    elif host:
        data["lost_host"] = host
    seq = change.append(kinds.SUPERVISOR_LOST, job, data)
    in_vain, lost_hosts = _in_vain(change, job)
    if in_vain >= MOST_IN_VAIN or lost_hosts >= MOST_LOST_HOSTS:
        message = f"Its supervisor ended unexpectedly, {in_vain} times in a row before anything was trained."
        if lost_hosts >= MOST_LOST_HOSTS:
            message = f"It lost its host {lost_hosts} times in a row before anything was trained."
        reports.end(change, job, JobState.FAILED, f"{message}\n{said}" if said else message)
        return
    # A row without a key has no supervisor. Fencing: the next attempt's number refuses what is left of this one.
    kept = {} if progress is None else {"progress": progress}
    change.tx.update_job(job, supervisor=None, public_key="", **kept)
    if not change.core.holding(job) and not change.core.leaving(job):
        if change.core.suspended(job):
            suspension.settle(change, job, cause=seq)
            return
        if row.state is JobState.PENDING:
            return  # launched with its next slot
    if not change.core.suspended(job) and not change.core.asked(job):
        change.apply(JobDemand(job, 1), cause=seq)  # its main script runs again, which takes a slot
    message = "It moves to another host." if moves else f"Its supervisor is gone; attempt {row.attempt + 1} begins."
    change.set_state(job, JobState.RECOVERING, message, cause=seq)
    change.launch(job)


def _in_vain(change: Change, job: str) -> tuple[int, int]:
    """Return how many attempts in a row, with the present one, made no progress: ended by themselves, lost hosts."""
    ended = lost = 0
    fruit = False
    for event in _chosen(change, job):
        if event.kind != kinds.SUPERVISOR_LOST:
            ended, lost, fruit = 0, 0, event.kind not in (kinds.JOB_ARRIVED, kinds.JOB_RESUMED)
        elif fruit:
            fruit = False
        elif "lost_host" in event.data:
            lost += 1
        else:
            ended += 1
    return ended, lost


def _chosen(change: Change, job: str) -> list[Event]:
    """Return the events that tell whether attempts made progress, with those of this change."""
    chosen = _FRUIT | {kinds.SUPERVISOR_LOST}
    committed = change.ledger.store.events(job=job, kinds=chosen)
    return [*committed, *(each for each in change.events if each.job == job and each.kind in chosen)]


def _next_host(change: Change, job: str) -> str:
    """Return the host with most slots of the job, where its next supervisor will be. "" while it has none."""
    holding = change.core.holding(job)
    hosts = Counter(slot.host for slot in change.core.slots if slot.id in holding)
    return min(hosts, key=lambda host: (-hosts[host], host), default="")
