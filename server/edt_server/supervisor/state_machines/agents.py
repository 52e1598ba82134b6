"""Hold the state of each agent of a torchrun job, and of the round that its processes are in. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from edt_sdk.schemas.wire import link
from edt_sdk.schemas.wire.control import GenerationFormed, Slot


class AgentPhase(Enum):
    """The phases of an agent."""

    STARTING = "process started"
    READY = "waits for a round"
    MEMBER = "in the newest round"
    ENDING = "told to end"


@dataclass(slots=True)
class TorchrunAgent:
    """The process of an agent. Its own processes are the workers `number`, `number + 1`, … in `slots`.

    Attributes:
        port: where its store listens. The next round meets there if this agent is its first.
        lost: why its link is gone, "" while the link is open.
        hung: what the watchdog saw before it had the agent killed.
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
        """True while the process exists but is about to exit."""
        return bool(self.lost) or bool(self.hung) or self.failed is not None

    @property
    def workers(self) -> range:
        """The numbers of its processes."""
        return range(self.number, self.number + len(self.slots))

    def member(self) -> link.Member:
        """Return the agent as a round names it. Requires its hello."""
        assert self.hello is not None
        slot = self.slots[0].id
        host = self.hello.host
        return link.Member(
            worker=self.number, slot=slot, pid=self.hello.pid, host=host, store_port=self.port, fresh=False
        )


@dataclass(slots=True)
class AgentRound:
    """A start of the script on a number of agents.

    Attributes:
        members: agents in the order of their ranks, as they were announced.
        left: members without an agent: it is gone.
        begun: pids of the processes of each agent that has started them.
        done: agents with processes that all ended with exit code 0.
        crashes: the reports of processes that ended otherwise.
        halting: agents that were asked to halt and have not stopped yet, None before any was asked.
        looking: a crash was reported, and a recheck will show whether it was the cause.
        broken: the round cannot continue.
        gathering: ready agents wait for others that are starting.
        gathered: how many such waits have passed.
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
        """The members with an existing agent, in the order of their ranks."""
        return tuple(member for member in self.members if member not in self.left)

    @property
    def forming(self) -> bool:
        """True until every member has started its processes."""
        return not self.broken and len(self.begun) < len(self.members)

    @property
    def finished(self) -> bool:
        """True when every process of the round ended with exit code 0."""
        return bool(self.members) and self.done >= set(self.members)

    @property
    def stopped(self) -> bool:
        """True when none of its processes is left."""
        return self.halting is not None and not self.halting

    @property
    def cause(self) -> link.Crashed:
        """The crash that came first. ValueError when there was none."""
        # By the time of the process's end: the order in which reports arrive is chance.
        return min(self.crashes, key=lambda crash: crash.ended)

    def rank(self, agent: int, local_rank: int, unit: int) -> int:
        """Return the rank of an agent's process. ValueError when the agent is no member."""
        return self.members.index(agent) * unit + local_rank

    def gone(self, agent: int) -> None:
        """Record the exit of the agent's process."""
        if agent in self.members:
            self.left.add(agent)
            # An agent that leaves after its processes ended with exit code 0 breaks nothing.
            self.broken |= agent not in self.done
        if self.halting is not None:
            self.halting.discard(agent)

    def formed(self, agents: Iterable[TorchrunAgent]) -> GenerationFormed:
        """Return the report that all members have started their processes."""
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
