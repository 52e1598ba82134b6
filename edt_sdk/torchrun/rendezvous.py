"""Answer torch's rendezvous from the job's supervisor: the members of the round, and where its processes meet.

No member votes or waits for members that may not come: the supervisor owns the job's agents, so it knows them. Each
agent keeps a store open for the next round in case it becomes the first member. So the store exists before any process
looks for it, and every round has a new one.

It is also registered as torchrun's backend `edt` (entry point `torchrun.handlers`), for a torchrun that a job runs
itself.
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


class PlanRendezvous(RendezvousHandler):
    """Implements the rendezvous of an agent. Sends its hello when created.

    Args:
        link: to the supervisor.
        worker: the agent's number.
        interface: address that its stores listen on.
        run_id: the job's id.
        tells: True reports the start of a round from here, for torch's own agent, which does not report it.
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
        # The store listens before the hello announces its port, so that every process finds it (decision 023).
        self._spare, self._port = open_store(interface)
        link.send(WorkerHello(worker=worker, pid=os.getpid(), host=interface, store_port=self._port))

    @property
    def round(self) -> int:
        """Return the number of the agent's newest round, 0 before the first."""
        return self._round

    @property
    def restarts(self) -> int:
        """Return how many of the job's rounds ended by a crash."""
        return self._restarts

    @property
    def port(self) -> int:
        """Return the port of the store for the next round."""
        return self._port

    @property
    def use_agent_store(self) -> bool:
        """Return True: the processes meet at the store of the first agent, which exists before they do."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Report that no process of the last round is left, and wait for the next round.

        Raises:
            RendezvousGracefulExitError: there is no next round for this agent.
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
        """Close this agent's store for the round, which unblocks processes that wait there for others."""
        self._store = None

    def _meet(self, plan: Round, *, first: bool) -> Store:
        """Open the round's store if it is this agent's. Return a store for torch's own agents, which exchange data."""
        self._store = None
        if first:
            # The announced spare becomes this round's store, and the next spare is opened before the round begins.
            self._store, (self._spare, self._port) = self._spare, open_store(self._interface)
        return TCPStore(plan.members[0].host, plan.members[0].store_port) if self._tells else HashStore()

    def num_nodes_waiting(self) -> int:
        """Return 1 when the round must end, which makes the agent request the next one, else 0."""
        return int(self._link.over(self._round))

    def get_backend(self) -> str:
        """Return the name for `--rdzv-backend`."""
        return "edt"

    def get_run_id(self) -> str:
        """Return the job's id."""
        return self._run_id

    def is_closed(self) -> bool:
        """Return False: only the supervisor ends the job."""
        return False

    def set_closed(self) -> None:
        """Do nothing, see `is_closed`."""

    def shutdown(self) -> bool:
        """Return True: open resources are closed with the process."""
        return True


def create_handler(parameters: RendezvousParameters) -> RendezvousHandler:
    """Create the handler of `torchrun --rdzv-backend=edt` in a process that the supervisor started as an agent.

    Raises:
        RendezvousStateError: this process is not an agent.
    """
    job, own = job_context(), worker_context()
    if job is None or own is None:
        raise RendezvousStateError(
            "The rendezvous 'edt' works inside of a job only. Submit the script: edt submit --framework torchrun."
        )
    return PlanRendezvous(PlanLink(job.link), own.worker, own.interface, job.job_id, tells=True)
