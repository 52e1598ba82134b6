"""Translate what runs of a model of Elastic Distributed Inference. Pure."""

from __future__ import annotations

from typing import Any

from edt_sdk.schemas.serving.deployments import DeploymentState, DeploymentView
from edt_sdk.schemas.serving.edge_file import Counters

_STATES = {
    DeploymentState.STOPPED: "disabled",
    DeploymentState.READY: "started",
    DeploymentState.FAILED: "failed",
}


def instance_object(name: str, view: DeploymentView | None, *, now: float, host: str) -> dict[str, Any]:
    """Return what runs of a model: a container for each revision that answers. None for one never started."""
    if view is None or view.state is DeploymentState.STOPPED:
        return {"name": name, "state": _STATES[DeploymentState.STOPPED], "instances": []}
    revisions = {each.number: each for each in view.revisions}
    containers, answered, seconds = [], 0, 1.0
    for number, counters in view.counters.items():
        finished, failed = _tasks(counters)
        containers.append(
            {
                "container_uid": revisions[number].job,
                "container_host": host,
                "container_status": "running" if counters.replicas else "starting",
                "running_task": counters.working,
                "finished_task": finished,
                "failed_task": failed,
                "total_task": finished + failed + counters.working + counters.queued,
            }
        )
        answered += finished + failed
        seconds = max(seconds, now - revisions[number].created)
    instance = {
        "isd_uid": name,
        "client_number": 0,
        "request_per_sec": answered / seconds,
        "data_size_per_sec": 0.0,
        "pending_tasks": sum(each.queued for each in view.counters.values()),
        "isd_container": containers,
    }
    return {"name": name, "state": _STATES.get(view.state, "starting"), "instances": [instance]}


def _tasks(counters: Counters) -> tuple[int, int]:
    finished = sum(count for status, count in counters.requests.items() if status < 500)
    return finished, sum(counters.requests.values()) - finished
