"""Jobs that are not elastic: how many slots they hold is settled when they are submitted. Pure."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobPatch, JobSpec


def sized(spec: JobSpec) -> JobSpec:
    """The specification whose job gets all its slots at once, or none; of an elastic one, as it is.

    `PyTorch` is one process, so its slots are one unit; `distPyTorch` is one for each `slots_per_unit`.
    """
    if Framework(spec.framework).elastic:
        return spec
    unit = spec.max_workers if spec.framework == Framework.PYTORCH else spec.slots_per_unit
    return msgspec.structs.replace(spec, min_workers=spec.max_workers, slots_per_unit=unit)


def check_change(spec: JobSpec, patch: JobPatch) -> None:
    """Unprocessable when the change would ask a program that is not elastic to become larger or smaller."""
    wanted = patch.max_workers
    if wanted is None or wanted == spec.max_workers or Framework(spec.framework).elastic:
        return
    raise Unprocessable(
        f"A {spec.framework} job runs on {spec.max_workers} workers, no more and no fewer.",
        hint="Submit it again with another max_workers, or as edtPyTorch or torchrun, whose jobs grow and shrink.",
        field="max_workers",
    )
