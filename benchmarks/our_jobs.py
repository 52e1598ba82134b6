"""Our side: a job of the benchmarks' model on a real server, its commit log, its events, its workers."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.commit_log import CommitLog
from benchmarks.server_processes import wait_for, zygotes
from edt_sdk import Client, Job
from edt_sdk.schemas import events
from edt_sdk.testing import LocalServer

FOLDER = Path(__file__).parent / "linear_stack"
SLOTS = 4
LIMIT = 180.0


def server(root: Path, *, warm: bool) -> LocalServer:
    """Four slots of one thread each; `warm`: with all that it keeps ready for the next job and the next slots."""
    traits: dict[str, object] = {"EdtApp.threads_per_slot": 1, "EdtApp.warm_workers": int(warm)}
    if not warm:
        traits["EdtApp.standby_workers"] = 0
    hidden = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return LocalServer(root, slots=SLOTS, traits=traits, environ=hidden)


def import_torch() -> float:
    """Seconds that a Python needs to start, import torch and end: nothing that starts from nothing takes less."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return time.monotonic() - begun


class OurJob:
    """A job of `linear_stack/train.py`, stopped at the end of its context if it still runs.

    Args:
        on: the server.
        name: of the job.
        arguments: of the script.
        max_workers: to begin with.
        env: variables of its own.
        main: the script.
        from_nothing: kill zygote and heir, what workers are forked from, just before workers are to join, so that they
            need a start of Python and the import of torch. On a server that has no other job and keeps nothing warm.

    Attributes:
        job: as the SDK sees it.
        submitted: when `submit` was called, seconds since the epoch.
        log: its commit log.
    """

    def __init__(
        self,
        on: LocalServer,
        name: str,
        arguments: Sequence[str],
        max_workers: int,
        *,
        env: Mapping[str, str] | None = None,
        main: str = "train.py",
        from_nothing: bool = False,
    ) -> None:
        client: Client = on.client()
        self.submitted = time.time()
        self.job: Job = client.submit(
            FOLDER,
            main=main,
            name=name,
            max_workers=max_workers,
            args=list(arguments),
            env=dict(env or {}),
            progress=False,
        )
        self._folder = on.data_dir / "jobs" / self.job.id
        self.log = CommitLog(self._folder / "training-0.commits.jsonl")
        self._asked = 0.0
        self._server = on.pid if from_nothing else None
        self._wanted = max_workers

    def __enter__(self) -> OurJob:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.job.refresh().view.state.final:
            self.job.stop()
        self.ended()

    def ended(self) -> str:
        """Wait until it has ended; its last state."""
        # Seldom: each look is work for the server, which shares the cores with what is measured next.
        wait_for(lambda: self.job.refresh().view.state.final, f"the end of job {self.job.id}", LIMIT, poll=0.1)
        return str(self.job.view.state)

    def trouble(self) -> str:
        """Why no more commits are to be expected, "" while the job goes on; asks the server once a second."""
        now = time.monotonic()
        if now - self._asked < 1.0:
            return ""
        self._asked = now
        view = self.job.refresh().view
        return f"job {view.id} ended as {view.state}: {view.message}" if view.state.final else ""

    def resize(self, workers: int) -> float:
        """Ask for that many workers; when that was begun, seconds since the epoch. Returns before they are there."""
        if self._server is not None and workers > self._wanted:
            self._kill_zygotes(self._server)
        self._wanted = workers
        begun = time.time()
        self.job.update(max_workers=workers)
        return begun

    def _kill_zygotes(self, server: int) -> None:
        """SIGKILL to zygote and heir, once both are there."""
        wait_for(lambda: len(zygotes(server)) >= 2, "a zygote and its heir", LIMIT, poll=0.05)
        for zygote in zygotes(server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(zygote, signal.SIGKILL)

    def granted(self, since: Sequence[float]) -> list[float]:
        """When the scheduler granted or revoked the first slot after each of these times, up to the next of them.

        ValueError when there was nothing of the kind in between.
        """
        kinds = (events.SLOT_GRANTED, events.SLOT_REVOKED)
        times = [event.time for event in self.job.story() if event.kind in kinds]
        found = []
        for begin, end in zip(since, [*since[1:], float("inf")], strict=True):
            first = next((when for when in times if begin <= when < end), None)
            if first is None:
                raise ValueError(f"job {self.job.id}: no slot was granted or revoked behind a change of max_workers")
            found.append(first)
        return found

    def workers(self) -> list[dict[str, Any]]:
        """Those that run now, see `Job.workers`."""
        return self.job.workers()

    def discarded(self) -> int:
        """Updates that were committed, lost with everybody who knew them, and computed again."""
        path = self._folder / "training-0.discarded.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def final_hash(self) -> str:
        """SHA-256 over the bytes of the final parameters."""
        import torch

        path = Path(self.job.view.result_dir) / "model" / "train" / "model_epoch_final.pth"
        tensors: Mapping[str, torch.Tensor] = torch.load(path, weights_only=True)
        digest = hashlib.sha256()
        for name, tensor in tensors.items():
            digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()
