"""Define the programs of a job, the driver and the workers: module, environment and output files.

They are the same on the supervisor's host and on others, where an outpost starts them.
"""

from __future__ import annotations

import os
from pathlib import Path

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.wire.control import SAME, Launch, Slot
from edt_sdk.schemas.wire.regular import make_folder
from edt_sdk.schemas.wire.task import Task
from edt_sdk.schemas.wire.zygote import ONLY_VARIABLE
from edt_server.supervisor.processes.children import Program
from edt_server.supervisor.programs.environment import (
    JobEnvironment,
    agent_environment,
    driver_environment,
    owner_of,
    start_time_variables,
    task_environment,
    worker_environment,
    zygote_environment,
)
from edt_server.supervisor.state_machines.events import DRIVER

AGENT = "edt_sdk.torchrun.agent"
REPLICA = "edt_sdk.serving.replica"
DRIVER_MODULE = "edt_sdk.training.driver"
WORKER_MODULE = "edt_sdk.training.worker"
SCRIPT = "edt_sdk.training.script"


def program_of(
    job: JobEnvironment, key: int, slot: Slot | None, umask: int, *inherit: int, task: Task | None = None
) -> Program:
    """Return the program of the driver (without a slot), of a worker, or of a plain job's process (with a task).

    It makes the folder of its log, or raises OSError. The program holds the descriptors `inherit` too.
    """
    paths = job.paths
    log_dir = paths.driver_log_dir(job.host) if slot is None else paths.worker_log_dir(key, job.host)
    if slot is None:
        module, environment = DRIVER_MODULE, driver_environment(job)
    elif task is None:
        serves = job.orders.spec.framework == Framework.SERVE
        module, environment = REPLICA if serves else WORKER_MODULE, worker_environment(job, key, slot)
    elif job.orders.spec.framework == Framework.TORCHRUN:
        module, environment = AGENT, agent_environment(job, key, task.slots)
    else:
        module, environment = SCRIPT, task_environment(job, task)
        log_dir = Path(environment["LOG_DIR"])
    make_folder(log_dir, within=paths.result_dir, owner=owner_of(job.orders))
    return Program(
        module=module,
        directory=job.code_dir,
        environment=environment,
        streams=paths.streams_dir / stream_name(key),
        umask=umask,
        inherit=inherit,
        # A script has no link that would show it that its supervisor is gone.
        bound=module == SCRIPT,
        # The zygote does not have them, see `zygote_environment_of`.
        afresh=job.orders.isolation.kind != SAME and bool(start_time_variables(job.orders.spec.env)),
    )


def stream_name(key: int) -> str:
    """Return the stream files' name without ".stdout" and ".stderr"."""
    return "driver" if key == DRIVER else f"worker-{key}"


def zygote_environment_of(orders: Launch) -> dict[str, str]:
    """Return all variables of the job's own zygote."""
    spec = orders.spec
    # PYTHONPATH and LD_PRELOAD would run code of the job's in the zygote, which is outside of its sandbox.
    own = spec.env if orders.isolation.kind == SAME else {}
    environment = zygote_environment(os.environ, orders.threads_per_slot, own)
    if not shares_torch(spec):
        environment[ONLY_VARIABLE] = SCRIPT
    return environment


def shares_torch(spec: JobSpec) -> bool:
    """Return whether the job's zygote imports torch for its programs.

    A command, or a script's only process, imports torch itself if it needs it. Ranks of a script share the zygote's.
    """
    return not (spec.framework == Framework.PYTORCH or (spec.framework == Framework.DIST and spec.command))
