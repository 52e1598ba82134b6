"""torch's rendezvous, answered by the job's supervisor: who is in the round, and where its processes meet.

Nobody waits for somebody who may or may not come, and nobody votes: the supervisor owns the job's agents, so it knows.
Each agent keeps a store open for the next round, should it be its first member: it is there before any process looks
for it, and every round has a fresh one.

Registered as torchrun's backend `edt` too (entry point `torchrun.handlers`), for a torchrun that a job runs itself.
"""

from __future__ import annotations

import os

from torch._C._distributed_c10d import HashStore, Store, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
)

from edt_sdk.schemas.wire.context import job_context, worker_context
from edt_sdk.schemas.wire.link import Began, Round, Stopped, WorkerHello
from edt_sdk.torchrun.plan_link import PlanLink
from edt_sdk.training.exchange.group import open_store

BACKEND = "edt"


class PlanRendezvous(RendezvousHandler):
    """The rendezvous of one agent. Says hello at once.

    Args:
        link: to the supervisor.
        worker: the agent's number.
        interface: address that its stores listen on.
        run_id: the job's id.
        tells: whether a round that begins is told from here, because the agent around is torch's own and does not.
    """

    def __init__(self, link: PlanLink, worker: int, interface: str, run_id: str, *, tells: bool = False) -> None:
        self._link = link
        self._worker = worker
        self._interface = interface
        self._run_id = run_id
        self._tells = tells
        self._round = 0
        self._restarts = 0
        self._store: Store | None = None
        self._spare, self._port = open_store(interface)
        link.send(WorkerHello(worker=worker, pid=os.getpid(), host=interface, store_port=self._port))

    @property
    def round(self) -> int:
        """Number of the newest round that this agent was in, 0 before the first."""
        return self._round

    @property
    def restarts(self) -> int:
        """How many of the job's rounds a crash has ended."""
        return self._restarts

    @property
    def port(self) -> int:
        """Where the store for the next round listens."""
        return self._port

    @property
    def use_agent_store(self) -> bool:
        """True: the processes meet at the store of the first agent, which is there before them."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Say that none of the last round's processes is left, and wait for the next round.

        Raises:
            RendezvousGracefulExitError: there is none for this agent.
        """
        if self._round:
            self._link.send(Stopped(worker=self._worker, round=self._round))
        plan = self._link.next_round(self._round)
        if plan is None:
            raise RendezvousGracefulExitError("the supervisor is gone")
        members = [member.worker for member in plan.members]
        if self._worker not in members:
            raise RendezvousGracefulExitError("the slots of this agent are needed elsewhere, or the job is over")
        self._round, self._restarts = plan.number, plan.restarts
        store = self._meet(plan, first=members[0] == self._worker)
        if self._tells:
            self._link.send(Began(worker=self._worker, round=self._round, pids=(), store_port=self._port))
        host, port = plan.members[0].host, plan.members[0].store_port
        return RendezvousInfo(store, members.index(self._worker), len(members), RendezvousStoreInfo(host, port))

    def leave_meeting(self) -> None:
        """Close the store of this round where it is this agent's: who still waits there for others gives up."""
        self._store = None

    def _meet(self, plan: Round, *, first: bool) -> Store:
        """Open the round's store where it is this agent's; what agents exchange anything over, which torch's own do."""
        self._store = None
        if first:
            self._store, (self._spare, self._port) = self._spare, open_store(self._interface)
        return TCPStore(plan.members[0].host, plan.members[0].store_port) if self._tells else HashStore()

    def num_nodes_waiting(self) -> int:
        """1 when the round is to end, which makes the agent ask for the next one; else 0."""
        return int(self._link.over(self._round))

    def get_backend(self) -> str:
        """Its name for `--rdzv-backend`."""
        return BACKEND

    def get_run_id(self) -> str:
        """The job's id."""
        return self._run_id

    def is_closed(self) -> bool:
        """False: the supervisor ends the job, and nobody else."""
        return False

    def set_closed(self) -> None:
        """Nothing: see `is_closed`."""

    def shutdown(self) -> bool:
        """True: what is open is closed with the process."""
        return True


def create_handler(parameters: RendezvousParameters) -> RendezvousHandler:
    """The handler of `torchrun --rdzv-backend=edt`, in a process that the supervisor started as an agent.

    Raises:
        RendezvousStateError: this process is none.
    """
    job, own = job_context(), worker_context()
    if job is None or own is None:
        raise RendezvousStateError(
            "The rendezvous 'edt' works inside of a job only. Submit the script: edt submit --framework torchrun."
        )
    return PlanRendezvous(PlanLink.connect(job.link), own.worker, own.interface, job.job_id, tells=True)
