"""Start torch's processes through the nursery, with their own streams and WMLA's variables.

torch starts every process of a script with `SubprocessHandler`, and its method `_popen` is made for overriding. torch
looks the handler up by a name in its module. Only the process of an agent replaces that name.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import Popen
from typing import Any, cast

from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.distributed.elastic.utils.api import macros

from edt_sdk.schemas.torchrun import HERE_VARIABLE, UNITS_VARIABLE, AgentContext, TorchrunOptions
from edt_sdk.schemas.wire.context import JobContext
from edt_sdk.torchrun.nursery import ForkedProcess, Nursery

# Variables that only the agent needs, or sets for itself.
_OWN = ("TORCH_ELASTIC_WORKER_IDENTICAL",)


def command(job: JobContext, options: TorchrunOptions) -> tuple[str, tuple[str, ...]]:
    """Return the program and arguments that torchrun would execute for the job's script."""
    own = (f"--local-rank={macros.local_rank}",) if options.local_rank_argument else ()
    if options.no_python:
        return job.main, (*own, *job.args)
    script = job.main if options.module else str(job.paths.code_dir(job.code_dir) / job.main)
    return sys.executable, ("-u", *(("-m",) if options.module else ()), script, *own, *job.args)


def start_from(nursery: Nursery, agent: AgentContext) -> dict[int, ForkedProcess]:
    """Make torch start its processes in the nursery. Return a mapping with the newest process of each local rank."""
    newest: dict[int, ForkedProcess] = {}

    class Handler(SubprocessHandler):
        """Starts a process of the script."""

        def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Popen[bytes]:
            rank = self.local_rank_id
            streams = _open_streams(Path(agent.streams), agent.first + rank)
            try:
                newest[rank] = nursery.start(args, _variables(env, agent.options.units), *streams)
            finally:
                for descriptor in streams:
                    os.close(descriptor)
            # ForkedProcess has the part of Popen that torch uses.
            return cast("Popen[bytes]", newest[rank])

    def handler(**given: Any) -> SubprocessHandler:
        return Handler(**given)

    # This name is not a public part of torch. Where it is missing, name the versions that have it (decision 023).
    if not hasattr(api, "get_subprocess_handler"):
        raise RuntimeError(
            "This torch does not start processes like torch 2.13 to 2.15. Install one of these versions."
        )
    api.get_subprocess_handler = handler
    return newest


def _variables(env: dict[str, str], units: int) -> dict[str, str]:
    environment = {name: value for name, value in env.items() if name not in _OWN}
    if units:
        environment |= {UNITS_VARIABLE: str(units), HERE_VARIABLE: str(units // int(env["WORLD_SIZE"]))}
    return environment | {
        "WMLA_NWORKER": env["GROUP_WORLD_SIZE"],
        "WMLA_WORKER_NDEVICE": env["LOCAL_WORLD_SIZE"],
        "NODE_RANK": env["GROUP_RANK"],
    }


def _open_streams(folder: Path, worker: int) -> tuple[int, int]:
    # Append: the process of the next round continues the streams of its worker.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    stdout = os.open(folder / f"worker-{worker}.stdout", flags, 0o600)
    try:
        return stdout, os.open(folder / f"worker-{worker}.stderr", flags, 0o600)
    except OSError:
        os.close(stdout)
        raise
