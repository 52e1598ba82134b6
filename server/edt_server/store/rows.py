"""What the store keeps beside events, as immutable values: a job, a snapshot of the core, a lease, a thing kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edt_sdk.schemas.job import JobProgress, JobSpec, JobState
from edt_sdk.schemas.wire.control import ProcessIdentity


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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The core as it was after event number `seq`.

    Attributes:
        seq: the newest event it includes.
        version: format of `data`; one that is not known is no snapshot.
        created: seconds since the epoch.
    """

    seq: int
    version: str
    data: bytes
    created: float


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may do what only one may do.

    Attributes:
        name: of the thing held.
        holder: the process that holds it; None when it was given back.
        expires: seconds since the epoch; from then on anybody may take it.
        url: where the holder is reached, "" when it does not say.
        fencing: grows with every take and never shrinks, so that an earlier holder is known as such.
    """

    name: str
    holder: ProcessIdentity | None
    expires: float
    url: str
    fencing: int

    def free(self, now: float) -> bool:
        """True when anybody may take it."""
        return self.holder is None or self.expires <= now


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """A data set, model or template. Times are seconds since the epoch (UTC).

    Attributes:
        id: safe in a path; never used again.
        kind: "dataset", "model" or "template".
        name: one of its kind for each owner.
        data: what there is to know of that kind, as JSON; its meaning is the catalogue's.
    """

    id: str
    owner: str
    kind: str
    name: str
    created: float
    changed: float
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Use:
    """A job that uses something of the catalogue: ids of model and data set, "" for none, and whether it validates."""

    job: str
    ended: bool
    model: str
    dataset: str
    validates: bool = False
