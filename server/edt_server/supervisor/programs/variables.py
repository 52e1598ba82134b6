"""Set the environment variables by which a job's code finds its folders, its data and its peers. Pure.

WMLA's room adds the variables that only WMLA's model code reads. A build without that room leaves them out.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire.control import Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.task import Task

_WMLA = find_spec("edt_server.wmla") is not None
if _WMLA:  # not later: a supervisor outlives an upgrade of the files
    from edt_server.wmla import variables as wmla

# Everything of a job is on one machine. The names of interfaces are Linux's.
MASTER = "127.0.0.1"
INTERFACE = "lo"


def of_job(orders: Launch, paths: JobPaths, log_dir: Path, fabric_home: Path) -> dict[str, str]:
    """Return the variables of every process of a job. `log_dir` is the process's own."""
    variables = {
        "RESULT_DIR": str(paths.result_dir),
        "LOG_DIR": str(log_dir),
        "SAVED_MODEL_DIR": str(paths.model_dir),
        "CHECKPOINT_DIR": str(paths.checkpoint_dir),
        **_data(orders.data_fs, orders.spec.data_path, orders.dataset_dir),
    }
    return variables | wmla.of_job(orders, paths, fabric_home) if _WMLA else variables


def _data(data_fs: str, data_path: str, dataset_dir: str) -> dict[str, str]:
    variables = {"DATA_PATH": data_path} if data_path else {}
    if data_fs:
        # Not set without a data folder: scripts have a default of their own for that.
        variables |= {"DLI_DATA_FS": data_fs, "DATA_DIR": os.path.join(data_fs, data_path) if data_path else data_fs}
    if dataset_dir:
        variables["DATA_DIR"] = dataset_dir
    return variables


def of_task(framework: Framework, task: Task) -> dict[str, str]:
    """Return the place of a process of a plain job among the others.

    Each process is a node of its own: it sees its own slots and is the only process there. RANK and its like are left
    out where there is one process, because libraries take them as a request to find others.
    """
    variables = {"NODE_RANK": str(task.rank), "MASTER_ADDR": MASTER, "MASTER_PORT": str(task.port)}
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
    return variables | wmla.of_task(task) if _WMLA else variables
