"""The state machine of a torchrun job: agents come and go with the slots, and the script runs in rounds.

Pure. An agent holds a unit of slots and starts the script once in each. A round is one start of the script on all its
agents; any change of membership, and any crash, makes the next one. Here is what an event changes; what follows from
the state afterwards is `rounds.py`'s. What a round costs is the script's own: it goes on from its own checkpoint.

A crash costs one of the job's restarts, unless an agent died: then it was that, and the crash is but its echo.
"""

from __future__ import annotations

import signal

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.machines import wording
from edt_server.supervisor.machines.agents import Agent, AgentPhase
from edt_server.supervisor.machines.events import (
    DRIVER,
    Event,
    Exited,
    Gathered,
    Hung,
    Kill,
    LinkLost,
    LookAgain,
    LookedAgain,
    NotStarted,
    Said,
    Started,
)
from edt_server.supervisor.machines.patience import EXIT_PATIENCE, FAILED_PATIENCE
from edt_server.supervisor.machines.rounds import Rounds

# Agents that end by themselves in a row: then it is their Python, and not their bad luck.
OWN_LIMIT = 3
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


class ElasticAgents(Rounds):
    """One torchrun job; see `Rounds` for its arguments and what may be asked of it."""

    def _hear(self, event: Event) -> None:
        match event:
            case Started(process=process, pid=pid):
                self._started(self._agents[process], pid)
            case NotStarted(process=process, why=why) if process in self._agents:
                self._not_started(self._agents.pop(process), why)
            case NotStarted(process=process, why=why) if process == DRIVER:  # the job's folders could not be made
                self._begin_end(JobState.ERROR, why)
            case Said(process=process, message=message) if process in self._agents:
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
            case LookedAgain(generation=number) if number == self._round.number and self._round.looking:
                self._judge_crash()
            case _:
                pass

    # --- what happened ------------------------------------------------------------------------------------------------

    def _started(self, agent: Agent, pid: int) -> None:
        agent.pid = pid
        for worker, slot in zip(agent.workers, agent.slots, strict=True):
            self._send(control.WorkerStarted(worker=worker, slot=slot.id, pid=pid))
        if agent.phase is AgentPhase.ENDING:
            self._end(agent.number, 0.0)  # said before there was anybody to end

    def _not_started(self, agent: Agent, why: str) -> None:
        if agent.phase is not AgentPhase.ENDING and self._ending is None:
            self._lost_by_itself(agent, 127, f"{self._name(agent)} could not be started: {why}", JobState.ERROR)

    def _said(self, agent: Agent, message: link.Upward) -> None:
        current = self._round
        match message:
            case link.WorkerHello() if agent.phase is AgentPhase.STARTING:
                agent.hello, agent.port = message, message.store_port
                agent.phase = AgentPhase.READY
            case link.Began(round=number) if number == current.number and agent.number in current.present:
                agent.port = message.store_port
                current.begun[agent.number] = message.pids
                if not current.forming and not current.broken:
                    self._own_ends, self._ever = 0, True
                    self._send(current.formed(self._agents.values()))
            case link.Stopped(round=number) if number == current.number:
                if current.halting is None:
                    # A torchrun of the job's own, which restarts what has failed by itself.
                    self._halt(besides=agent.number)
                else:
                    current.halting.discard(agent.number)
            case link.Done(round=number) if number == current.number:
                current.done.add(agent.number)
            case link.Crashed(round=number) if number == current.number and current.halting is None:
                current.crashes.append(message)
                if not current.looking and not current.broken:
                    current.looking = True
                    self._out.append(LookAgain(current.number))
            case link.Failed():
                agent.failed = message
                if agent.phase is not AgentPhase.ENDING:
                    self._end(agent.number, FAILED_PATIENCE)
            case _:
                self._note(f"agent {agent.number} ({agent.phase.value}) sent a {type(message).__name__}: ignored")

    def _judge_crash(self) -> None:
        """Whether the crash was the cause: all that had happened when it was heard of is known by now."""
        current = self._round
        current.looking, current.broken = False, True
        if any(agent.dying for agent in self._members()) or current.left - current.done:
            return
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

    def _link_lost(self, agent: Agent, why: str) -> None:
        agent.lost = why
        if agent.phase is AgentPhase.ENDING:
            self._end(agent.number, self._patience)
        elif agent.failed is None:
            self._out.append(Kill(agent.number, EXIT_PATIENCE))

    def _exited(self, agent: Agent, event: Exited) -> None:
        current = self._round
        member = agent.number in current.present and agent.number not in current.done
        if member and event.code == 0 and agent.phase is AgentPhase.MEMBER and event.by_itself:
            # A torchrun of the job's own ends when its processes have come to their end.
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
        elif not event.by_itself or (event.code < 0 and -event.code not in _CRASHES and agent.failed is None):
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

    def _lost_by_itself(self, agent: Agent, code: int, why: str, state: JobState, *, member: bool = False) -> None:
        """One that ended where nobody ended it; too many of them in a row, and the job ends."""
        self._own_ends += 1
        if self._own_ends >= OWN_LIMIT or (agent.failed is not None and agent.failed.final):
            self._begin_end(state, why)
        else:
            self._report_agent(agent, code, why.partition("\n")[0], member=member)


def _last(crash: link.Crashed) -> str:
    return f"\n{crash.words}" if crash.words else ""
