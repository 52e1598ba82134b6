"""Decide for a torchrun job: agents come and go with the slots, and the script runs in rounds. Pure.

An agent holds a unit of slots and starts the script once in each. A round is one start of the script on all its agents.
Any change of membership, and any crash, leads to the next round: first every agent of the round halts, and only when
none of its processes is left does the next round start, with the agents that are ready by then. So no two rounds of a
script ever run at once. Agents start and import while the others still train. What a round costs is up to the script,
which resumes from its own checkpoint.

A crash costs the job a restart, unless an agent died: then the crash is only a consequence of that death.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import GenerationFormed, Slot
from edt_server.supervisor.state_machines import events, wording
from edt_server.supervisor.state_machines.ending import EXIT_GRACE, FAILED_GRACE, Ending
from edt_server.supervisor.state_machines.events import DRIVER
from edt_server.supervisor.state_machines.exits import CRASH_SIGNALS
from edt_server.supervisor.state_machines.history import History
from edt_server.supervisor.state_machines.machine import Machine
from edt_server.supervisor.state_machines.worker_group import LinkedProcess

# Seconds on top of the time that a script has for its checkpoint.
LEFT_GRACE = 15.0
# How often ready agents wait for starting ones. An agent takes one such wait, on a busy machine several.
MOST_GATHERS = 10
# Agents that exit by themselves in a row: that many are not bad luck, their Python is broken.
OWN_LIMIT = 3


class AgentPhase(Enum):
    """The phases of an agent."""

    STARTING = "process started"
    READY = "waits for a round"
    MEMBER = "in the newest round"
    ENDING = "told to end"


@dataclass(slots=True)
class TorchrunAgent(LinkedProcess):
    """The process of an agent. Its own processes are the workers `number`, `number + 1`, … in `slots`."""

    others: tuple[Slot, ...] = ()
    phase: AgentPhase = AgentPhase.STARTING

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots of its processes, in the order of their numbers."""
        return (self.slot, *self.others)

    @property
    def workers(self) -> range:
        """The numbers of its processes."""
        return range(self.number, self.number + len(self.slots))


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
        noted: what its processes have done with checkpoints, see `edt_sdk.torchrun.notes`.
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
    noted: set[str] = field(default_factory=set)

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
        # By the time of the failure: the order in which reports arrive is chance.
        return min((crash for crash in self.crashes if crash.worker not in self.done), key=lambda crash: crash.failed)

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


class ElasticAgents(Machine):
    """The state machine of a torchrun job.

    `main` is what runs, for the message of its end. An agent has `unit` slots and processes. The number of processes
    that train divides `units`, unless that is 0. A process has `shutdown_timeout` seconds after SIGTERM. Crashes of an
    earlier attempt do not count.
    """

    def __init__(
        self,
        *,
        main: str,
        interpreter: str,
        unit: int = 1,
        units: int = 0,
        max_restarts: int = 0,
        shutdown_timeout: float = 30.0,
        history: History | None = None,
    ) -> None:
        past = History() if history is None else history
        super().__init__(past)
        self._main = main
        self._interpreter = interpreter
        self._unit = unit
        self._units = units
        self._max_restarts = max_restarts
        self._grace = shutdown_timeout + LEFT_GRACE
        self._next = past.workers
        self._agents: dict[int, TorchrunAgent] = {}
        self.round = AgentRound(past.generations)
        self.restarts = 0
        self._own_ends = 0
        self._ever = past.generations > 0
        self._wound_up = False
        self._saved = False  # a checkpoint, in an earlier round
        self._forgets = False
        self._counts_workers = False
        self._size_held = past.size_held

    @property
    def training(self) -> bool:
        """True while more agents may be needed at any time."""
        return self._ending is None

    @property
    def processes(self) -> dict[int, int]:
        """The pids of the agents with running processes, by number."""
        return {agent.number: agent.pid for agent in self._agents.values() if agent.pid is not None}

    def _hear(self, event: events.MachineEvent) -> None:
        match event:
            case events.Started(process=process, pid=pid):
                self._started(self._agents[process], pid)
            case events.NotStarted(process=process, why=why) if process in self._agents:
                self._not_started(self._agents.pop(process), why)
            case events.NotStarted(process=process, why=why) if (
                process == DRIVER
            ):  # the job's folders could not be made
                self._begin_end(JobState.ERROR, why)
            case events.Received(process=process, message=message) if process in self._agents:
                self._said(self._agents[process], message)
            case events.LinkLost(process=process, why=why) if process in self._agents:
                self._link_lost(self._agents[process], why)
            case events.Exited(process=process) if process in self._agents:
                self._exited(self._agents.pop(process), event)
            case events.Hung(process=process, why=why) if process in self._agents:
                self._agents[process].hung = why
                self._kill(process, 0.0)
            case events.Gathered(generation=number) if number == self.round.number:
                self.round.gathering = False
                self.round.gathered += 1
            case events.Rechecked(generation=number) if number == self.round.number and self.round.looking:
                self._judge_crash()
            case _:
                pass

    # --- what happened ------------------------------------------------------------------------------------------------

    def _started(self, agent: TorchrunAgent, pid: int) -> None:
        agent.pid = pid
        for worker, slot in zip(agent.workers, agent.slots, strict=True):
            self._send(control.WorkerStarted(worker=worker, slot=slot.id, pid=pid))
        if agent.phase is AgentPhase.ENDING:
            self._end(agent.number, 0.0)  # it had to end before its process existed

    def _not_started(self, agent: TorchrunAgent, why: str) -> None:
        if agent.phase is not AgentPhase.ENDING and self._ending is None:
            self._lost_by_itself(agent, 127, f"{self._name(agent)} could not be started: {why}", JobState.ERROR)

    def _said(self, agent: TorchrunAgent, message: link.Upward) -> None:
        current = self.round
        match message:
            case link.WorkerHello() if agent.phase is AgentPhase.STARTING:
                agent.hello, agent.phase = message, AgentPhase.READY
            case link.Began(round=number) if number == current.number and agent.number in current.present:
                if agent.hello is not None:
                    # Where its store listens now: the next round meets there if this agent is its first.
                    agent.hello = msgspec.structs.replace(agent.hello, store_port=message.store_port)
                current.begun[agent.number] = message.pids
                if not current.forming and not current.broken:
                    # A round that has formed shows that the job's Python works, so earlier exits do not count.
                    self._own_ends, self._ever = 0, True
                    self._send(current.formed(self._agents.values()))
            case link.Stopped(round=number) if number == current.number:
                if current.halting is None:
                    # A torchrun of the job's own, which restarts failed processes by itself.
                    self._halt(besides=agent.number)
                else:
                    current.halting.discard(agent.number)
            case link.Noted(round=number, note=note) if number == current.number:
                current.noted.add(note)
            case link.Done(round=number) if number == current.number:
                current.done.add(agent.number)
            case link.Crashed(round=number) if number == current.number and current.halting is None:
                current.crashes.append(message)
                if not current.looking and not current.broken and not message.leaving:
                    current.looking = True
                    self._out.append(events.Recheck(current.number))
            case link.Failed():
                agent.failed = message
                if agent.phase is not AgentPhase.ENDING:
                    self._end(agent.number, FAILED_GRACE)
            case _:
                self._note(f"agent {agent.number} ({agent.phase.value}) sent a {type(message).__name__}: ignored")

    def _judge_crash(self) -> None:
        """Decide whether the crash was the cause: all that had happened when it was reported is known by now."""
        current = self.round
        current.looking, current.broken = False, True
        if any(agent.dying for agent in self._members()) or current.left - current.done:
            return  # an agent died, and the crash is its consequence: it costs no restart
        cause = current.cause
        agent = self._agents[cause.worker]
        worker, slot = cause.worker + cause.local_rank, agent.slots[cause.local_rank]
        rank = current.rank(agent.number, cause.local_rank, self._unit)
        sentence = wording.failure(
            wording.worker_name(worker, rank, slot.id), wording.how_it_ended(cause.exit_code), None
        )
        self.restarts += 1
        if self.restarts > self._max_restarts:
            times = f" It was restarted {self._max_restarts} times before." if self._max_restarts else ""
            words = f"\n{cause.words}" if cause.words else ""
            self._begin_end(JobState.FAILED, f"{sentence}{times}{words}")
            return
        again = f" Restart {self.restarts} of {self._max_restarts}."
        self._report_loss(worker, slot, cause.pid, cause.exit_code, f"{sentence}{again}", member=True)

    def _link_lost(self, agent: TorchrunAgent, why: str) -> None:
        agent.lost = why
        if agent.phase is AgentPhase.ENDING:
            self._end(agent.number, self._grace)
        elif agent.failed is None:
            self._kill(agent.number, EXIT_GRACE)

    def _exited(self, agent: TorchrunAgent, event: events.Exited) -> None:
        current = self.round
        member = agent.number in current.present and agent.number not in current.done
        if member and event.code == 0 and agent.phase is AgentPhase.MEMBER and event.by_itself:
            # A torchrun of the job's own exits when its processes have ended.
            current.done.add(agent.number)
            agent.phase, member = AgentPhase.ENDING, False
        current.gone(agent.number)
        for worker, slot in zip(agent.workers, agent.slots, strict=True):
            self._exits[slot.id] = (worker, event.code)
        if agent.phase is AgentPhase.ENDING or self._ending is not None:
            return
        name = self._name(agent)
        if agent.hung:
            self._report_agent(agent, event.code, f"{name} {agent.hung} and was replaced.", member=member)
        elif not event.by_itself or (event.code < 0 and -event.code not in CRASH_SIGNALS and agent.failed is None):
            what = wording.lost_link(agent.lost) if not event.by_itself else wording.how_it_ended(event.code)
            self._report_agent(agent, event.code, wording.failure(name, what, None), member=member)
        elif agent.hello is None and not self._ever:
            why = wording.never_spoke(name, self._interpreter, event.code, event.words)
            self._begin_end(JobState.ERROR, why)
        else:
            failed = agent.failed
            what = f"failed: {failed.message}" if failed is not None else wording.how_it_ended(event.code)
            trace = "" if failed is None else failed.traceback
            why = wording.failure(name, what, event.words, trace)
            self._lost_by_itself(agent, event.code, why, JobState.FAILED, member=member)

    def _lost_by_itself(
        self, agent: TorchrunAgent, code: int, why: str, state: JobState, *, member: bool = False
    ) -> None:
        """Count an exit that the supervisor did not cause. Too many such exits in a row end the job."""
        self._own_ends += 1
        if self._own_ends >= OWN_LIMIT or (agent.failed is not None and agent.failed.final):
            self._begin_end(state, why)
        else:
            self._report_agent(agent, code, why.partition("\n")[0], member=member)

    # --- what follows -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._ending is None and self.round.finished:
            self._begin_end(JobState.FINISHED, f"Finished: every process of {self._main} ended with exit code 0.")
        if self._ending is None:
            self._end_revoked()
            self._fill_slots()
            self._change_round()
            self._hold_size()
            self._release_revoked(self._occupied)
        if self._ending is not None:
            self._wind_up(self._ending)

    def _end_revoked(self) -> None:
        """End agents outside the round as soon as one of their slots is revoked."""
        for agent in self._agents.values():
            outside = agent.phase in (AgentPhase.STARTING, AgentPhase.READY)
            if outside and not self._may_stay(agent):
                agent.phase = AgentPhase.ENDING
                self._end(agent.number, 0.0)

    def _fill_slots(self) -> None:
        """Start an agent for every whole unit of granted slots on a host."""
        if self.round.done and not self.round.broken:
            return  # the script is finishing
        for slots in self._free_units():
            agent = self._agents[self._next] = TorchrunAgent(self._next, slots[0], slots[1:])
            self._next += self._unit
            self._out.append(events.StartWorker(agent.number, agent.slot, agent.others))

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
        current = self.round
        if current.looking or any(agent.dying for agent in self._members()):
            return  # a recheck or an exit is about to show which process failed
        if current.halting is None:
            if not self._change_is_due():
                return
            self._halt()
        # Only when no process of this round is left: two rounds of a script would write the same checkpoint.
        if current.stopped and not self._gathers():
            self._begin_round()

    def _halt(self, besides: int | None = None) -> None:
        current = self.round
        current.halting = {number for number in current.present if number != besides}
        for number in current.present:
            if number in current.halting:
                self._tell(number, link.Halt(round=current.number))

    def _change_is_due(self) -> bool:
        current = self.round
        following = self._following()
        if current.broken:
            return True
        if following == current.present or current.forming:
            return False
        if set(current.present) <= set(following):
            # A change that only adds members costs the script a restart: not while it is finishing, and once for all.
            return not current.done and not self._gathers()
        return True

    def _hold_size(self) -> None:
        """Report when a change of size begins or ceases to cost the script what it has computed."""
        current = self.round
        why = ""
        # Programs that are no Python scripts are not watched. A round that ends anyway costs nothing more.
        if "runs" in current.noted and not (current.forming or current.broken or current.halting is not None):
            why = self._cost_of_change(current)
        if why != self._size_held and (why or current.noted or current.halting is not None):
            self._size_held = why
            self._send(control.SizeHeld(workers=len(current.present) * self._unit, why=why))

    def _cost_of_change(self, current: AgentRound) -> str:
        """Return what a change of size would cost the script, "" where it only goes back to its newest checkpoint."""
        noted = current.noted
        self._counts_workers |= "counts_workers" in noted
        self._forgets = "loaded" not in noted and (self._forgets or (self._saved and "saved" in noted))
        if self._counts_workers:
            cost = (
                "The Hugging Face Trainer computes its number of steps from the number of workers: with another size "
                "it ends too early or too late. Submit it with --units, and let it accumulate EDT_UNITS_HERE batches."
            )
        elif self._forgets:
            cost = (
                "The script has begun again from nothing: it wrote a checkpoint before and has loaded none. The next "
                "change of size does the same. Load the newest checkpoint at its start."
            )
        elif not self._saved and "saved" not in noted:
            cost = (
                "The script restarts from nothing: it has written no checkpoint since it started, and a change of size "
                "starts it again. Write one with torch.save, and load it at its start."
            )
        else:
            return ""
        return f"{cost} It keeps its slots and gets no more, unless its max_workers are changed."

    def _following(self) -> tuple[int, ...]:
        """Return the members of the next round if it started now: those of this round first, in their order."""
        staying = [member for member in self.round.present if self._may_stay(self._agents[member])]
        ready = [agent.number for agent in self._agents.values() if agent.phase is AgentPhase.READY]
        able = (*staying, *sorted(number for number in ready if not self._agents[number].dying))
        if not self._units:
            return able
        # Those who are too many for equal shares wait. One alone has all units.
        return able[: max((n for n in range(1, len(able) + 1) if self._units % (n * self._unit) == 0), default=0)]

    def _gathers(self) -> bool:
        """Return whether to wait for agents that are starting: each round costs the script a restart."""
        current = self.round
        coming = any(
            a.phase is AgentPhase.STARTING and not a.dying and self._may_stay(a) for a in self._agents.values()
        )
        if current.gathered >= MOST_GATHERS or not coming:
            return False
        if not current.gathering:
            current.gathering = True
            self._out.append(events.Gather(current.number))
        return True

    def _begin_round(self) -> None:
        following = self._following()
        if not following and not self.round.present:
            return
        former = self.round.present
        self._saved |= "saved" in self.round.noted
        self.round = AgentRound(self.round.number + 1, following)
        message = link.Round(
            number=self.round.number,
            members=tuple(self._agents[number].member() for number in following),
            restarts=self.restarts,
        )
        # Former members get the message too: an agent that is not in the round exits when it reads that.
        for number in (*former, *(number for number in following if number not in former)):
            agent = self._agents[number]
            self._tell(number, message)
            if number in following:
                agent.phase = AgentPhase.MEMBER
            else:
                agent.phase = AgentPhase.ENDING
                self._end(number, self._grace)

    def _wind_up(self, ending: Ending) -> None:
        if not self._wound_up:
            self._wound_up = True
            for agent in self._agents.values():
                agent.phase = AgentPhase.ENDING
                if ending.state is JobState.FINISHED and agent.hello is not None:
                    # None of their processes runs any more: they exit when they read that no round follows.
                    number = self.round.number + 1
                    self._tell(agent.number, link.Round(number=number, members=(), restarts=0))
                    self._end(agent.number, FAILED_GRACE)
                else:
                    self._end(agent.number, 0.0)
        if not self._agents:
            self._finish(ending)

    # --- helpers ------------------------------------------------------------------------------------------------------

    @property
    def _occupied(self) -> set[int]:
        return {slot.id for agent in self._agents.values() for slot in agent.slots}

    def _members(self) -> list[TorchrunAgent]:
        return [self._agents[number] for number in self.round.present]

    def _may_stay(self, agent: TorchrunAgent) -> bool:
        return all(self._slots.allowed(slot.id) for slot in agent.slots)

    def _name(self, agent: TorchrunAgent) -> str:
        listed = ", ".join(str(slot.id) for slot in agent.slots)
        return f"Agent {agent.number} (slot{'s' if len(agent.slots) > 1 else ''} {listed})"

    def _report_agent(self, agent: TorchrunAgent, code: int, why: str, *, member: bool) -> None:
        self._report_loss(agent.number, agent.slot, agent.pid, code, why, member=member)

    def _report_loss(self, worker: int, slot: Slot, pid: int | None, code: int, why: str, *, member: bool) -> None:
        self._send(
            control.WorkerLost(
                worker=worker, slot=slot.id, pid=pid, exit_code=code, member=member, update=None, why=why
            )
        )
