"""Translate the application profiles of Elastic Distributed Inference: how many kernels, and how they work. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.serving.deployments import NewDeployment
from edt_server.store import CatalogueRow
from edt_server.wmla.inference.descriptions import InferenceRecord
from edt_server.wmla.inference.runtimes import SCHEMA, checked_pairs

_RESOURCES = "ncpus=0.5,ncpus_limit=2,mem=1024,mem_limit=4096"
# "kernel_max" -1 is as many as there are slots. What has no meaning here is kept and given back.
_PROFILE: dict[str, Any] = {
    "type": "inference",
    "schema_version": SCHEMA,
    "replica": 1,
    "policy": {
        "name": "default",
        "kernel_min": 1,
        "kernel_max": -1,
        "kernel_delay_release_time": 60,
        "schedule_interval": 5,
        "task_execution_timeout": 60,
        "task_batch_size": 1,
        "task_pipe_size": 1,
        "stream_number_per_group": 1,
        "stream_discard_slow_tasks": False,
    },
    "kernel": {
        "gpu": "no",
        "connection_timeout": 60,
        "envs": [],
        "log_directory": "",
        "run_as": "",
        "umask": "022",
        "working_directory": "",
    },
    "resource_allocation": {
        part: {
            "consumer": "",
            "resource_group": "",
            "resreq": _RESOURCES,
            "type": "",
        }
        for part in ("kernel", "service")
    },
}
_LONGEST, _MOST_ROWS = 3600.0, 1024


def profile_of(row: CatalogueRow, record: InferenceRecord) -> dict[str, Any]:
    """Return the whole application profile of a model."""
    times = {"create_time": str(int(row.created)), "last_update_time": str(int(row.changed))}
    return {"name": row.name, **_merged(_PROFILE, record.profile), **times}


def changed_profile(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record keeps of a profile after a change. InvalidRequest where it cannot be used."""
    known = {name: value for name, value in given.items() if name in _PROFILE}
    after = _merged(before, known)
    whole = _merged(_PROFILE, after)
    checked_pairs(whole["kernel"]["envs"], "envs", "name")
    policy = whole["policy"]
    least, most = _whole(policy, "kernel_min"), _whole(policy, "kernel_max")
    if least < 1:
        raise InvalidRequest(f"kernel_min is above 0, not {least}.", field="kernel_min")
    if most != -1 and most < least:
        raise InvalidRequest(
            f"kernel_max is {most}, which is less than kernel_min, {least}.",
            hint="-1 is as many as there are slots.",
            field="kernel_max",
        )
    for field in ("kernel_delay_release_time", "task_batch_size"):
        if _whole(policy, field) < 1:
            raise InvalidRequest(f"{field} is above 0, not {policy[field]}.", field=field)
    if _whole(policy, "task_execution_timeout") < 1 and policy["task_execution_timeout"] != -1:
        raise InvalidRequest("task_execution_timeout is a number of seconds above 0, or -1.", field="policy")
    return after


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, with objects inside of them merged too. InvalidRequest where only one of the two is an object."""
    found = dict(below)
    for name, value in above.items():
        if isinstance(found.get(name), dict) != isinstance(value, dict) and name in found:
            raise InvalidRequest(
                f"{name} is {'an object' if isinstance(found[name], dict) else 'no object'}.", field=name
            )
        found[name] = _merged(found.get(name, {}), value) if isinstance(value, dict) else value
    return found


def _whole(policy: Mapping[str, Any], field: str) -> int:
    value = policy[field]
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest(f"{field} is a whole number, not {value!r:.60}.", field=field)
    return value


def deployment(version: str, profile: Mapping[str, Any], *, slots: int, groups: Iterable[str]) -> NewDeployment:
    """Return the deployment that a profile describes. A consumer means the instance group of its last word, if any."""
    policy = profile["policy"]
    least, most, seconds = policy["kernel_min"], policy["kernel_max"], policy["task_execution_timeout"]
    consumer = str(profile["resource_allocation"]["kernel"].get("consumer") or "").rpartition("/")[2]
    return NewDeployment(
        version=version,
        name=version.partition("/")[0],
        instance_group=consumer if consumer in groups else "",
        replicas=(least, max(least, slots) if most == -1 else most),
        release_after=float(policy["kernel_delay_release_time"]),
        max_batch=min(policy["task_batch_size"], _MOST_ROWS),
        deadline=_LONGEST if seconds == -1 else min(float(seconds), _LONGEST),
    )
