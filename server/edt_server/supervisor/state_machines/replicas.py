"""Decide for a deployment: a replica in each slot, each on its own. Pure.

A replica loads the model, then answers requests that come to it past the supervisor. One that has failed is started
again in its slot. One whose slot is revoked first answers what it has taken. The job ends when it is stopped, or when
its replicas fail in a row before they could answer anything.

Every change of the replicas that can answer is reported as a generation, so that the story and the pictures of a
deployment are those of a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.state_machines import events, wording
from edt_server.supervisor.state_machines.ending import EXIT_GRACE, FAILED_GRACE
from edt_server.supervisor.state_machines.events import DRIVER
from edt_server.supervisor.state_machines.exits import CRASH_SIGNALS
from edt_server.supervisor.state_machines.history import History
from edt_server.supervisor.state_machines.machine import Machine
from edt_server.supervisor.state_machines.worker_group import LinkedProcess

# Seconds in which a replica answers what it has taken.
DRAIN_PATIENCE = 5.0
# Replicas in a row that never could answer: that many are not bad luck, the version or its code is broken.
LOAD_LIMIT = 3
# The same, killed from outside before they could answer.
KILL_LIMIT = 10
_NEVER_RAN = 127


class ReplicaPhase(Enum):
    """The phases of a replica."""

    LOADING = "process started"
    READY = "answers requests"
    ENDING = "told to end"


@dataclass(slots=True)
class Replica(LinkedProcess):
    """The process of a replica."""

    phase: ReplicaPhase = ReplicaPhase.LOADING


class Replicas(Machine):
    """The state machine of a deployment's job. `version` is what it serves, for the messages."""

    def __init__(self, *, version: str, interpreter: str, history: History | None = None) -> None:
        past = History() if history is None else history
        super().__init__(past)
        self._version = version
        self._interpreter = interpreter
        self._next = past.workers
        self._generation = past.generations
        self._replicas: dict[int, Replica] = {}
        self._shown: tuple[int, ...] = ()
        self._failures = 0
        self._kills = 0

    @property
    def training(self) -> bool:
        """True while more replicas may be needed at any time."""
        return self._ending is None

    @property
    def processes(self) -> dict[int, int]:
        """The pids of the replicas with running processes, by number."""
        return {replica.number: replica.pid for replica in self._replicas.values() if replica.pid is not None}

    # --- what happened ------------------------------------------------------------------------------------------------

    def _hear(self, event: events.MachineEvent) -> None:
        match event:
            case events.NotStarted(process=process, why=why) if process == DRIVER:  # no folders could be made
                self._begin_end(JobState.ERROR, why)
            case events.Started(process=process, pid=pid) if process in self._replicas:
                self._started(self._replicas[process], pid)
            case events.NotStarted(process=process, why=why) if process in self._replicas:
                replica = self._replicas.pop(process)
                self._failed(replica, _NEVER_RAN, f"{self._name(replica)} could not be started: {why}", JobState.ERROR)
            case events.Received(process=process, message=message) if process in self._replicas:
                self._said(self._replicas[process], message)
            case events.LinkLost(process=process, why=why) if process in self._replicas:
                replica = self._replicas[process]
                replica.lost = why
                if replica.phase is not ReplicaPhase.ENDING and replica.failed is None:
                    self._kill(process, EXIT_GRACE)
            case events.Exited(process=process) if process in self._replicas:
                self._exited(self._replicas.pop(process), event)
            case _:
                pass

    def _started(self, replica: Replica, pid: int) -> None:
        replica.pid = pid
        self._send(control.WorkerStarted(worker=replica.number, slot=replica.slot.id, pid=pid))
        if replica.phase is ReplicaPhase.ENDING:
            self._end(replica.number, 0.0)  # it had to end before its process existed

    def _said(self, replica: Replica, message: link.Upward) -> None:
        match message:
            case link.WorkerHello():
                replica.hello = message
            case link.WorkerReady() if replica.phase is ReplicaPhase.LOADING:
                replica.phase = ReplicaPhase.READY
                self._failures = self._kills = 0
            case link.Failed():
                replica.failed = message
                self._end(replica.number, FAILED_GRACE)
            case _:
                self._note(f"replica {replica.number} sent a {type(message).__name__}: ignored")

    def _exited(self, replica: Replica, event: events.Exited) -> None:
        self._exits[replica.slot.id] = (replica.number, event.code)
        if replica.phase is ReplicaPhase.ENDING or self._ending is not None:
            return
        name, failed = self._name(replica), replica.failed
        outside = failed is None and (not event.by_itself or (event.code < 0 and -event.code not in CRASH_SIGNALS))
        if failed is not None:
            why = wording.failure(name, f"failed: {failed.message}", event.words, failed.traceback)
        elif not event.by_itself:
            why = wording.failure(name, wording.lost_link(replica.lost), event.words)
        elif replica.hello is None and not outside:
            why = wording.never_spoke(name, self._interpreter, event.code, event.words)
        else:
            why = wording.failure(name, wording.how_it_ended(event.code), event.words)
        if replica.phase is ReplicaPhase.READY:
            self._report_lost(replica, event.code, why)
        elif outside:
            self._killed(replica, event.code, why)
        else:
            self._failed(replica, event.code, why, JobState.FAILED)

    def _failed(self, replica: Replica, code: int, why: str, state: JobState) -> None:
        """Count a replica that could not load. Too many in a row end the job."""
        if replica.phase is ReplicaPhase.ENDING or self._ending is not None:
            return
        self._failures += 1
        final = replica.failed is not None and replica.failed.final
        if final or self._failures >= LOAD_LIMIT:
            times = f" That was attempt {self._failures}." if self._failures > 1 else ""
            self._begin_end(state, f"{self._version} cannot be served.{times} {why}")
        else:
            self._report_lost(replica, code, why)

    def _killed(self, replica: Replica, code: int, why: str) -> None:
        self._kills += 1
        if self._kills >= KILL_LIMIT:
            self._begin_end(JobState.FAILED, f"{self._version} cannot be served. {why} That was the {self._kills}th.")
        else:
            self._report_lost(replica, code, why)

    # --- what follows -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._ending is not None:
            for replica in self._replicas.values():
                self._leave(replica, 0.0 if self._ending.state is not JobState.KILLED else DRAIN_PATIENCE)
            if not self._replicas:
                self._finish(self._ending)
            return
        for replica in self._replicas.values():
            if not self._slots.allowed(replica.slot.id):
                self._leave(replica, DRAIN_PATIENCE)
        occupied = {replica.slot.id for replica in self._replicas.values()}
        for slot in self._slots.granted:
            if slot.id not in occupied:
                replica = self._replicas[self._next] = Replica(self._next, slot)
                self._next += 1
                self._out.append(events.StartWorker(replica.number, slot))
        self._show()
        self._release_revoked({replica.slot.id for replica in self._replicas.values()})

    def _leave(self, replica: Replica, patience: float) -> None:
        """Let a replica answer what it has taken, and end. One that loads has taken nothing."""
        if replica.phase is ReplicaPhase.ENDING:
            return
        answers = replica.phase is ReplicaPhase.READY
        replica.phase = ReplicaPhase.ENDING
        if answers:
            self._tell(replica.number, link.Drain())
        self._end(replica.number, patience if answers else 0.0)

    def _show(self) -> None:
        """Report the replicas that can answer, when others can than before."""
        ready = [each for each in self._replicas.values() if each.phase is ReplicaPhase.READY and not each.dying]
        numbers = tuple(each.number for each in ready)
        if numbers == self._shown:
            return
        self._shown = numbers
        if not ready:
            return  # the report of the loss, or the released slots, say it
        self._generation += 1
        self._send(
            control.GenerationFormed(
                training=control.NO_TRAINING,
                number=self._generation,
                workers=numbers,
                slots=tuple(each.slot.id for each in ready),
                pids=tuple(each.pid or 0 for each in ready),
                update=None,
            )
        )

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _name(self, replica: Replica) -> str:
        return f"Replica {replica.number} (slot {replica.slot.id})"

    def _report_lost(self, replica: Replica, code: int, why: str) -> None:
        others = any(each.phase is ReplicaPhase.READY for each in self._replicas.values())
        self._send(
            control.WorkerLost(
                worker=replica.number,
                slot=replica.slot.id,
                pid=replica.pid,
                exit_code=code,
                # While others answer, the deployment does.
                member=replica.phase is ReplicaPhase.READY and not others,
                update=None,
                why=why,
            )
        )
