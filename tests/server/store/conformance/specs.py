"""A row's specification with something changed."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.job import JobSpec
from edt_server.store import JobRow


def with_spec(row: JobRow, **changes: object) -> JobSpec:
    return msgspec.structs.replace(row.spec, **changes)
