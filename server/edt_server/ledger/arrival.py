"""Build the scheduler's event for a job that is submitted. Pure."""

from __future__ import annotations

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec
from edt_server.core.events import JobArrived

_ANY = 1 << 30


def arrival(job: str, owner: str, spec: JobSpec) -> JobArrived:
    """Return the event for a job that is submitted."""
    return JobArrived(
        job,
        spec.priority,
        spec.max_workers,
        spec.instance_group,
        owner=owner,
        min_workers=spec.min_workers,
        slots_per_unit=spec.slots_per_unit,
        pending_timeout=spec.pending_timeout,
        rigid=not Framework(spec.framework).elastic,
        # Its agents form their own group, so the demand never changes. Any number up to the maximum is used.
        demand=_ANY if spec.framework == Framework.TORCHRUN else 1,
    )
