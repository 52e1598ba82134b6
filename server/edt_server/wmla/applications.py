"""Show a job as an application: for 1.2.x's conductor, and for dlicmd's scheduler requests of 2.x. Pure.

No value is invented: memory and utilization of GPUs are 0 because they are not measured here, and a slot counts as a
GPU only where it is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edt_sdk.schemas.frameworks import Framework, framework_named
from edt_server.wmla import ids
from edt_server.wmla.execs import Described, utc
from edt_server.wmla.plan_tree import path_of
from edt_server.wmla.states import CONDUCTOR, SCHEDULER

# The values of `type` that dlicmd prints.
_TYPE = "Training"


def conductor_application(job: Described, workers: Sequence[Mapping[str, Any]], now: float) -> dict[str, Any]:
    """Return the application as conductor shows it, with the job's running workers. `now` is in seconds."""
    view = job.view
    # WMLA's recordings have the newest executor first.
    newest_first = sorted(workers, key=lambda worker: int(worker["worker"]), reverse=True)
    return {
        "id": view.id,
        "applicationid": view.id,
        "applicationname": job.app_name,
        "state": CONDUCTOR[view.state],
        "type": "BATCH",
        "username": view.owner,
        "sparkinstancegroupid": ids.sig_id(view.instance_group),
        "sigName": view.instance_group,
        "submittedtime": utc(view.created),
        "endtime": utc(view.ended),
        "apprunduration": _minutes(job, now),
        "slots": view.slots,
        "demandslots": view.max_workers,
        # Notebooks show a job's growth by `gpuslots`, the slots held now. They read both totals below as well, so the
        # keys must exist although nothing is measured.
        "gpuslots": view.slots,
        "gpumemused": {"total": 0},
        "gpudevutil": {"total": 0},
        "driver": {"id": ids.driver_id(view.id), "state": CONDUCTOR[view.state]},
        "executors": [
            {"id": ids.executor_id(worker["worker"], view.id), "host": worker["host"], "state": "RUNNING"}
            for worker in newest_first
        ],
    }


def application_detail(job: Described, executors: int, has_driver: bool, now: float) -> dict[str, Any]:
    """Return the application as GET /scheduler/applications lists it.

    `executors` is the number of workers that it has had. Their logs can be read as 1 … executors.
    """
    view = job.view
    return {
        "id": view.id,
        "applicationid": view.id,
        "applicationname": job.app_name,
        "driverid": ids.driver_id(view.id),
        "type": "BATCH",
        "state": SCHEDULER[view.state],
        "username": view.owner,
        "sparkinstancegroupid": ids.sig_id(view.instance_group),
        "sigId": ids.sig_id(view.instance_group),
        "sigName": view.instance_group,
        "submittedtime": utc(view.created),
        "endtime": utc(view.ended),
        "apprunduration": _minutes(job, now),
        "slots": view.slots,
        "demandslots": view.max_workers,
        "dltype": view.framework,
        "model": job.spec.code_dir or job.spec.main,
        # dlicmd fetches a driver's log where `task0` is truthy, and as many executor logs as `task12n` is long.
        "task0": {"id": ids.driver_id(view.id), "state": SCHEDULER[view.state]} if has_driver else {},
        "task12n": [{"id": ids.executor_id(number, view.id)} for number in range(executors)],
    }


def engine_application(job: Described, parents: Mapping[str, str], *, gpus: bool) -> dict[str, Any]:
    """Return the application as GET /scheduler/engine/applications shows it: times in whole seconds, 0 for not yet."""
    view = job.view
    consumer = path_of(view.instance_group, parents)
    units = view.max_workers // view.slots_per_unit
    resources = {"ngpus": view.slots_per_unit if gpus else 0, "mem": 0, "ncpus": 0 if gpus else view.slots_per_unit}
    held = view.slots // view.slots_per_unit
    found = {
        "id": view.id,
        "name": job.app_name,
        "type": _TYPE,
        "state": SCHEDULER[view.state],
        # dlicmd's --app-analyze indexes tag, type, state and submit_time directly, so none of the four may be missing
        # or null.
        "tag": f"{consumer}/{view.owner}",
        "consumer": consumer,
        "submit_user": view.owner,
        "priority": view.priority,
        # Whole seconds: dlicmd computes an age from them, and a float makes it fail.
        "submit_time": int(view.created),
        "start_time": int(view.started or 0),
        "end_time": int(view.ended or 0),
        "used_gpu": view.slots if gpus else 0,
        "used_cpu": 0 if gpus else view.slots,
        "used_mem": 0,
        # dlicmd splits this text at commas, and each part at exactly one equals sign. Memory counts in MB.
        "task12n_resreq": ",".join(f"{name}={value}" for name, value in resources.items()),
        "task12n_num": units,
        "task12n": [{"id": f"{view.id}-{number}"} for number in range(1, (held or units) + 1)],
        "kernels": [],
        "is_packing": False,
        "pack_id": "",
    }
    if framework_named(view.framework) is Framework.EDT:
        # To dlicmd the key itself means that there is a driver, so other jobs do not have it.
        found["task0_resreq"] = "ngpus=0,mem=0,ncpus=0"
    return found


def parallel_job(job: Described) -> dict[str, Any]:
    """Return the cluster object that dlicmd asks for until it has ended: its state, and why it waits."""
    view = job.view
    return {
        "kind": "ParallelJob",
        "metadata": {
            "name": view.id,
            "uid": view.id,
            "namespace": "",
            "creationTimestamp": utc(view.created),
            "labels": {"msd/job": view.id, "msd/job-type": _TYPE},
            "annotations": {},
        },
        "spec": {"taskGroups": []},
        "status": {
            "jobStatus": SCHEDULER[view.state],
            "jobPendingReason": view.reason.text if view.reason is not None else "",
            "jobStartTime": utc(view.started),
        },
    }


def _minutes(job: Described, now: float) -> float:
    view = job.view
    if view.started is None:
        return 0.0
    end = view.ended if view.state.final and view.ended is not None else now
    # Minutes and not seconds: notebooks of 1.2.x read the number in that unit.
    return round(max(0.0, end - view.started) / 60, 4)
