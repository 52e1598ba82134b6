"""WMLA's ids for our jobs, workers and instance groups. They are computed, never stored. Pure.

An exec, its application and its task have the job's id. A driver is `driver-<job>` and the n-th worker `<n>-<job>`,
after their log folders. An instance group's id is a UUID made of its name, the same on every server.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

# Never change it: notebooks keep a `sigId` and build later requests of it, so the id must be the same after a restart
# and on every server (docs/decisions/021).
_GROUPS = uuid.UUID("6f1c5d0e-6f0a-5a53-9d4c-0c7a9a3b7e11")
_DRIVER = "driver-"
_EXECUTOR = re.compile(r"(\d{1,6})-(.+)\Z")


def sig_id(group: str) -> str:
    """Return the id of an instance group."""
    return str(uuid.uuid5(_GROUPS, group))


def group_with(identifier: str, groups: Iterable[str]) -> str | None:
    """Return the name of the group with this id or name, None for an unknown group."""
    return next((name for name in groups if identifier in (sig_id(name), name)), None)


def driver_id(job: str) -> str:
    """Return the id of a job's driver, which 1.2.x also calls the submission."""
    return f"{_DRIVER}{job}"


def executor_id(worker: int, job: str) -> str:
    """Return the id of a worker. `worker` counts from 0."""
    return f"{worker}-{job}"


def jobs_meant(identifier: str) -> tuple[str, ...]:
    """Return the jobs that this may be an id of, likeliest first: the job's own, or its driver's."""
    if identifier.startswith(_DRIVER):
        return (identifier.removeprefix(_DRIVER), identifier)
    return (identifier,)


def worker_meant(identifier: str) -> int | None:
    """Return the number of the worker with this id, which may be the number alone. None for any other text."""
    found = _EXECUTOR.match(identifier)
    if found is not None:
        return int(found[1])
    return int(identifier) if identifier.isdecimal() and len(identifier) < 7 else None
