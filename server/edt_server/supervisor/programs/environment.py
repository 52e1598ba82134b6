"""Build the environment of a job's driver and workers: WMLA's variables, the job's own, and no secret of the server.

Order of precedence: first the variables that define a slot (EDT_*, CUDA_VISIBLE_DEVICES), then the job's `env`, then
the variables set here, then those that the server passes on (`system/detached.py`). WMLA's room adds the variables
that only WMLA's model code reads. A build without that room leaves them out. Pure, except `make_folders` and the name
of this host's network interface.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec

from edt_sdk import schemas
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.serving.replica_channel import socket_of
from edt_sdk.schemas.torchrun import AGENT_VARIABLE, AgentContext, TorchrunOptions
from edt_sdk.schemas.wire.context import JobContext, WorkerContext, to_environ
from edt_sdk.schemas.wire.control import SAME, Isolation, Launch, Slot
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import make_folder
from edt_sdk.schemas.wire.task import Task
from edt_sdk.schemas.wire.zygote import ROOM, ROOM_VARIABLE
from edt_server.supervisor.processes.liveness import pulse_file
from edt_server.system.detached import AT_START

_WMLA = find_spec("edt_server.wmla") is not None
if _WMLA:  # not later: a supervisor outlives an upgrade of the files
    from edt_server.wmla import variables as wmla

# For a job that is on one host. The names of interfaces are Linux's.
MASTER = "127.0.0.1"
INTERFACE = "lo"
_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
# WMLA's names that change what helpers like `emetrics` do. They must come from the job only.
_JOB_ONLY = frozenset({"TRAINING_ID", "JOB_STATE_DIR", "SUBID", "DATA_DIR", "DLI_DATA_FS"})
_OURS = frozenset({"CUDA_VISIBLE_DEVICES", "PYTHONPATH"})
# Which trial a job is. A search puts them into the job's own variables, where no other name of ours counts.
_OF_TRIALS = frozenset({"EDT_SEARCH", "EDT_TRIAL", "EDT_PARAMS"})
# Folders of the service's own account.
_OF_THE_SERVICE = frozenset({"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR"})
HASH_SEED = "0"
# An update frees and allocates its activations again. glibc would return that memory to the system each time, which
# has to clear it again: a tenth of the time of a small convolutional model on CPU.
_KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
SDK_DIR = Path(schemas.__file__).parents[1]
# The modules that WMLA's model code imports. A build without them leaves an entry of sys.path that does no harm.
COMPAT_DIR = SDK_DIR / "compat" / "job"


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """The settings that all processes of a job share on a host. `memory_dir` is its folder in memory, "" for none."""

    orders: Launch
    host: str
    link: Path
    base: Mapping[str, str]
    memory_dir: str = ""

    @property
    def paths(self) -> JobPaths:
        """The paths of the job's files."""
        return JobPaths(Path(self.orders.data_dir), self.orders.owner, self.orders.job_id)

    @property
    def code_dir(self) -> Path:
        """The working directory of driver and workers."""
        return self.paths.code_dir(self.orders.spec.code_dir)


def driver_environment(job: JobEnvironment) -> dict[str, str]:
    """Return all variables of the driver. It holds no slot and sees no GPU."""
    log_dir = job.paths.driver_log_dir(job.host)
    return _environment(job, log_dir, {}) | {"CUDA_VISIBLE_DEVICES": ""} | to_environ(_context(job))


def worker_environment(job: JobEnvironment, worker: int, slot: Slot) -> dict[str, str]:
    """Return all variables of a worker. It sees only the GPU of its slot, as "cuda:0"."""
    log_dir = job.paths.worker_log_dir(worker, job.host)
    environment = _environment(job, log_dir, _threads(job.orders.threads_per_slot)) | _gpus([slot])
    device = "cuda:0" if environment["CUDA_VISIBLE_DEVICES"] else "cpu"
    pulse = str(pulse_file(Path(job.orders.runtime_dir), worker))
    own = WorkerContext(
        worker=worker, slot=slot.id, device=device, interface=job.orders.interface or MASTER, pulse=pulse
    )
    return environment | to_environ(_context(job), own)


def task_environment(job: JobEnvironment, task: Task) -> dict[str, str]:
    """Return all variables of a process of a plain job. It sees the GPUs of its slots on its host.

    The process of rank 0 has the driver's LOG_DIR, where `elog` and `emetrics` are looked for.
    """
    paths, host = job.paths, task.slots[0].host
    log_dir = paths.worker_log_dir(task.rank, job.host) if task.rank else paths.driver_log_dir(job.host)
    place = _threads(job.orders.threads_per_slot * len(task.slots))
    place |= _of_task(Framework(job.orders.spec.framework), task, job.orders.interface)
    environment = _environment(job, log_dir, place) | _gpus([slot for slot in task.slots if slot.host == host])
    return environment | _path(job, environment) | to_environ(_context(job))


def agent_environment(job: JobEnvironment, worker: int, slots: Sequence[Slot]) -> dict[str, str]:
    """Return all variables of an agent of a torchrun job. It sees the GPUs of its slots, in their order."""
    spec = job.orders.spec
    environment = worker_environment(job, worker, slots[0]) | _gpus(slots)
    agent = AgentContext(
        options=spec.torchrun or TorchrunOptions(),
        processes=len(slots),
        first=worker,
        command=spec.command,
        streams=str(job.paths.streams_dir),
    )
    return environment | _path(job, environment) | {AGENT_VARIABLE: msgspec.json.encode(agent).decode()}


def zygote_environment(base: Mapping[str, str], threads: int, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return all variables of a zygote, from the server's (`base`) and the job's own (`env`).

    Without the job's own, the zygote fits all jobs without `start_time_variables`.
    """
    env = env or {}
    environment = _KEEP_MEMORY | {name: value for name, value in base.items() if name not in _JOB_ONLY}
    environment |= {
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": HASH_SEED,
        **_threads(threads),
        **_own(env),
    }
    # Not the job's code folder: nothing in it may shadow a module that every process imports.
    path = env.get("PYTHONPATH", base.get("PYTHONPATH", ""))
    if path:
        environment["PYTHONPATH"] = path
    return {**environment, ROOM_VARIABLE: " " * ROOM}


def start_time_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the job's variables that a process must have when it starts, sorted."""
    return tuple(sorted(name for name in env if name.startswith(AT_START) and name not in _OURS - {"PYTHONPATH"}))


def make_folders(job: JobEnvironment) -> None:
    """Make the result tree that scripts expect: model/, checkpoint/, log/, and for the engine model/train/.

    Scripts of `PyTorch` and `distPyTorch` save to model/ without creating it. Scripts that fail if it exists are
    TensorFlow's, which is not supported.
    """
    paths = job.paths
    engine = job.orders.spec.framework == Framework.EDT
    for folder in (paths.train_dir if engine else paths.model_dir, paths.checkpoint_dir, paths.log_root):
        make_folder(folder, within=paths.result_dir, owner=owner_of(job.orders))


def owner_of(orders: Launch) -> tuple[int, int] | None:
    """Return user and group of the files of a job that runs as an account of its own, else None."""
    account = orders.isolation.account
    return None if account is None else (account.uid, account.gid)


def base_environment(environ: Mapping[str, str], isolation: Isolation) -> dict[str, str]:
    """Return what a job's processes get of the variables of its supervisor, `environ`."""
    base, account = dict(environ), isolation.account
    if isolation.kind != SAME:
        base.pop("TMPDIR", None)  # a sandbox has a /tmp of its own, and no other such folder
    if account is not None:
        base = {name: value for name, value in base.items() if name not in _OF_THE_SERVICE}
        base |= {"HOME": account.home, "SHELL": account.shell, "USER": account.name, "LOGNAME": account.name}
    return base


def _own(env: Mapping[str, str]) -> dict[str, str]:
    ours = {name for name in env if name in _OURS or (name.startswith("EDT_") and name not in _OF_TRIALS)}
    return {name: value for name, value in env.items() if name not in ours}


def _threads(count: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(count), "MKL_NUM_THREADS": str(count)}


def _gpus(slots: Sequence[Slot]) -> dict[str, str]:
    """Return the variables by which a process sees the GPUs of these slots, in their order, and no other."""
    devices = [slot.device.removeprefix("cuda:") for slot in slots if slot.device.startswith("cuda:")]
    # Slots are numbered as the driver tools number them. CUDA's own default puts the fastest first.
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if devices else {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(devices), **order}


def _path(job: JobEnvironment, environment: Mapping[str, str]) -> dict[str, str]:
    """Return PATH with the job's own folder first: a command's `python` and `torchrun` are the job's."""
    own = os.path.dirname(job.orders.interpreter)
    return {"PATH": os.pathsep.join(filter(None, (own, environment.get("PATH", os.defpath))))}


def _environment(job: JobEnvironment, log_dir: Path, place: Mapping[str, str]) -> dict[str, str]:
    paths, spec = job.paths, job.orders.spec
    base = {name: value for name, value in job.base.items() if name not in _JOB_ONLY}
    platform = {
        **_of_job(job.orders, paths, log_dir, SDK_DIR),
        "PYTHONUNBUFFERED": "1",
        # The order of a set of strings depends on the hash seed, and with it perhaps the order of a model or a data
        # set. All workers must agree, in every run. A constant, so that one zygote fits all jobs.
        "PYTHONHASHSEED": HASH_SEED,
        **place,
    }
    own = _own(spec.env)
    path = [str(job.code_dir), spec.env.get("PYTHONPATH", base.get("PYTHONPATH", "")), str(COMPAT_DIR)]
    return {**base, **platform, **own, "PYTHONPATH": os.pathsep.join(entry for entry in path if entry)}


def _context(job: JobEnvironment) -> JobContext:
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
        checkpoint_interval=orders.checkpoint_interval,
        warm_start=orders.warm_start,
        memory_dir=job.memory_dir,
        framework=spec.framework,
        command=spec.command,
        validates=spec.registered.validates if spec.registered is not None else None,
        serves=spec.registered.serves if spec.registered is not None else None,
        serve_socket=str(socket_of(orders.runtime_dir)) if spec.framework == Framework.SERVE else "",
        log=spec.log,
    )


def _of_job(orders: Launch, paths: JobPaths, log_dir: Path, fabric_home: Path) -> dict[str, str]:
    """Return the variables of every process of a job. `log_dir` is the process's own."""
    variables = {
        "RESULT_DIR": str(paths.result_dir),
        "LOG_DIR": str(log_dir),
        "SAVED_MODEL_DIR": str(paths.model_dir),
        "CHECKPOINT_DIR": str(paths.checkpoint_dir),
        **_data(orders.data_fs, orders.spec.data_path, orders.dataset_dir),
    }
    return variables | wmla.of_job(orders, paths, fabric_home) if _WMLA else variables


def _interface_with(address: str) -> str:
    """Return the name of this host's network interface with an IPv4 address, "" where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no such address
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return ""


def _data(data_fs: str, data_path: str, dataset_dir: str) -> dict[str, str]:
    variables = {"DATA_PATH": data_path} if data_path else {}
    if data_fs:
        # Not set without a data folder: scripts have a default of their own for that.
        variables |= {"DLI_DATA_FS": data_fs, "DATA_DIR": os.path.join(data_fs, data_path) if data_path else data_fs}
    if dataset_dir:
        variables["DATA_DIR"] = dataset_dir
    return variables


def _of_task(framework: Framework, task: Task, address: str) -> dict[str, str]:
    """Return the place of a process of a plain job among the others. `address` is that of this host.

    Each process is a node of its own: it sees its own slots and is the only process there. RANK and its like are left
    out where there is one process, because libraries take them as a request to find others.
    """
    variables = {"NODE_RANK": str(task.rank), "MASTER_ADDR": task.master or MASTER, "MASTER_PORT": str(task.port)}
    interface = _interface_with(address) if task.master else INTERFACE
    if framework is Framework.DIST:
        variables |= {
            "RANK": str(task.rank),
            "WORLD_SIZE": str(task.world),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(task.rank),
        }
        if interface:
            variables |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return variables | wmla.of_task(task) if _WMLA else variables
