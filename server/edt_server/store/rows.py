"""A job as the store keeps it: one immutable value, read and written whole."""

from __future__ import annotations

from dataclasses import dataclass

from edt_sdk.schemas.control import ProcessIdentity
from edt_sdk.schemas.job import JobProgress, JobSpec, JobState


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. Times are seconds since the epoch (UTC).

    Attributes:
        spec: as submitted; `priority`, `max_workers` and `instance_group` beside it are the present values.
        attempt: fencing number of the newest supervisor, 0 before the first.
        message: one sentence about the state, "" when the state says it all.
        interpreter: absolute path of the Python that runs the job.
        threads_per_slot: resolved, ≥ 1; part of the bits.
        supervisor: the newest supervisor's process; None before the first, and after it was found gone.
        public_key: of that supervisor on the control channel (Z85), "" where there is none.
        shards: V of the job's present or last training, None before the first.
        last_report: number of the newest report of the supervisor that is committed, 0 before the first.
        project, definition, metric: for WMLA's tasks; not used yet.
    """

    id: str
    owner: str
    spec: JobSpec
    state: JobState
    state_since: float
    created: float
    started: float | None
    ended: float | None
    attempt: int
    message: str
    interpreter: str
    threads_per_slot: int
    supervisor: ProcessIdentity | None
    public_key: str
    shards: int | None
    last_report: int
    progress: JobProgress | None
    priority: int
    max_workers: int
    instance_group: str
    project: str | None = None
    definition: str | None = None
    metric: str | None = None

    @property
    def supervised(self) -> bool:
        """False when nobody looks after the job's processes: it has not started, or its supervisor is gone."""
        return bool(self.public_key)
