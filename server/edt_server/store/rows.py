"""What the store keeps beside events, as immutable values: a job, a snapshot of the core, a lease, a thing kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edt_sdk.schemas.job import JobProgress, JobSettings, JobSpec, JobState
from edt_sdk.schemas.wire.control import ProcessIdentity


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. Times are seconds since the epoch (UTC).

    Attributes:
        settings: the present values of the settings that may change.
        attempt: fencing number of the newest supervisor, 0 before the first.
        message: one sentence about the state, "" when the state is enough.
        interpreter: absolute path of the Python that runs the job.
        threads_per_slot: resolved, ≥ 1, and part of the bits.
        supervisor: the newest supervisor's process. None before the first, and after it was found dead.
        public_key: of that supervisor on the control channel (Z85), "" where there is none.
        shards: V of the job's present or last training, None before the first.
        last_report: number of the supervisor's newest committed report, 0 before the first.
        project, definition, metric: for WMLA's tasks, not used yet.
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
    settings: JobSettings
    project: str | None = None
    definition: str | None = None
    metric: str | None = None

    @property
    def supervised(self) -> bool:
        """Return True from the start of a supervisor until it is found dead."""
        return bool(self.public_key)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The core as it was after event number `seq`. A snapshot of an unknown `version` is ignored."""

    seq: int
    version: str
    data: bytes
    created: float


@dataclass(frozen=True, slots=True)
class Lease:
    """A right that one process at a time may hold.

    Attributes:
        holder: None when it was released.
        expires: seconds since the epoch. From then on any process may take it.
        url: where the holder can be reached, "" when it gave none.
        fencing: grows with every take and never shrinks, so that an earlier holder is recognised.
    """

    name: str
    holder: ProcessIdentity | None
    expires: float
    url: str
    fencing: int

    def free(self, now: float) -> bool:
        """Return True when any process may take it."""
        return self.holder is None or self.expires <= now


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """A data set, model or template. Times are seconds since the epoch (UTC).

    Attributes:
        id: safe in a path, never used again.
        kind: "dataset", "model" or "template".
        name: unique among the entries of this kind and owner.
        data: the entry's content as JSON. Only the catalogue interprets it.
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
