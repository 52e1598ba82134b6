"""The variables under whose names WMLA's model code finds its place, its data and its peers. Pure.

Those that its code reads have to be right; of those that it only shows, the ones are set that mean something here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire.control import Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.task import Task

# Everything of a job is on one machine; names of interfaces are Linux's.
MASTER = "127.0.0.1"
INTERFACE = "lo"


def of_job(orders: Launch, paths: JobPaths, log_dir: Path, fabric_home: Path) -> dict[str, str]:
    """What all processes of a job are told; `log_dir` is the process's own."""
    spec = orders.spec
    code_dir = str(paths.code_dir(spec.code_dir))
    framework = Framework(spec.framework)
    variables = {
        "RESULT_DIR": str(paths.result_dir),
        "LOG_DIR": str(log_dir),
        "SAVED_MODEL_DIR": str(paths.model_dir),
        "CHECKPOINT_DIR": str(paths.checkpoint_dir),
        "DLI_RESULT_FS": str(paths.results_root),
        "DLI_EXECID": orders.job_id,
        "APP_ID": orders.job_id,
        "DLI_WORK_DIR": code_dir,
        "MODEL_PATH": code_dir,
        "PS_PATH": code_dir,
        # Scripts join "libs/fabric.zip" to it and put that on sys.path, where a missing entry does no harm.
        "FABRIC_HOME": str(fabric_home),
        "DLI_FABRIC_HOME": str(fabric_home),
        # Scripts rebuild RESULT_DIR from it.
        "USER": orders.owner,
        "DLI_SUBMIT_USERNAME": orders.owner,
        "USER_UID": str(os.getuid()),
        "DLI_RUN_AS_USERID": str(os.getuid()),
        "DLI_RUN_AS_GROUPID": str(os.getgid()),
        "DLI_IS_ELASTIC": "true" if framework.elastic else "false",
        "FRAME_WORK": framework.value,
        "RESUME_WEIGHT_PATH": orders.warm_start or "null",
        "DLI_LOGGER_LEVEL": "info",
        "DLI_CS_DATASTORE_META": f"type=fs,data_path={spec.data_path}" if spec.data_path else "type=fs",
    }
    return variables | _data(orders.data_fs, spec.data_path, orders.dataset_dir)


def _data(data_fs: str, data_path: str, dataset_dir: str) -> dict[str, str]:
    variables = {"DATA_PATH": data_path} if data_path else {}
    if data_fs:
        # Not set without a data folder: scripts have a default of their own for that.
        variables |= {"DLI_DATA_FS": data_fs, "DATA_DIR": os.path.join(data_fs, data_path) if data_path else data_fs}
    if dataset_dir:
        variables["DATA_DIR"] = dataset_dir
    return variables


def of_task(framework: Framework, task: Task) -> Mapping[str, str]:
    """What a process of a plain job is told of its place among the others.

    Each is what a worker of WMLA was, a node of its own: it sees its own slots and is the only one there. RANK and its
    like are left out where there is one process, since libraries take them for a wish to find others.
    """
    variables = {
        "WMLA_NWORKER": str(task.world),
        "WMLA_WORKER_NDEVICE": str(len(task.slots)),
        "NODE_RANK": str(task.rank),
        "MASTER_ADDR": MASTER,
        "MASTER_PORT": str(task.port),
        "TASK_ID": str(task.rank + 1),
        "DLI_TASK_ID": str(task.rank),
    }
    if framework is Framework.DIST:
        variables |= {
            "RANK": str(task.rank),
            "WORLD_SIZE": str(task.world),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(task.rank),
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "NCCL_SOCKET_IFNAME": INTERFACE,
        }
    return variables
