"""Define a job's state machine: its interface, and the part that is the same for every framework. Pure.

Every machine keeps the slots that the server has granted, numbers its reports, releases an empty slot once it is
revoked, and comes to one end, the first that is decided. So the events of the server are handled here. The events of
processes, and what follows from them, belong to the framework's machine: `JobMembership`, `ElasticAgents` or `Plain`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.state_machines import events
from edt_server.supervisor.state_machines.ending import Ending
from edt_server.supervisor.state_machines.history import History
from edt_server.supervisor.state_machines.slot_ledger import SlotLedger


class Machine(ABC):
    """A state machine: events in, instructions out. Each attempt of a job has its own machine."""

    def __init__(self, past: History) -> None:
        self._reports = past.reports
        self._slots = SlotLedger()
        # The slots it would have if all were free.
        self._asked = 0
        self._budget: int | None = None
        self._apart: tuple[str, ...] = ()
        # slot → the last process in it, and its exit code
        self._exits: dict[int, tuple[int, int]] = {}
        self._ending: Ending | None = None
        # The job has ended, and none of its processes is left.
        self.over = False
        self._out: list[events.Instruction] = []

    def apply(self, event: events.MachineEvent) -> list[events.Instruction]:
        """Return what to do about the event, in order."""
        self._out = []
        match event:
            case events.Allocated():
                if self._slots.allocate(event.version, event.slots):
                    self._asked, self._budget, self._apart = event.asked, event.budget, event.apart
                else:
                    self._note(f"allocation {event.version} is older than the newest one: ignored")
            case events.Acknowledged(number=number):
                self._slots.acknowledge(number)
            case events.Stop(why=why):
                self._begin_end(JobState.KILLED, why)
            case events.Refuse(why=why):
                self._begin_end(JobState.KILLED, why)
                # Fencing: another attempt may be running, and the server would refuse the reports of this one (decision
                # 003).
                if self._ending is not None:
                    self._ending.reported = False
            case _:
                self._hear(event)
        if not self.over:
            self._settle()
        return self._out

    # --- what each framework has of its own ---------------------------------------------------------------------------

    @abstractmethod
    def _hear(self, event: events.MachineEvent) -> None:
        """Handle what happened to a process, or a timer."""

    @abstractmethod
    def _settle(self) -> None:
        """Do what follows from the present state."""

    @property
    @abstractmethod
    def training(self) -> bool:
        """True while more processes may be needed at any time."""

    @property
    def taking_part(self) -> frozenset[int]:
        """Workers that the watchdog expects to make progress. Empty where that cannot be observed from outside."""
        return frozenset()

    @property
    def processes(self) -> dict[int, int]:
        """The pids of the workers with running processes, by worker. Empty where workers have no heartbeats."""
        return {}

    @property
    def committed(self) -> int:
        """Updates of the running training that are known to be committed, 0 where there are none."""
        return 0

    # --- what all have in common --------------------------------------------------------------------------------------

    @property
    def holding(self) -> tuple[int, ...]:
        """Slots for the hello, see `SlotLedger.holding`."""
        return self._slots.holding

    def _begin_end(self, state: JobState, message: str, *, silent: bool = False) -> None:
        """Come to this end, unless another end was decided before. `silent` is as in `Ending.blame`."""
        if self._ending is None:
            self._ending = Ending(state)
            self._ending.blame(message, silent=silent)

    def _finish(self, ending: Ending) -> None:
        """Send the last report: nothing of the job is left."""
        self.over = True
        if ending.reported:
            self._send(control.JobEnded(state=ending.state, message=ending.message))
        self._out.append(events.Finish(over=ending.reported))

    def _release_revoked(self, occupied: Collection[int]) -> None:
        """Release the revoked slots, except those that a process still occupies."""
        for slot in self._slots.revoked:
            if slot not in occupied:
                self._release(slot)

    def _release(self, slot: int) -> None:
        worker, code = self._exits.pop(slot, (None, None))
        self._send(control.SlotReturned(slot=slot, worker=worker, exit_code=code))
        # The number of the report above: only after its acknowledgement can an allocation grant this slot again
        # (decision 003).
        self._slots.release(slot, self._reports)

    def _send(self, report: control.Report) -> None:
        self._reports += 1
        self._out.append(events.SendReport(self._reports, report))

    def _end(self, process: int, patience: float) -> None:
        self._out.append(events.End(process, patience))

    def _kill(self, process: int, patience: float, *, stack: bool = False) -> None:
        self._out.append(events.Kill(process, patience, stack))

    def _tell(self, process: int, message: link.Downward) -> None:
        self._out.append(events.SendMessage(process, message))

    def _note(self, text: str) -> None:
        self._out.append(events.Note(text))
