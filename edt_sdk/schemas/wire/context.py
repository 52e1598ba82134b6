"""The supervisor describes the job and the worker to the processes it starts, in two environment variables.

`EDT_JOB` is the same for all processes of a job, `EDT_WORKER` exists in workers only. Variables that the user's code
reads (RESULT_DIR, LOG_DIR, …) are WMLA's, and the supervisor sets them too.

What the job's programs start inherits `EDT_JOB`. In a session of its own, without a link or a lock, nothing else shows
that it belongs to the job (`end_processes`). A process that was started with its own environment is not found.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.registered import Serves
from edt_sdk.schemas.validation import Validates
from edt_sdk.schemas.wire.paths import JobPaths

log = logging.getLogger(__name__)

JOB_VARIABLE = "EDT_JOB"
WORKER_VARIABLE = "EDT_WORKER"
_PATIENCE = 5.0


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its own processes see it. The fields are those in `job.JobSpec` and `control.Launch`.

    `link` is the supervisor's socket. `memory_dir` is a folder in memory (tmpfs) for the job's newest state, which
    outlives its processes but not the machine. It is "" where there is none. The supervisor makes and removes it.
    `validates` is the training and weights that a validation validates, None in a training. `serves` is what a replica
    of a deployment serves, and `serve_socket` where the edge listens (`edt_sdk.schemas.serving.replica_channel`). A
    supervisor of a version without the setting does not send `log`, and its job goes on printing as before.
    """

    job_id: str
    owner: str
    data_dir: str
    link: str
    main: str
    code_dir: str
    args: tuple[str, ...]
    seed: int
    mode: str
    threads_per_slot: int
    max_workers: int
    checkpoint_interval: float = 30.0
    warm_start: str = ""
    memory_dir: str = ""
    framework: str = Framework.EDT.value
    command: tuple[str, ...] = ()
    validates: Validates | None = None
    serves: Serves | None = None
    serve_socket: str = ""
    log: str = "batches"

    @property
    def quiet(self) -> bool:
        """Return whether the log has few lines on the training, not some for every micro-batch."""
        return self.log == "quiet"

    @property
    def paths(self) -> JobPaths:
        """Return the places of the job's files."""
        return JobPaths(Path(self.data_dir), self.owner, self.job_id)


class WorkerContext(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's own part of the context.

    Attributes:
        worker: its number within the job, from 0, never reused.
        slot: id of its slot, -1 for a worker that was started on the CPU before it had any.
        device: "cpu" or "cuda:0" (CUDA_VISIBLE_DEVICES already selects the slot's GPU).
        interface: address that stores and process groups bind to.
        pulse: file of `edt_sdk.schemas.wire.pulse` that this worker writes its heartbeat to, "" for none.
    """

    worker: int
    slot: int
    device: str
    interface: str = "127.0.0.1"
    pulse: str = ""


def job_context(environ: Mapping[str, str] = os.environ) -> JobContext | None:
    """Return the job that this process belongs to, None outside a job."""
    text = environ.get(JOB_VARIABLE)
    return msgspec.json.decode(text, type=JobContext) if text else None


def worker_context(environ: Mapping[str, str] = os.environ) -> WorkerContext | None:
    """Return this worker's own part, None in any other process."""
    text = environ.get(WORKER_VARIABLE)
    return msgspec.json.decode(text, type=WorkerContext) if text else None


def to_environ(job: JobContext, worker: WorkerContext | None = None) -> dict[str, str]:
    """Return the environment variables to set."""
    variables = {JOB_VARIABLE: msgspec.json.encode(job).decode()}
    if worker is not None:
        variables[WORKER_VARIABLE] = msgspec.json.encode(worker).decode()
    return variables


def end_processes(mark: bytes) -> int:
    """Kill every other process of this account with `mark` in its EDT_JOB, and return how many there were. Blocks."""
    found: set[int] = set()
    deadline = time.monotonic() + _PATIENCE
    # A killed process may have been forking, and is seen until it has exited: repeat until none is found.
    while killed := {pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _end(pid, mark)}:
        found |= killed
        if time.monotonic() > deadline:
            log.warning("processes of the job do not end: %s", sorted(killed))
            break
        time.sleep(0.01)
    return len(found)


def _end(pid: int, mark: bytes) -> bool:
    if pid == os.getpid():
        return False
    try:
        # Opened before the check: a process that gets this pid in between is not signalled.
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _belongs(pid, mark):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _belongs(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()  # empty for a zombie
    except OSError:
        return False  # it has exited, or belongs to another account
    name = JOB_VARIABLE.encode() + b"="
    return any(entry.startswith(name) and mark in entry for entry in environ.split(b"\0"))
