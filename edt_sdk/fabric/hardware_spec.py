"""Compute how many workers a `train()` call in a notebook may have from WMLA's keywords. Pure.

The newest keywords win: a `hardware_spec` counts nodes and GPUs, else `engines_number`, else `worker_num` workers with
`worker_device_num` devices each. A worker has one slot here, so only the product matters. The other fields of a
`hardware_spec` (processor units, memory, GPU profiles, a template name) have no meaning where all slots are alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edt_sdk.fabric.checks import whole
from edt_sdk.schemas.errors import InvalidRequest

_HINT = 'For example {"nodes": {"num_nodes": 2, "gpu": {"num_gpu": 1}}}.'


def most_workers(
    *,
    engines_number: int | None,
    hardware_spec: Mapping[str, Any] | str | None,
    worker_num: int | None,
    worker_device_num: int | None,
) -> int | None:
    """Return the upper limit, None when no argument sets it.

    Raises:
        InvalidRequest, Unprocessable: a count is no whole number above 0, or `hardware_spec` has another form.
    """
    counted = _counted(hardware_spec)
    if counted is not None:
        return counted
    if engines_number is not None:
        return whole("engines_number", engines_number, 1)
    if worker_num is None and worker_device_num is None:
        return None
    return whole("worker_num", _one(worker_num), 1) * whole("worker_device_num", _one(worker_device_num), 1)


def _counted(spec: Mapping[str, Any] | str | None) -> int | None:
    # A name or an id refers to a template of the platform, which this server does not have.
    if spec is None or isinstance(spec, str):
        return None
    nodes = _mapping(_mapping(spec).get("nodes"))
    devices = _mapping(nodes.get("gpu"))
    if nodes.get("num_nodes") is None and devices.get("num_gpu") is None:
        return None
    return whole("hardware_spec", _one(nodes.get("num_nodes")), 1) * whole(
        "hardware_spec", _one(devices.get("num_gpu")), 1
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidRequest(
            f"hardware_spec must be a dictionary of dictionaries, not {value!r}.", hint=_HINT, field="hardware_spec"
        )
    return value


def _one(value: Any) -> Any:
    return 1 if value is None else value
