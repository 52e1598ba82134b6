"""Decide for a torchrun job: agents come and go with the slots, and the script runs in rounds. Pure.

An agent holds a unit of slots and starts the script once in each. A round is one start of the script on all its agents.
Any change of membership, and any crash, leads to the next round: first every agent of the round halts, and only when
none of its processes is left does the next round start, with the agents that are ready by then. So no two rounds of a
script ever run at once. Agents start and import while the others still train. What a round costs is up to the script,
which resumes from its own checkpoint.

A crash costs the job a restart, unless an agent died: then the crash is only a consequence of that death.
"""

from __future__ import annotations

from collections.abc import Iterator

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines import wording
from edt_server.supervisor.state_machines.agents import AgentPhase, AgentRound, TorchrunAgent
from edt_server.supervisor.state_machines.ending import EXIT_GRACE, FAILED_GRACE, Ending
from edt_server.supervisor.state_machines.events import (
    DRIVER,
    Event,
    Exited,
    Gather,
    Gathered,
    Hung,
    Kill,
    LinkLost,
    NotStarted,
    Received,
    Recheck,
    Rechecked,
    SendMessage,
    Started,
    StartWorker,
)
from edt_server.supervisor.state_machines.exits import CRASH_SIGNALS
from edt_server.supervisor.state_machines.history import History
from edt_server.supervisor.state_machines.machine import Machine

# Seconds on top of the time that a script has for its checkpoint.
LEFT_GRACE = 15.0
# How often ready agents wait for starting ones. An agent takes one such wait, on a busy machine several.
MOST_GATHERS = 10
# Agents that exit by themselves in a row: that many are not bad luck, their Python is broken.
OWN_LIMIT = 3


class ElasticAgents(Machine):
    """The state machine of a torchrun job.

    Args:
        main: what runs, for the message of its end.
        interpreter: named in the message when no agent can start.
        unit: slots of an agent, and processes.
        max_restarts: crashes after which the script is started again.
        shutdown_timeout: seconds that a process has after SIGTERM.
        history: what an earlier attempt has done. Its crashes do not count.
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
        self._grace = shutdown_timeout + LEFT_GRACE
        self._next = past.workers
        self._agents: dict[int, TorchrunAgent] = {}
        self._round = AgentRound(past.generations)
        self._restarts = 0
        self._own_ends = 0
        self._ever = past.generations > 0
        self._wound_up = False

    @property
    def training(self) -> bool:
        """True while more agents may be needed at any time."""
        return self._ending is None

    @property
    def processes(self) -> dict[int, int]:
        """The pids of the agents with running processes, by number."""
        return {agent.number: agent.pid for agent in self._agents.values() if agent.pid is not None}

    @property
    def restarts(self) -> int:
        """Crashes that counted against `max_restarts`."""
        return self._restarts

    @property
    def round(self) -> AgentRound:
        """The newest round."""
        return self._round

    def _hear(self, event: Event) -> None:
        match event:
            case Started(process=process, pid=pid):
                self._started(self._agents[process], pid)
            case NotStarted(process=process, why=why) if process in self._agents:
                self._not_started(self._agents.pop(process), why)
            case NotStarted(process=process, why=why) if process == DRIVER:  # the job's folders could not be made
                self._begin_end(JobState.ERROR, why)
            case Received(process=process, message=message) if process in self._agents:
                self._said(self._agents[process], message)
            case LinkLost(process=process, why=why) if process in self._agents:
                self._link_lost(self._agents[process], why)
            case Exited(process=process) if process in self._agents:
                self._exited(self._agents.pop(process), event)
            case Hung(process=process, why=why) if process in self._agents:
                self._agents[process].hung = why
                self._out.append(Kill(process, 0.0))
            case Gathered(generation=number) if number == self._round.number:
                self._round.gathering = False
                self._round.gathered += 1
            case Rechecked(generation=number) if number == self._round.number and self._round.looking:
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
        current = self._round
        match message:
            case link.WorkerHello() if agent.phase is AgentPhase.STARTING:
                agent.hello, agent.port = message, message.store_port
                agent.phase = AgentPhase.READY
            case link.Began(round=number) if number == current.number and agent.number in current.present:
                agent.port = message.store_port
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
            case link.Done(round=number) if number == current.number:
                current.done.add(agent.number)
            case link.Crashed(round=number) if number == current.number and current.halting is None:
                current.crashes.append(message)
                if not current.looking and not current.broken:
                    current.looking = True
                    self._out.append(Recheck(current.number))
            case link.Failed():
                agent.failed = message
                if agent.phase is not AgentPhase.ENDING:
                    self._end(agent.number, FAILED_GRACE)
            case _:
                self._note(f"agent {agent.number} ({agent.phase.value}) sent a {type(message).__name__}: ignored")

    def _judge_crash(self) -> None:
        """Decide whether the crash was the cause: all that had happened when it was reported is known by now."""
        current = self._round
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
        self._restarts += 1
        if self._restarts > self._max_restarts:
            times = f" It was restarted {self._max_restarts} times before." if self._max_restarts else ""
            self._begin_end(JobState.FAILED, f"{sentence}{times}{_last(cause)}")
            return
        again = f" Restart {self._restarts} of {self._max_restarts}."
        self._report_loss(worker, slot, cause.pid, cause.exit_code, f"{sentence}{again}", member=True)

    def _link_lost(self, agent: TorchrunAgent, why: str) -> None:
        agent.lost = why
        if agent.phase is AgentPhase.ENDING:
            self._end(agent.number, self._grace)
        elif agent.failed is None:
            self._out.append(Kill(agent.number, EXIT_GRACE))

    def _exited(self, agent: TorchrunAgent, event: Exited) -> None:
        current = self._round
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
        """End agents outside the round as soon as one of their slots is revoked."""
        for agent in self._agents.values():
            outside = agent.phase in (AgentPhase.STARTING, AgentPhase.READY)
            if outside and not self._may_stay(agent):
                agent.phase = AgentPhase.ENDING
                self._end(agent.number, 0.0)

    def _fill_slots(self) -> None:
        """Start an agent for every whole unit of granted slots on a host."""
        if self._round.done and not self._round.broken:
            return  # the script is finishing
        for slots in self._free_units():
            agent = self._agents[self._next] = TorchrunAgent(self._next, slots)
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
            return  # a recheck or an exit is about to show which process failed
        if current.halting is None:
            if not self._change_is_due():
                return
            self._halt()
        # Only when no process of this round is left: two rounds of a script would write the same checkpoint.
        if current.stopped and not self._gathers():
            self._begin_round()

    def _halt(self, besides: int | None = None) -> None:
        current = self._round
        current.halting = {number for number in current.present if number != besides}
        for number in current.present:
            if number in current.halting:
                self._out.append(SendMessage(number, link.Halt(round=current.number)))

    def _change_is_due(self) -> bool:
        current = self._round
        following = self._following()
        if current.broken:
            return True
        if following == current.present or current.forming:
            return False
        if set(current.present) <= set(following):
            # A change that only adds members costs the script a restart: not while it is finishing, and once for all.
            return not current.done and not self._gathers()
        return True

    def _following(self) -> tuple[int, ...]:
        """Return the members of the next round if it started now: those of this round first, in their order."""
        staying = [member for member in self._round.present if self._may_stay(self._agents[member])]
        ready = [agent.number for agent in self._agents.values() if agent.phase is AgentPhase.READY]
        return (*staying, *sorted(number for number in ready if not self._agents[number].dying))

    def _gathers(self) -> bool:
        """Return whether to wait for agents that are starting: each round costs the script a restart."""
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
        self._round = AgentRound(self._round.number + 1, following)
        message = link.Round(
            number=self._round.number,
            members=tuple(self._agents[number].member() for number in following),
            restarts=self._restarts,
        )
        # Former members get the message too: an agent that is not in the round exits when it reads that.
        for number in (*former, *(number for number in following if number not in former)):
            agent = self._agents[number]
            self._out.append(SendMessage(number, message))
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
                    number = self._round.number + 1
                    self._out.append(SendMessage(agent.number, link.Round(number=number, members=(), restarts=0)))
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
        return [self._agents[number] for number in self._round.present]

    def _may_stay(self, agent: TorchrunAgent) -> bool:
        return all(self._slots.allowed(slot.id) for slot in agent.slots)

    def _name(self, agent: TorchrunAgent) -> str:
        listed = ", ".join(str(slot.id) for slot in agent.slots)
        return f"Agent {agent.number} (slot{'s' if len(agent.slots) > 1 else ''} {listed})"

    def _report_agent(self, agent: TorchrunAgent, code: int, why: str, *, member: bool) -> None:
        self._report_loss(agent.number, agent.slots[0], agent.pid, code, why, member=member)

    def _report_loss(self, worker: int, slot: Slot, pid: int | None, code: int, why: str, *, member: bool) -> None:
        self._send(
            control.WorkerLost(
                worker=worker, slot=slot.id, pid=pid, exit_code=code, member=member, update=None, why=why
            )
        )


def _last(crash: link.Crashed) -> str:
    return f"\n{crash.words}" if crash.words else ""
