"""Keep what a worker that runs a script with a loop of its own needs to know about its process.

The worker program creates it before it runs the script, and `edt_sdk.elastic` reads it. This is a separate module
because the worker runs as `__main__`, and importing it by name would create a second one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

import torch
from torch import Tensor
from torch._C._distributed_c10d import Store

from edt_sdk.schemas.wire.context import JobContext, WorkerContext
from edt_sdk.schemas.wire.pulse import Pulse
from edt_sdk.training.checkpoints.rolling import Keeper
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.member.heartbeat import Heartbeat
from edt_sdk.training.member.link import SUPERVISOR_GONE, Link, end_process
from edt_sdk.training.member.membership import Endpoint
from edt_sdk.training.member.participant import ParticipantParts
from edt_sdk.training.records.recorder import Recorder
from edt_sdk.training.update.loader import ShardLoader

SCRIPT = "script"
"""Names the part of a payload by which workers know that they run the job's script."""

_current: ScriptWorker | None = None


class Leave(BaseException):
    """Ends the script of a worker that is no longer a member. Only `finally` and `with` of the script see it.

    `code` is the exit code of the process.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Again(BaseException):
    """Ends the script of a worker that goes on from an earlier place, and so runs its script from the top again."""


class ScriptRun(Protocol):
    """Declares what the worker calls when its script has ended."""

    def finish(self) -> None:
        """End the training with the other members. Leave when this worker is no longer one."""

    def has_lost(self, error: Exception) -> bool:
        """Return whether an error of the script only shows that another member is gone. Then call `again`."""

    def again(self) -> None:
        """Prepare for the script to run again from its top. Leave when this worker is no longer a member."""


class _MemberEngine(Protocol):
    """Declares what a member asks of what computes its updates. See `UpdateEngine`."""

    device: torch.device

    def meet(self, group: Group) -> None: ...
    def expect(self, rank: int, world: int) -> None: ...
    def space(self) -> list[Tensor]: ...


@dataclass(slots=True)
class ScriptWorker:
    """Describes a worker that runs a script.

    Attributes:
        training: its number within the job.
        shards: of the first updates, the most workers of the job.
        run: of the script's `elastic()`.
        former: the same of the run before, where the script runs again.
    """

    job: JobContext
    own: WorkerContext
    link: Link
    store: Store
    pulse: Pulse
    training: int
    shards: int
    run: ScriptRun | None = None
    former: ScriptRun | None = None

    def member_parts(self, engine: _MemberEngine) -> ParticipantParts:
        """Return what this worker's member works with."""
        job, paths = self.job, self.job.paths
        heartbeat = Heartbeat(self.pulse, ShardLoader(None))

        def patient() -> bool:
            # A worker that waits for room does not hang. Without a supervisor no one could end it.
            heartbeat.waiting()
            return self.link.pending != SUPERVISOR_GONE

        return ParticipantParts(
            endpoint=Endpoint(
                worker=self.own.worker, store=self.store, device=engine.device, interface=self.own.interface
            ),
            link=self.link,
            heartbeat=heartbeat,
            recorder=Recorder(
                paths.commits(self.training),
                paths.metrics(self.training),
                discarded=paths.discarded(self.training),
                patient=patient,
            ),
            keeper=Keeper(
                paths,
                self.training,
                memory=Path(job.memory_dir) if job.memory_dir else None,
                interval=job.checkpoint_interval,
                patient=patient,
            ),
            shards=self.shards,
            meet=engine.meet,
            expect=engine.expect,
            space=engine.space,
        )

    def restart(self) -> NoReturn:
        """End this process. The supervisor starts another worker in its place, which runs the script from its top."""
        end_process(1)


def begin(worker: ScriptWorker) -> None:
    """Make `worker` that of this process."""
    global _current
    _current = worker


def current() -> ScriptWorker | None:
    """Return the worker of this process, None in another process."""
    return _current
