"""WMLA's ids for our jobs, workers and instance groups: nothing is stored, each can be read back. Pure.

An exec, its application and its task have the job's id. A driver is `driver-<job>` and the n-th worker `<n>-<job>`: the
names of their log folders. An instance group's id is a UUID made of its name, the same on every server.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

_GROUPS = uuid.UUID("6f1c5d0e-6f0a-5a53-9d4c-0c7a9a3b7e11")
_DRIVER = "driver-"
_EXECUTOR = re.compile(r"(\d{1,6})-(.+)\Z")


def sig_id(group: str) -> str:
    """The id of an instance group."""
    return str(uuid.uuid5(_GROUPS, group))


def group_with(identifier: str, groups: Iterable[str]) -> str | None:
    """The name of the group that has this id, or this name; None when there is none."""
    return next((name for name in groups if identifier in (sig_id(name), name)), None)


def driver_id(job: str) -> str:
    """The id of a job's driver, which 1.2.x also calls the submission."""
    return f"{_DRIVER}{job}"


def executor_id(worker: int, job: str) -> str:
    """The id of a worker; `worker` counts from 0."""
    return f"{worker}-{job}"


def jobs_meant(identifier: str) -> tuple[str, ...]:
    """The jobs that this may be an id of, likeliest first: the job's own, or its driver's."""
    if identifier.startswith(_DRIVER):
        return (identifier.removeprefix(_DRIVER), identifier)
    return (identifier,)


def worker_meant(identifier: str) -> int | None:
    """The number of the worker with this id, which may be the number alone; None when it is no worker's."""
    found = _EXECUTOR.match(identifier)
    if found is not None:
        return int(found[1])
    return int(identifier) if identifier.isdecimal() and len(identifier) < 7 else None
