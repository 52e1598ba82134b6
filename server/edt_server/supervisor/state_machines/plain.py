"""Decide for a job that is not elastic: `PyTorch`, `distPyTorch` and commands. Pure.

All its processes start together, as soon as all its slots are granted, and they live together: when a slot is revoked
or lost, all of them are ended, and restart from the beginning once the job has its slots again. When all have exited
with 0 the job is finished. When one fails the others are ended and the job fails with its last lines.

Rank 0 is on the supervisor's host, where its port is kept free. Without a slot there the job goes on with another
supervisor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.control import Slot
from edt_sdk.schemas.wire.task import Task
from edt_server.supervisor.state_machines import wording
from edt_server.supervisor.state_machines.ending import Ending
from edt_server.supervisor.state_machines.events import (
    Exited,
    Finish,
    Hung,
    MachineEvent,
    NotStarted,
    Started,
    StartTask,
)
from edt_server.supervisor.state_machines.history import History
from edt_server.supervisor.state_machines.machine import Machine

# When one process fails, those that wait for it fail a moment later. The cause shows when all have exited.
BLAME_PATIENCE = 1.0
MOST_LOSSES = 10
_TAKEN = "It was suspended, or one of its slots is gone."


@dataclass(slots=True)
class Process:
    """One process of a run, from the instruction to start it until its exit."""

    task: Task
    pid: int | None = None
    lost: str = ""


@dataclass(slots=True)
class PlainRun:
    """A start of all processes.

    Attributes:
        number: from 1.
        processes: the processes that have not exited, by worker.
        told: its start was reported.
        stopped: it was ended early, so its exit codes count for nothing.
    """

    number: int
    slots: frozenset[int]
    processes: dict[int, Process] = field(default_factory=dict)
    started: dict[int, int] = field(default_factory=dict)
    told: bool = False
    stopped: bool = False


class Plain(Machine):
    """The state machine of a plain job. Of an earlier attempt only the numbers count. `home` is as in JobMembership."""

    def __init__(self, spec: JobSpec, history: History | None = None, *, home: str = "") -> None:
        past = History() if history is None else history
        super().__init__(past)
        self._home = home
        self._framework = Framework(spec.framework)
        self._size, self._unit = spec.max_workers, spec.slots_per_unit
        self._what = "The command" if spec.command else "The main script"
        self._workers = past.workers
        self._runs = past.runs
        self._run: PlainRun | None = None
        self._first_slot: dict[int, int] = {}
        self._losses = 0

    @property
    def training(self) -> bool:
        """True while processes are still to be started."""
        return self._ending is None and self._run is None

    def _hear(self, event: MachineEvent) -> None:
        match event:
            case Started(process=worker, pid=pid):
                self._started(worker, pid)
            case NotStarted(process=worker, why=why):
                self._not_started(worker, why)
            case Exited():
                self._exited(event)
            case Hung(process=worker, why=why) if self._run is not None and worker in self._run.processes:
                self._run.processes[worker].lost = why
            case _:
                self._note(f"{type(event).__name__}: a plain job has no links")

    # --- what happened ------------------------------------------------------------------------------------------------

    def _started(self, worker: int, pid: int) -> None:
        run = self._run
        if run is None:
            return
        process = run.processes[worker]
        process.pid = pid
        run.started[worker] = pid
        self._send(control.WorkerStarted(worker=worker, slot=process.task.slots[0].id, pid=pid))
        if run.stopped or self._ending is not None:
            self._end(worker, 0.0)  # it had to end before its process existed
        elif len(run.started) == process.task.world:
            run.told = True
            ranked = sorted(run.started)
            self._send(
                control.RunStarted(
                    number=run.number,
                    workers=tuple(ranked),
                    slots=tuple(self._first_slot[each] for each in ranked),
                    pids=tuple(run.started[each] for each in ranked),
                )
            )

    def _not_started(self, worker: int, why: str) -> None:
        run = self._run
        process = None if run is None else run.processes.pop(worker, None)
        if process is None:  # the job's folders could not be made
            self._begin_end(JobState.ERROR, why)
        elif run is not None and not run.stopped:
            self._begin_end(JobState.ERROR, f"{self._name(process.task)} could not be started: {why}")

    def _exited(self, event: Exited) -> None:
        run = self._run
        process = None if run is None else run.processes.pop(event.process, None)
        if run is None or process is None:
            return
        for slot in process.task.slots:
            self._exits[slot.id] = (event.process, event.code)
        by_itself = event.by_itself and not process.lost
        if self._ending is not None:
            if by_itself and event.code != 0 and self._ending.state is JobState.FAILED:
                self._blame(self._ending, process.task, event)
        elif run.stopped:
            return
        elif process.lost and event.code < 0:
            self._lost(run, wording.failure(self._name(process.task), process.lost, None))
        elif event.code != 0:
            self._ending = Ending(JobState.FAILED)
            self._blame(self._ending, process.task, event)
            self._end_all(run, BLAME_PATIENCE)

    def _blame(self, ending: Ending, task: Task, event: Exited) -> None:
        message = wording.failure(self._name(task), wording.how_it_ended(event.code), event.words)
        ending.blame(message, silent=event.code < 0)

    def _lost(self, run: PlainRun, why: str) -> None:
        self._losses += 1
        if self._losses > MOST_LOSSES:
            self._begin_end(JobState.FAILED, f"{why} That was the {self._losses}th time.")
        else:
            self._stop(run, why)

    # --- what follows -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        run = self._run
        if self._ending is None and run is not None:
            if not run.processes and not run.stopped:
                where = "" if len(run.started) == 1 else " on all ranks"
                message = f"Finished: {self._what.lower()} ended with exit code 0{where}."
                self._begin_end(JobState.FINISHED, message)
            elif not run.stopped and not all(self._slots.allowed(slot) for slot in run.slots):
                self._stop(run, _TAKEN)
        # A stopped run has to be gone before its slots are released and the next run starts in them.
        if run is not None and run.stopped and not run.processes:
            run = self._run = None
        if self._ending is None:
            living = () if run is None else run.processes.values()
            self._release_revoked({slot.id for each in living for slot in each.task.slots})
            granted = self._slots.granted
            if run is None and self._home and granted and all(slot.host != self._home for slot in granted):
                self.over = True
                self._send(control.Relocated(host=self._home))
                self._out.append(Finish(over=False))
            elif run is None and len(granted) >= self._size:
                self._begin_run()
        elif run is None or not run.processes:
            self._finish(self._ending)

    def _begin_run(self) -> None:
        self._runs += 1
        granted = self._slots.granted[: self._size]
        run = self._run = PlainRun(self._runs, frozenset(slot.id for slot in granted))
        found = places(self._framework, granted, self._unit, self._home)
        spans = len({slots[0].host for slots in found}) > 1
        self._first_slot = {}
        for rank, slots in enumerate(found):
            worker, self._workers = self._workers, self._workers + 1
            task = Task(run=run.number, rank=rank, world=len(found), slots=slots)
            run.processes[worker] = Process(task)
            self._first_slot[worker] = slots[0].id
            self._out.append(StartTask(worker, task, spans))

    def _stop(self, run: PlainRun, why: str) -> None:
        """End all processes, because one of them cannot continue where it is."""
        run.stopped = True
        if run.told:
            self._send(control.RunStopped(number=run.number, why=why))
        self._end_all(run, 0.0)

    def _end_all(self, run: PlainRun, patience: float) -> None:
        for worker in run.processes:
            self._end(worker, patience)

    def _begin_end(self, state: JobState, message: str, *, silent: bool = False) -> None:
        if self._ending is None and self._run is not None:
            self._end_all(self._run, 0.0)
        super()._begin_end(state, message, silent=silent)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _name(self, task: Task) -> str:
        return self._what if task.world == 1 else f"Rank {task.rank} (slot {task.slots[0].id})"


def places(framework: Framework, slots: Sequence[Slot], unit: int, home: str = "") -> list[tuple[Slot, ...]]:
    """Return the slots of each process of a PYTORCH or DIST job, by rank, those on the host `home` first.

    With DIST a process has `unit` slots.
    """
    ordered = sorted(slots, key=lambda slot: (slot.host != home, slot.host, slot.id))
    by_host = [tuple(those) for _, those in groupby(ordered, key=lambda slot: slot.host)]
    if framework is Framework.PYTORCH:
        return [tuple(slot for those in sorted(by_host, key=len, reverse=True) for slot in those)]
    whole: list[tuple[Slot, ...]] = []
    rest: list[Slot] = []
    for those in by_host:
        full = len(those) // unit * unit
        whole += [those[at : at + unit] for at in range(0, full, unit)]
        rest += those[full:]
    return whole + [tuple(rest[at : at + unit]) for at in range(0, len(rest), unit)]
