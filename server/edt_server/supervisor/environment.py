"""The environment of a job's driver and workers: WMLA's variables, the job's own, and nothing of the server's secrets.

Order of precedence: what makes a slot a slot (EDT_*, CUDA_VISIBLE_DEVICES) is ours alone; then the job's `env`; then
what is set here; then what the server was started with. Pure but for `make_folders`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edt_sdk import schemas
from edt_sdk.schemas.context import JobContext, WorkerContext, to_environ
from edt_sdk.schemas.control import Launch, Slot
from edt_sdk.schemas.paths import JobPaths

# Tokens and addresses of the server and the Hub, and what tells a process that it is one of theirs.
_SERVER_PREFIXES = ("JPY_", "JUPYTERHUB_", "EDT_")
_SERVER_NAMES = frozenset({"JUPYTER_TOKEN", "JUPYTER_PASSWORD", "CONFIGPROXY_AUTH_TOKEN"})
# WMLA's names that change what helpers like `emetrics` do; they must come from the job or from nobody.
_JOB_ONLY = frozenset({"TRAINING_ID", "JOB_STATE_DIR", "SUBID", "DATA_DIR", "DLI_DATA_FS"})
_OURS = frozenset({"CUDA_VISIBLE_DEVICES", "PYTHONPATH"})
SDK_DIR = Path(schemas.__file__).parents[1]
COMPAT_DIR = SDK_DIR / "compat" / "job"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is the same for all processes of one job."""

    orders: Launch
    host: str
    link: Path
    base: Mapping[str, str]

    @property
    def paths(self) -> JobPaths:
        """Where the job's files are."""
        return JobPaths(Path(self.orders.data_dir), self.orders.owner, self.orders.job_id)

    @property
    def code_dir(self) -> Path:
        """Working directory of driver and workers."""
        return self.paths.code_dir(self.orders.spec.code_dir)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The server's environment without its tokens: a job gets rights from nobody but its owner."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_SERVER_PREFIXES) and name not in _SERVER_NAMES
    }


def driver_environment(job: Surroundings) -> dict[str, str]:
    """All variables of the driver; it holds no slot and sees no GPU."""
    log_dir = job.paths.driver_log_dir(job.host)
    return _environment(job, log_dir, {}) | {"CUDA_VISIBLE_DEVICES": ""} | to_environ(_context(job))


def worker_environment(job: Surroundings, worker: int, slot: Slot) -> dict[str, str]:
    """All variables of one worker; of the machine's GPUs it sees the slot's one, as "cuda:0"."""
    log_dir = job.paths.worker_log_dir(worker, job.host)
    threads = str(job.orders.threads_per_slot)
    environment = _environment(job, log_dir, {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads})
    index = slot.device.removeprefix("cuda:") if slot.device.startswith("cuda:") else ""
    environment["CUDA_VISIBLE_DEVICES"] = index
    if index:
        # Slots are numbered like the driver tools number them; CUDA's own default puts the fastest first.
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    own = WorkerContext(worker=worker, slot=slot.id, device="cuda:0" if index else "cpu")
    return environment | to_environ(_context(job), own)


def make_folders(job: Surroundings) -> None:
    """Make the result tree that scripts expect to be there: model/, model/train/, checkpoint/, log/."""
    paths = job.paths
    for folder in (paths.train_dir, paths.checkpoint_dir, paths.log_root):
        folder.mkdir(parents=True, exist_ok=True)


def _environment(job: Surroundings, log_dir: Path, threads: Mapping[str, str]) -> dict[str, str]:
    paths, spec = job.paths, job.orders.spec
    base = {name: value for name, value in inherited(job.base).items() if name not in _JOB_ONLY}
    platform = {
        "RESULT_DIR": str(paths.result_dir),
        "LOG_DIR": str(log_dir),
        "SAVED_MODEL_DIR": str(paths.model_dir),
        "CHECKPOINT_DIR": str(paths.checkpoint_dir),
        "DLI_RESULT_FS": str(paths.results_root),
        "DLI_EXECID": job.orders.job_id,
        "DLI_WORK_DIR": str(job.code_dir),
        "MODEL_PATH": str(job.code_dir),
        "PS_PATH": str(job.code_dir),
        # Scripts join "libs/fabric.zip" to it and put that on sys.path, where a missing entry does no harm.
        "FABRIC_HOME": str(SDK_DIR),
        # Scripts rebuild RESULT_DIR from it.
        "USER": job.orders.owner,
        "DLI_IS_ELASTIC": "true",
        "FRAME_WORK": "edtPyTorch",
        "PYTHONUNBUFFERED": "1",
        # The order of a set of strings depends on it, and with it perhaps a model's or a data set's order: all workers
        # must agree, on every run.
        "PYTHONHASHSEED": str(spec.seed % 2**32),
        **threads,
    }
    if job.orders.data_fs:
        platform |= {"DATA_DIR": job.orders.data_fs, "DLI_DATA_FS": job.orders.data_fs}
    own = {name: value for name, value in spec.env.items() if not name.startswith("EDT_") and name not in _OURS}
    path = [str(job.code_dir), spec.env.get("PYTHONPATH", base.get("PYTHONPATH", "")), str(COMPAT_DIR)]
    return {**base, **platform, **own, "PYTHONPATH": os.pathsep.join(entry for entry in path if entry)}


def _context(job: Surroundings) -> JobContext:
    orders, spec = job.orders, job.orders.spec
    return JobContext(
        job_id=orders.job_id,
        owner=orders.owner,
        data_dir=orders.data_dir,
        link=str(job.link),
        main=spec.main,
        code_dir=spec.code_dir,
        args=spec.args,
        seed=spec.seed,
        mode=spec.mode,
        threads_per_slot=orders.threads_per_slot,
        max_workers=spec.max_workers,
    )
