"""Jobs that are not elastic: their number of slots is fixed at submission. Pure."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobPatch, JobSpec


def sized(spec: JobSpec) -> JobSpec:
    """Return the specification with a fixed size, or unchanged for an elastic job. Its job gets all slots at once.

    `PyTorch` is one process, so its slots are one unit. `distPyTorch` has one process for each `slots_per_unit`.
    """
    if Framework(spec.framework).elastic:
        return spec
    unit = spec.max_workers if spec.framework == Framework.PYTORCH else spec.slots_per_unit
    return msgspec.structs.replace(spec, min_workers=spec.max_workers, slots_per_unit=unit)


def check_change(spec: JobSpec, patch: JobPatch) -> None:
    """Raise Unprocessable when the change would resize a program that is not elastic."""
    wanted = patch.max_workers
    if wanted is None or wanted == spec.max_workers or Framework(spec.framework).elastic:
        return
    raise Unprocessable(
        f"A {spec.framework} job runs on {spec.max_workers} workers, no more and no fewer.",
        hint="Submit it again with another max_workers, or as edtPyTorch or torchrun, whose jobs grow and shrink.",
        field="max_workers",
    )
