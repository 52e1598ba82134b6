"""Kernels of WMLA's Elastic Distributed Inference: `class K(Kernel)` answers tasks, and `K().run()` serves it.

A subclass need not call `super().__init__()`, so nothing is kept there. A batch of tasks is a chain: a kernel that
walks it by `next()` is called once for all of them, any other kernel once for each.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from edt_sdk.schemas.registered import DESCRIPTION
from edt_sdk.schemas.wire.context import JobContext, job_context, worker_context
from edt_sdk.serving import task_program

_NO_PATHS = ("", "N/A")


class KernelContext:
    """What a kernel learns at its start."""

    def __init__(self, job: JobContext | None, worker: int) -> None:
        self._job, self._worker = job, worker

    def get_id(self) -> str:
        """Return the id of this kernel among those of its model."""
        return str(self._worker)

    def get_instance_id(self) -> str:
        """Return the id of the job whose workers the kernels of this model are."""
        return "" if self._job is None else self._job.job_id

    def get_model_description(self) -> str:
        """Return model.json as JSON, with absolute paths."""
        # Not the current folder, which the kernel may have left.
        folder = Path() if self._job is None else self._job.paths.code_dir(self._job.code_dir)
        described = json.loads((folder / DESCRIPTION).read_bytes())
        for field in ("model_path", "weight_path"):
            path = described.get(field)
            if isinstance(path, str) and path not in _NO_PATHS:
                described[field] = str((folder / path).resolve())
        return json.dumps(described)


class TaskContext:
    """A task. A batch is a chain of them."""

    def __init__(self, number: int, text: str, job: JobContext | None) -> None:
        self._number, self._text, self._job = number, text, job
        self._uuid = str(uuid.uuid4())
        self._before: TaskContext | None = None
        self._after: TaskContext | None = None
        self._reached = False
        self._output: str | None = None

    def get_id(self) -> str:
        """Return its number among the tasks of this kernel, from 1."""
        return str(self._number)

    def get_uuid(self) -> str:
        """Return an id that no other task has."""
        return self._uuid

    def get_session_id(self) -> str:
        """Return the id of the session: there is one for each model."""
        return self.get_job_id()

    def get_job_id(self) -> str:
        """Return the id of the job of the model's kernels."""
        return "" if self._job is None else self._job.job_id

    def get_model_name(self) -> str:
        """Return the name of the model."""
        return "" if self._job is None or self._job.serves is None else self._job.serves.deployment

    def get_version(self) -> str:
        """Return the version that answers, such as echo/2."""
        return "" if self._job is None or self._job.serves is None else self._job.serves.version

    def get_input_data(self) -> str:
        """Return what the caller has sent."""
        return self._text

    def set_output_data(self, data: object) -> None:
        """Set what the caller gets."""
        self._output = data if isinstance(data, str) else str(data)

    def next(self) -> TaskContext | None:
        """Return the next task of the batch, None after the last."""
        if self._after is not None:
            self._after._reached = True
        return self._after

    def prev(self) -> TaskContext | None:
        """Return the task before this one in the batch, None before the first."""
        return self._before


class Kernel:
    """Base of kernels. Override `on_task_invoke`, and the other two where they have something to do."""

    def on_kernel_start(self, kernel_context: KernelContext) -> None:
        """Load the model."""

    def on_task_invoke(self, task_context: TaskContext) -> None:
        """Set the output of a task, and of those after it."""
        raise NotImplementedError("The kernel has no on_task_invoke.")

    def on_kernel_shutdown(self) -> None:
        """Release what is held."""

    def run(self) -> None:
        """Start, and answer tasks until the model is stopped. Does not return."""
        own = worker_context()
        self.on_kernel_start(KernelContext(job_context(), 0 if own is None else own.worker))
        task_program.serve(_Handler(self))

    @staticmethod
    def log_debug(text: Any) -> None:
        """Write a line to the log of the model."""
        _log("DEBUG", text)

    @staticmethod
    def log_info(text: Any) -> None:
        """Write a line to the log of the model."""
        _log("INFO", text)

    @staticmethod
    def log_warn(text: Any) -> None:
        """Write a line to the log of the model."""
        _log("WARN", text)

    @staticmethod
    def log_error(text: Any) -> None:
        """Write a line to the log of the model."""
        _log("ERROR", text)


class _Handler:
    """Gives batches to a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._job = job_context()
        self._count = 0

    def handle(self, texts: Sequence[str]) -> list[str | None]:
        """Return the output of each task, None for one whose output the kernel has not set."""
        tasks = [TaskContext(self._count + number, text, self._job) for number, text in enumerate(texts, 1)]
        self._count += len(tasks)
        for before, after in pairwise(tasks):
            before._after, after._before = after, before
        for task in tasks:
            if task._output is None and not task._reached:
                self._kernel.on_task_invoke(task)
        return [task._output for task in tasks]

    def close(self) -> None:
        """Shut the kernel down."""
        self._kernel.on_kernel_shutdown()


def _log(level: str, text: Any) -> None:
    print(f"{level} {text}", file=sys.stderr, flush=True)
