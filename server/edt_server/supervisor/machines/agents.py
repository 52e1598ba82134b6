"""What is known of each agent of a torchrun job, and of the round that its processes are in. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from edt_sdk.schemas.wire import link
from edt_sdk.schemas.wire.control import GenerationFormed, Slot


class AgentPhase(Enum):
    """Where an agent is."""

    STARTING = "process started"
    READY = "waits for a round"
    MEMBER = "in the newest round"
    ENDING = "told to end"


@dataclass(slots=True)
class Agent:
    """One agent's process; its own processes are the workers `number`, `number + 1`, … in `slots`.

    Attributes:
        port: where its store listens, which the next round meets at if this agent is its first.
        lost: why its link is gone, "" while it is there.
        hung: what the watch saw before it had the agent killed.
    """

    number: int
    slots: tuple[Slot, ...]
    phase: AgentPhase = AgentPhase.STARTING
    hello: link.WorkerHello | None = None
    port: int = 0
    pid: int | None = None
    failed: link.Failed | None = None
    lost: str = ""
    hung: str = ""

    @property
    def dying(self) -> bool:
        """Its process is there, but will be gone in a moment."""
        return bool(self.lost) or bool(self.hung) or self.failed is not None

    @property
    def workers(self) -> range:
        """Numbers of its processes."""
        return range(self.number, self.number + len(self.slots))

    def member(self) -> link.Member:
        """The agent as a round names it; it has said hello."""
        assert self.hello is not None
        slot = self.slots[0].id
        host = self.hello.host
        return link.Member(
            worker=self.number, slot=slot, pid=self.hello.pid, host=host, store_port=self.port, fresh=False
        )


@dataclass(slots=True)
class Round:
    """One start of the script on a number of agents.

    Attributes:
        members: agents in the order of their ranks, as they were told.
        left: of those, agents that are not there any more.
        begun: pids of the processes of each agent that has started them.
        done: agents whose processes all ended with exit code 0.
        crashes: what agents said of processes that ended otherwise.
        halting: agents of it that were told to halt and have not stopped yet; None while it was told to nobody.
        looking: a crash was heard of, and whether it was the cause is found out.
        broken: it cannot go on.
        gathering: those who are ready wait a moment for others.
        gathered: how many such moments have passed.
    """

    number: int
    members: tuple[int, ...] = ()
    left: set[int] = field(default_factory=set)
    begun: dict[int, tuple[int, ...]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    crashes: list[link.Crashed] = field(default_factory=list)
    halting: set[int] | None = None
    looking: bool = False
    broken: bool = False
    gathering: bool = False
    gathered: int = 0

    @property
    def present(self) -> tuple[int, ...]:
        """Members whose agents are there, in the order of their ranks."""
        return tuple(member for member in self.members if member not in self.left)

    @property
    def forming(self) -> bool:
        """True until every member has started its processes."""
        return not self.broken and len(self.begun) < len(self.members)

    @property
    def finished(self) -> bool:
        """True when every process of the round came to its end."""
        return bool(self.members) and self.done >= set(self.members)

    @property
    def stopped(self) -> bool:
        """True when none of its processes is left."""
        return self.halting is not None and not self.halting

    @property
    def cause(self) -> link.Crashed:
        """The crash that came first; ValueError when there was none."""
        return min(self.crashes, key=lambda crash: crash.ended)

    def rank(self, agent: int, local_rank: int, unit: int) -> int:
        """The rank of an agent's process; ValueError when the agent is no member."""
        return self.members.index(agent) * unit + local_rank

    def gone(self, agent: int) -> None:
        """The agent's process has ended."""
        if agent in self.members:
            self.left.add(agent)
            self.broken |= agent not in self.done
        if self.halting is not None:
            self.halting.discard(agent)

    def formed(self, agents: Iterable[Agent]) -> GenerationFormed:
        """The report that all members have started their processes."""
        by_number = {agent.number: agent for agent in agents}
        members = [by_number[number] for number in self.present]
        return GenerationFormed(
            training=0,
            number=self.number,
            workers=tuple(worker for agent in members for worker in agent.workers),
            slots=tuple(slot.id for agent in members for slot in agent.slots),
            pids=tuple(pid for agent in members for pid in self.begun[agent.number]),
            update=None,
        )
