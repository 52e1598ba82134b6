"""A world for the machine of torchrun jobs: agents and their processes as plain values, which do what they are told.

Checks with every instruction what must always hold: a slot has one agent; a round begins only when no process of an
earlier one is left; a slot is released only when its agent is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines.elastic_agents import ElasticAgents
from edt_server.supervisor.state_machines.events import (
    Acknowledged,
    Allocated,
    End,
    Exited,
    Finish,
    Gather,
    Gathered,
    Instruction,
    Kill,
    LinkLost,
    MachineEvent,
    NotStarted,
    Received,
    Recheck,
    Rechecked,
    SendMessage,
    SendReport,
    Started,
    StartWorker,
)
from edt_server.supervisor.state_machines.history import History


def slots(*ids: int, host: str = "here") -> tuple[Slot, ...]:
    return tuple(Slot(id=each, host=host) for each in ids)


@dataclass
class Agent:
    number: int
    slots: tuple[Slot, ...]
    pid: int = 0
    round: int = 0
    runs: bool = False
    told: deque[link.Downward] = field(default_factory=deque)
    ends: bool = False


class World:
    """Nothing happens by itself: `step` lets one thing happen, `settle` all that follow."""

    def __init__(self, unit: int = 1, max_restarts: int = 0, history: History | None = None, *, units: int = 0) -> None:
        self.unit = unit
        self.machine = ElasticAgents(
            main="train.py",
            interpreter="/python",
            unit=unit,
            units=units,
            max_restarts=max_restarts,
            history=history,
        )
        self.agents: dict[int, Agent] = {}
        self.starting: deque[StartWorker] = deque()
        self.later: deque[MachineEvent] = deque()
        self.reports: list[control.Report] = []
        self.rounds: list[link.Round] = []
        self.version = 0
        self.finished: Finish | None = None
        self.pids = 100

    # --- what happens outside -----------------------------------------------------------------------------------------

    def allocate(self, granted: Sequence[Slot]) -> None:
        self.version += 1
        self.tell(Allocated(self.version, tuple(granted)))

    def die(self, number: int, code: int = -9) -> None:
        """The agent's process, and with it all of its own, is gone."""
        del self.agents[number]
        self.tell(LinkLost(number, "it closed the connection"))
        self.tell(Exited(number, code))

    def crash(
        self,
        number: int,
        code: int = 1,
        local_rank: int = 0,
        failed: float = 1.0,
        words: str = "",
        *,
        leaving: bool = False,
    ) -> None:
        agent = self.agents[number]
        agent.runs = leaving
        message = link.Crashed(
            worker=number,
            round=agent.round,
            local_rank=local_rank,
            pid=agent.pid + 1,
            exit_code=code,
            failed=failed,
            leaving=leaving,
            words=words,
        )
        self.tell(Received(number, message))

    def done(self, number: int) -> None:
        self.agents[number].runs = False
        self.tell(Received(number, link.Done(worker=number, round=self.agents[number].round)))

    # --- what follows -------------------------------------------------------------------------------------------------

    def tell(self, event: MachineEvent) -> None:
        assert self.finished is None, "nothing is told after the end"
        for instruction in self.machine.apply(event):
            self._follow(instruction)

    def settle(self) -> None:
        while self.finished is None and self.step():
            pass

    def step(self, choice: int = 0) -> bool:
        """One of the things that can happen by now; False when nothing can."""
        possible = [*(("start", 0) for _ in range(min(1, len(self.starting))))]
        possible += [("agent", number) for number, agent in self.agents.items() if agent.told or agent.ends]
        possible += [("later", 0) for _ in range(min(1, len(self.later)))]
        if not possible:
            return False
        kind, number = possible[choice % len(possible)]
        if kind == "start":
            self._start(self.starting.popleft())
        elif kind == "later":
            self.tell(self.later.popleft())
        else:
            self._let(self.agents[number])
        return True

    def _start(self, order: StartWorker) -> None:
        self.pids += 10
        agent = Agent(order.worker, (order.slot, *order.others), self.pids)
        self.agents[order.worker] = agent
        self.tell(Started(order.worker, agent.pid))
        if self.agents.get(order.worker) is agent and self.finished is None:
            hello = link.WorkerHello(worker=agent.number, pid=agent.pid, host="127.0.0.1", store_port=agent.pid)
            self.tell(Received(agent.number, hello))

    def _let(self, agent: Agent) -> None:
        if agent.ends:
            agent.runs = False
            del self.agents[agent.number]
            self.tell(Exited(agent.number, -15, (15,)))
            return
        match agent.told.popleft():
            case link.Halt(round=number) if number == agent.round:
                agent.runs = False
                self.tell(Received(agent.number, link.Stopped(worker=agent.number, round=number)))
            case link.Round() as plan if plan.number > agent.round:
                if agent.number not in [member.worker for member in plan.members]:
                    del self.agents[agent.number]
                    self.tell(Exited(agent.number, 0))
                    return
                others = [other for other in self.agents.values() if other.runs and other.round != plan.number]
                assert not others, "two rounds at once"
                agent.round, agent.runs = plan.number, True
                pids = tuple(agent.pid + 1 + rank for rank in range(len(agent.slots)))
                self.tell(
                    Received(
                        agent.number,
                        link.Began(worker=agent.number, round=plan.number, pids=pids, store_port=agent.pid),
                    )
                )

    def _follow(self, instruction: Instruction) -> None:
        match instruction:
            case StartWorker(slot=slot, others=others):
                wanted = {each.id for each in (slot, *others)}
                taken = [each.id for agent in self.agents.values() for each in agent.slots]
                taken += [each.id for order in self.starting for each in (order.slot, *order.others)]
                assert not wanted & set(taken), "a slot has one agent"
                assert len({each.host for each in (slot, *others)}) == 1, "an agent is on one host"
                assert len(wanted) == self.unit
                self.starting.append(instruction)
            case SendMessage(process=process, message=message):
                if isinstance(message, link.Round) and message not in self.rounds:
                    self.rounds.append(message)
                if process in self.agents:
                    self.agents[process].told.append(message)
            case End(process=process, patience=patience):
                for order in [order for order in self.starting if order.worker == process]:
                    self.starting.remove(order)
                    self.later.append(Exited(process, -15, (15,)))
                if process in self.agents and patience == 0:
                    self.agents[process].ends = True
            case Kill(process=process):
                if process in self.agents:
                    self.agents[process].ends = True
            case Gather(generation=number):
                self.later.append(Gathered(number))
            case Recheck(generation=number):
                self.later.append(Rechecked(number))
            case SendReport(number=number, report=report):
                assert number == len(self.reports) + 1
                self.reports.append(report)
                if isinstance(report, control.SlotReturned):
                    assert all(report.slot != each.id for agent in self.agents.values() for each in agent.slots)
                    self.later.append(Acknowledged(number))
            case Finish():
                assert not self.agents
                assert not self.starting
                self.finished = instruction
            case _:
                pass

    # --- what can be seen ---------------------------------------------------------------------------------------------

    def of(self, kind: type[control.Report]) -> list[control.Report]:
        return [report for report in self.reports if isinstance(report, kind)]

    @property
    def members(self) -> list[int]:
        return [member.worker for member in self.rounds[-1].members] if self.rounds else []

    @property
    def running(self) -> set[int]:
        return {number for number, agent in self.agents.items() if agent.runs}

    @property
    def end(self) -> tuple[JobState, str] | None:
        ended = [report for report in self.reports if isinstance(report, control.JobEnded)]
        return (ended[0].state, ended[0].message) if ended else None


__all__ = ["NotStarted", "World", "slots"]
