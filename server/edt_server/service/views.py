"""Show jobs: from a row, the core and the newest progress to the JSON of the API. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import SCHEDULED, JobProgress, JobSettings, JobSpec, JobView
from edt_sdk.schemas.wire.control import Slot
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.ledger import Ledger
from edt_server.store import JobRow

WORKER_KINDS = frozenset(
    {
        *(kinds.WORKER_STARTED, kinds.WORKER_LOST, kinds.GENERATION, kinds.SLOT_RELEASED),
        *(kinds.RUN_STARTED, kinds.RUN_STOPPED, kinds.TRAINING_ENDED, kinds.SUPERVISOR_LOST, kinds.JOB_GONE),
    }
)


def job_view(
    ledger: Ledger,
    row: JobRow,
    data_dir: Path,
    progress: JobProgress | None,
    now: float,
    ends: Mapping[str, tuple[float, float]],
) -> JobView:
    """Return the owner's view. `progress` is newer than the row's, or None. `now`, `ends`: see `Core.reason`."""
    here = not row.state.final and row.id in ledger.core.jobs
    spec = row.spec
    return JobView(
        **msgspec.structs.asdict(row.settings),
        id=row.id,
        name=spec.name,
        owner=row.owner,
        state=row.state,
        state_since=row.state_since,
        created=row.created,
        started=row.started,
        ended=row.ended,
        mode=spec.mode,
        seed=spec.seed,
        main=spec.main,
        args=spec.args,
        slots=len(ledger.core.holding(row.id)) if here else 0,
        shards=row.shards,
        progress=progress or row.progress,
        reason=ledger.core.reason(row.id, ledger.name, now=now, ends=ends) if here else None,
        message=row.message,
        result_dir=str(JobPaths(data_dir, row.owner, row.id).result_dir),
        warm_start=spec.warm_start,
        min_workers=spec.min_workers,
        slots_per_unit=spec.slots_per_unit,
        pending_timeout=spec.pending_timeout,
        framework=spec.framework,
        dataset=spec.dataset,
        model=spec.registered.model_name if spec.registered is not None else "",
        validates=validated(spec),
        log=spec.log,
        search=spec.search,
    )


# Other users may know what divides the slots, and no other setting, also none that is added one day.
_PRIVATE_SETTINGS = {
    field.name: field.default for field in msgspec.structs.fields(JobSettings) if field.name not in SCHEDULED
}


def public_view(view: JobView) -> JobView:
    """Return the view of another user's job: its part in sharing the slots, nothing of its work."""
    return msgspec.structs.replace(
        view,
        **_PRIVATE_SETTINGS,
        seed=0,
        main="",
        args=(),
        shards=None,
        progress=None,
        reason=None,
        message="",
        result_dir="",
        warm_start="",
        dataset="",
        model="",
        validates="",
    )


def validated(spec: JobSpec) -> str:
    """Return the id of the training that a validation validates, "" for a training."""
    used = spec.registered
    return used.validates.training if used is not None and used.validates is not None else ""


def running_workers(events: Iterable[Event], slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """Return the running workers, from a job's `WORKER_KINDS` events in order. A joiner has no rank yet."""
    hosts = {slot.id: slot.host for slot in slots}
    workers: dict[int, dict[str, Any]] = {}
    for event in events:
        data: Mapping[str, Any] = event.data
        if event.kind == kinds.WORKER_STARTED:
            # When an agent is lost with all its processes, only one of them has an event.
            workers = {each: worker for each, worker in workers.items() if worker["slot"] != data["slot"]}
            workers[data["worker"]] = {
                "worker": data["worker"],
                "slot": data["slot"],
                "host": hosts.get(data["slot"], ""),
                "pid": data["pid"],
                "rank": None,
                "generation": None,
            }
        elif event.kind in (kinds.GENERATION, kinds.RUN_STARTED):
            for worker in workers.values():
                worker["rank"] = worker["generation"] = None
            for rank, number in enumerate(data["workers"]):
                if number in workers:
                    workers[number].update(rank=rank, generation=data["number"])
        elif event.kind in (kinds.SLOT_RELEASED, kinds.WORKER_LOST):
            workers.pop(data.get("worker", -1), None)
        else:
            workers.clear()
    return sorted(workers.values(), key=lambda worker: (worker["rank"] is None, worker["rank"], worker["worker"]))
