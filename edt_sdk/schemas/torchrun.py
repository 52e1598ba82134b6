"""The options of a torchrun command line, except the number of workers, which `JobSpec` has."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from edt_sdk.schemas.errors import Unprocessable

AGENT_VARIABLE = "EDT_AGENT"
# For scripts: the parts of an update, and how many of them each process computes.
UNITS_VARIABLE, HERE_VARIABLE = "EDT_UNITS", "EDT_UNITS_HERE"


class TorchrunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The way each agent starts its processes. Names and defaults are torchrun's where it has them.

    Attributes:
        module: `main` is a module's name (`-m`), not a file.
        no_python: `main` is a program of its own, not a script.
        max_restarts: times that an agent starts its processes again after one of them failed. Changes of membership
            do not count.
        monitor_interval: seconds between an agent's looks at its processes and at the plan.
        role: of the processes, in their logs and variables.
        units: parts of an update that the processes share equally, 0 where the script does not know of them. Then only
            numbers of processes that divide it train at once.
        shutdown_timeout: seconds that a process has after SIGTERM before SIGKILL.
        virtual_local_rank: each process sees its own GPU alone, as number 0.
        local_rank_argument: the script is given `--local-rank=N` too, as `torch.distributed.launch` gives it.
        said: one sentence for each option with another meaning here, for the job's story.
    """

    module: bool = False
    no_python: bool = False
    max_restarts: int = 0
    monitor_interval: float = 0.05
    role: str = "default"
    units: int = 0
    shutdown_timeout: int = 30
    virtual_local_rank: bool = False
    local_rank_argument: bool = False
    said: tuple[str, ...] = ()

    def check(self) -> TorchrunOptions:
        """Return self, or raise Unprocessable naming the field."""
        if self.max_restarts < 0:
            raise Unprocessable(f"max_restarts is 0 or more, not {self.max_restarts}.", field="max_restarts")
        if self.units < 0:
            raise Unprocessable(f"units is 0 or more, not {self.units}.", field="units")
        if not 0 < self.monitor_interval < float("inf"):
            raise Unprocessable(
                f"monitor_interval is a number of seconds above 0, not {self.monitor_interval:g}.",
                field="monitor_interval",
            )
        if self.shutdown_timeout < 0:
            raise Unprocessable(
                f"shutdown_timeout is 0 or more seconds, not {self.shutdown_timeout}.", field="shutdown_timeout"
            )
        return self


class AgentContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor sends to one agent, in addition to what every worker gets (`schemas.context`).

    Attributes:
        processes: number of its processes. Process i is the job's worker `first + i`.
        first: the agent's own number, and its first process's.
        command: run in place of the script, () for the script.
        streams: folder of the stream files, where process i writes `worker-<first + i>.stdout` and `.stderr`.
    """

    options: TorchrunOptions
    processes: int
    first: int
    command: tuple[str, ...] = ()
    streams: str = ""


def agent_context(environ: Mapping[str, str] = os.environ) -> AgentContext | None:
    """This agent's own part, None in any other process."""
    text = environ.get(AGENT_VARIABLE)
    return msgspec.json.decode(text, type=AgentContext) if text else None
