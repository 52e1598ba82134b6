"""What the end-to-end tests share: jobs on a real server, read back from the files they leave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edt_sdk import Client, Job
from edt_sdk.testing import LocalServer
from edt_server.system.processes import parent_of

JOBS = Path(__file__).parent / "jobs"


class Jobs:
    """What the tests of this folder need of one server."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.client: Client = server.client()

    def submit(self, main: str, *args: str, **options: Any) -> Job:
        """One of the scripts in `jobs/`."""
        options.setdefault("max_workers", 4)
        return self.client.submit(JOBS, main=main, args=list(args), progress=False, **options)

    def private(self, job: Job) -> Path:
        """The machinery's folder of a job."""
        return self.server.data_dir / "jobs" / job.id

    def commits(self, job: Job, training: int = 0) -> list[dict[str, Any]]:
        """Its commit log so far. A line that is being written, or waits for room on the disk, is left out."""
        path = self.private(job) / f"training-{training}.commits.jsonl"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    def worlds(self, job: Job) -> list[int]:
        """The worker counts its updates were committed with, repetitions folded."""
        worlds: list[int] = []
        for commit in self.commits(job):
            if not worlds or worlds[-1] != commit["world"]:
                worlds.append(commit["world"])
        return worlds

    def parameters_hash(self, job: Job) -> str:
        """SHA-256 over the bytes of the final model's tensors alone, in their order."""
        import torch

        path = Path(job.view.result_dir) / "model" / "train" / "model_epoch_final.pth"
        tensors = torch.load(path, weights_only=True).values()
        return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()

    def final_hash(self, job: Job) -> str:
        """SHA-256 over the names, shapes, types and bytes of the tensors of the final model."""
        return self.file_hashes(job)["model_epoch_final.pth"]

    def file_hashes(self, job: Job) -> dict[str, str]:
        """The same for each of the job's files of weights, by its name."""
        import torch

        found = {}
        for path in sorted((Path(job.view.result_dir) / "model" / "train").glob("*.pth")):
            digest = hashlib.sha256()
            for name, tensor in _tensors(torch.load(path, weights_only=True)):
                digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
                digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
            found[path.name] = digest.hexdigest()
        return found


def targets_of(jobs: Jobs, job: Any, *secrets: str) -> dict[str, Any]:
    """What eve would like to have: bob's training, which runs, the server, and what the server keeps for itself."""
    server, private = jobs.server, jobs.private(job)
    result = Path(job.view.result_dir)
    runtime = Path(json.loads((private / "launch.json").read_text())["runtime_dir"])
    worker = job.workers()[0]["pid"]
    pids = {"the server": server.pid, "bob's supervisor": parent_of(worker), "bob's worker": worker}
    return {
        "files": {
            "bob's package": str(next(result.rglob("*.py"))),
            "bob's orders": str(private / "launch.json"),
            "bob's progress": str(private / "training-0.commits.jsonl"),
            "the key of forwarded requests": str(server.data_dir / "control" / "forwarding.key"),
            "the key of the control channel": str(server.data_dir / "control" / "server.key"),
            "the store": str(server.data_dir / "edt.sqlite"),
        },
        "folders": {
            "bob's results": str(result),
            "bob's folder": str(private),
            "bob's memory": next(str(path) for path in Path("/dev/shm").glob(f"edt-*-{job.id}")),
            "all jobs": str(server.data_dir / "jobs"),
            "the server's keys": str(server.data_dir / "control"),
        },
        "sockets": {"bob's supervisor": str(runtime / "link.sock")},
        "pids": pids,
        "commands": [last_word(pid) for pid in pids.values()],
        "secrets": [*secrets, job.id],
    }


def last_word(pid: int) -> str:
    """The last argument of a process, by which eve knows it."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2].decode()


def _tensors(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All tensors in nested dictionaries and lists, with their paths."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _tensors(value, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from _tensors(value, f"{name}.{number}")
    elif hasattr(tree, "untyped_storage"):
        yield name, tree
