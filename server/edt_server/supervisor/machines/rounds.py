"""What follows from a torchrun job's state as it is now: the half of the state machine that acts. Pure.

An agent for every unit of granted slots, the next round when there is to be one, the end. First every agent of the
round halts, and only when none of its processes is left does the next round begin, of whoever is ready by then: no two
rounds of a script ever run at once. Agents start and import while the others still train.
"""

from __future__ import annotations

from collections.abc import Iterator

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.machines.agents import Agent, AgentPhase, Round
from edt_server.supervisor.machines.ending import Ending
from edt_server.supervisor.machines.events import Gather, StartWorker, Tell
from edt_server.supervisor.machines.history import History
from edt_server.supervisor.machines.machine import Machine
from edt_server.supervisor.machines.patience import FAILED_PATIENCE

# Beyond the time that a script has for its checkpoint.
LEFT_PATIENCE = 15.0
# Moments that those who are ready wait for those who are on their way; an agent takes one, on a busy machine some.
MOST_GATHERS = 10


class Rounds(Machine):
    """One torchrun job's state, and what follows from it.

    Args:
        main: what runs, for the message of its end.
        interpreter: named in the message when no agent can start.
        unit: slots of an agent, and processes.
        max_restarts: crashes after which the script is started again.
        shutdown_timeout: seconds that a process has after SIGTERM.
        history: what an earlier attempt has done. Its crashes are forgiven.
    """

    def __init__(
        self,
        *,
        main: str,
        interpreter: str,
        unit: int = 1,
        max_restarts: int = 0,
        shutdown_timeout: float = 30.0,
        history: History | None = None,
    ) -> None:
        past = History() if history is None else history
        super().__init__(past)
        self._main = main
        self._interpreter = interpreter
        self._unit = unit
        self._max_restarts = max_restarts
        self._patience = shutdown_timeout + LEFT_PATIENCE
        self._next = past.workers
        self._agents: dict[int, Agent] = {}
        self._round = Round(past.generations)
        self._restarts = 0
        self._own_ends = 0
        self._ever = past.generations > 0
        self._told_of_the_end = False

    @property
    def training(self) -> bool:
        """True while more agents may be needed at any time."""
        return self._ending is None

    @property
    def processes(self) -> dict[int, int]:
        """Pids of the agents whose processes run, by number."""
        return {agent.number: agent.pid for agent in self._agents.values() if agent.pid is not None}

    @property
    def restarts(self) -> int:
        """Crashes that cost one of `max_restarts`."""
        return self._restarts

    @property
    def round(self) -> Round:
        """The newest round."""
        return self._round

    # --- what follows -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._ending is None and self._round.finished:
            self._begin_end(JobState.FINISHED, f"Finished: every process of {self._main} ended with exit code 0.")
        if self._ending is None:
            self._end_revoked()
            self._fill_slots()
            self._change_round()
            self._release_revoked(self._occupied)
        if self._ending is not None:
            self._wind_up(self._ending)

    def _end_revoked(self) -> None:
        """Agents outside of the round leave at once when one of their slots is not the job's any more."""
        for agent in self._agents.values():
            outside = agent.phase in (AgentPhase.STARTING, AgentPhase.READY)
            if outside and not self._may_stay(agent):
                agent.phase = AgentPhase.ENDING
                self._end(agent.number, 0.0)

    def _fill_slots(self) -> None:
        """An agent for every whole unit of granted slots of one host."""
        if self._round.done and not self._round.broken:
            return  # the script comes to its end
        for slots in self._free_units():
            agent = self._agents[self._next] = Agent(self._next, slots)
            self._next += self._unit
            self._out.append(StartWorker(agent.number, slots[0], slots[1:]))

    def _free_units(self) -> Iterator[tuple[Slot, ...]]:
        occupied = self._occupied
        free: dict[str, list[Slot]] = {}
        for slot in self._slots.granted:
            if slot.id not in occupied:
                free.setdefault(slot.host, []).append(slot)
        for slots in free.values():
            whole = len(slots) // self._unit * self._unit
            yield from (tuple(slots[at : at + self._unit]) for at in range(0, whole, self._unit))

    def _change_round(self) -> None:
        current = self._round
        if current.looking or any(agent.dying for agent in self._members()):
            return  # who was at fault, or gone, is known in a moment
        if current.halting is None:
            if not self._change_is_due():
                return
            self._halt()
        if current.stopped and not self._gathers():
            self._begin_round()

    def _halt(self, besides: int | None = None) -> None:
        current = self._round
        current.halting = {number for number in current.present if number != besides}
        for number in current.present:
            if number in current.halting:
                self._out.append(Tell(number, link.Halt(round=current.number)))

    def _change_is_due(self) -> bool:
        current = self._round
        following = self._following()
        if current.broken:
            return True
        if following == current.present or current.forming:
            return False
        if set(current.present) <= set(following):
            # A change that only adds: not while the script comes to its end, and rather once for all who come.
            return not current.done and not self._gathers()
        return True

    def _following(self) -> tuple[int, ...]:
        """Who would be in the next round if it began now: those of this one first, in their order."""
        staying = [member for member in self._round.present if self._may_stay(self._agents[member])]
        ready = [agent.number for agent in self._agents.values() if agent.phase is AgentPhase.READY]
        return (*staying, *sorted(number for number in ready if not self._agents[number].dying))

    def _gathers(self) -> bool:
        """True while others, who are on their way, are waited for: each round costs the script a start."""
        current = self._round
        coming = any(
            a.phase is AgentPhase.STARTING and not a.dying and self._may_stay(a) for a in self._agents.values()
        )
        if current.gathered >= MOST_GATHERS or not coming:
            return False
        if not current.gathering:
            current.gathering = True
            self._out.append(Gather(current.number))
        return True

    def _begin_round(self) -> None:
        following = self._following()
        if not following and not self._round.present:
            return
        former = self._round.present
        self._round = Round(self._round.number + 1, following)
        message = link.Round(
            number=self._round.number,
            members=tuple(self._agents[number].member() for number in following),
            restarts=self._restarts,
        )
        for number in (*former, *(number for number in following if number not in former)):
            agent = self._agents[number]
            self._out.append(Tell(number, message))
            if number in following:
                agent.phase = AgentPhase.MEMBER
            else:
                agent.phase = AgentPhase.ENDING
                self._end(number, self._patience)

    def _wind_up(self, ending: Ending) -> None:
        if not self._told_of_the_end:
            self._told_of_the_end = True
            for agent in self._agents.values():
                agent.phase = AgentPhase.ENDING
                if ending.state is JobState.FINISHED and agent.hello is not None:
                    # Nothing of theirs runs any more: they end when they hear that nothing follows.
                    number = self._round.number + 1
                    self._out.append(Tell(agent.number, link.Round(number=number, members=(), restarts=0)))
                    self._end(agent.number, FAILED_PATIENCE)
                else:
                    self._end(agent.number, 0.0)
        if not self._agents:
            self._finish(ending)

    # --- small change -------------------------------------------------------------------------------------------------

    @property
    def _occupied(self) -> set[int]:
        return {slot.id for agent in self._agents.values() for slot in agent.slots}

    def _members(self) -> list[Agent]:
        return [self._agents[number] for number in self._round.present]

    def _may_stay(self, agent: Agent) -> bool:
        return all(self._slots.allowed(slot.id) for slot in agent.slots)

    def _name(self, agent: Agent) -> str:
        listed = ", ".join(str(slot.id) for slot in agent.slots)
        return f"Agent {agent.number} (slot{'s' if len(agent.slots) > 1 else ''} {listed})"

    def _report_agent(self, agent: Agent, code: int, why: str, *, member: bool) -> None:
        self._report_loss(agent.number, agent.slots[0], agent.pid, code, why, member=member)

    def _report_loss(self, worker: int, slot: Slot, pid: int | None, code: int, why: str, *, member: bool) -> None:
        self._send(
            control.WorkerLost(
                worker=worker, slot=slot.id, pid=pid, exit_code=code, member=member, update=None, why=why
            )
        )
