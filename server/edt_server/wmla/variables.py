"""The environment variables that only WMLA's model code reads, beside those that every job gets. Pure.

Variables that such code acts on have to be right. Of the variables that it only prints, those with a meaning here are
set. Imported only by `edt_server.supervisor.programs.environment`, and only where this room is installed.
"""

from __future__ import annotations

import os
from pathlib import Path

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire.control import Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.task import Task


def of_job(orders: Launch, paths: JobPaths, fabric_home: Path) -> dict[str, str]:
    """Return the variables of every process of a job."""
    spec = orders.spec
    code_dir = str(paths.code_dir(spec.code_dir))
    framework = Framework(spec.framework)
    account = orders.isolation.account
    uid, gid = (os.getuid(), os.getgid()) if account is None else (account.uid, account.gid)
    return {
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
        "USER_UID": str(uid),
        "DLI_RUN_AS_USERID": str(uid),
        "DLI_RUN_AS_GROUPID": str(gid),
        "DLI_IS_ELASTIC": "true" if framework.elastic else "false",
        "FRAME_WORK": framework.value,
        # WMLA's recordings have the word null where there are no weights.
        "RESUME_WEIGHT_PATH": orders.warm_start or "null",
        "DLI_LOGGER_LEVEL": "info",
        "DLI_CS_DATASTORE_META": f"type=fs,data_path={spec.data_path}" if spec.data_path else "type=fs",
    }


def of_task(task: Task) -> dict[str, str]:
    """Return the place of a process of a plain job, as a worker of WMLA found it."""
    return {
        "WMLA_NWORKER": str(task.world),
        "WMLA_WORKER_NDEVICE": str(len(task.slots)),
        # WMLA counts `TASK_ID` from 1 and `DLI_TASK_ID` from 0.
        "TASK_ID": str(task.rank + 1),
        "DLI_TASK_ID": str(task.rank),
    }
