"""Supervise a job: connect the pure state machine with processes, link, server and files.

Events of all four go through the machine one at a time, on one event loop, and its instructions are carried out at once
and in order. No rule about the job is written here. However this process ends by itself, it leaves no process of the
job behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import deque
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.torchrun import TorchrunOptions
from edt_sdk.schemas.wire.control import SAME, Ack, Allocation, Launch, Refused, Slot, StopJob, ToSupervisor
from edt_sdk.schemas.wire.task import Task
from edt_server.supervisor.journal import Journal
from edt_server.supervisor.link_server import LinkServer
from edt_server.supervisor.processes.children import Children
from edt_server.supervisor.processes.forker import Forker
from edt_server.supervisor.processes.liveness import newest_updates, observe, pulse_file
from edt_server.supervisor.processes.memory import host_mark, memory_folder, remove_memory_folder, sweep
from edt_server.supervisor.processes.memory_left import memory_is_scarce, room_for_another
from edt_server.supervisor.processes.ports import RunPorts
from edt_server.supervisor.processes.predecessors import LOCK, Predecessors, end_leftovers
from edt_server.supervisor.processes.sandbox import JobSandbox
from edt_server.supervisor.processes.standby_processes import StandbyProcesses
from edt_server.supervisor.processes.zygote import Zygote
from edt_server.supervisor.programs.environment import (
    MASTER,
    JobEnvironment,
    base_environment,
    make_folders,
    owner_of,
)
from edt_server.supervisor.programs.programs import program_of, stream_name, zygote_environment_of
from edt_server.supervisor.remote_workers import RemoteWorkers
from edt_server.supervisor.reporter import Reporter
from edt_server.supervisor.state_machines import events
from edt_server.supervisor.state_machines.elastic_agents import ElasticAgents
from edt_server.supervisor.state_machines.events import DRIVER
from edt_server.supervisor.state_machines.history import History, history_of
from edt_server.supervisor.state_machines.membership import JobMembership
from edt_server.supervisor.state_machines.plain import Plain
from edt_server.supervisor.state_machines.replicas import Replicas
from edt_server.supervisor.state_machines.standbys import NOWHERE
from edt_server.supervisor.state_machines.watchdog import Watchdog
from edt_server.supervisor.state_machines.wording import LastLines, stream_tail
from edt_server.supervisor.stream_index import StreamIndex
from edt_server.system.processes import PRESENCE, announce, identify
from edt_server.system.steady_clock import SteadyClock

log = logging.getLogger(__name__)

SAMPLE_INTERVAL = 0.1
WATCH_INTERVAL = 0.5
# A closed link is unread for less than this, see `Recheck`.
RECHECK_AFTER = 0.05
RECHECK_AFTER_REMOTE = 0.5
# Workers that are forked together are ready within less than this, unless the cores are busy. The wait delays no
# update, whereas a change of its own makes the second worker wait for two more boundaries.
GATHER_FOR = 0.25
# A process of an earlier attempt finishes its update and writes a checkpoint, for which a minute is much.
PREDECESSOR_PATIENCE = 60.0
# Without a server the last reports stay in the journal, where the next server reads them: a short wait is enough.
DELIVERY_PATIENCE = 60.0


class Supervisor:
    """The supervisor of a job. `umask` is for its processes, and `zygote` was started already and fits the job."""

    def __init__(self, orders: Launch, *, umask: int, zygote: Zygote | None = None) -> None:
        self._orders = orders
        self._umask = umask
        self._identity = identity = identify(os.getpid())
        link = Path(orders.runtime_dir) / "link.sock"
        self._runtime_dir = Path(orders.runtime_dir)
        mark = host_mark(orders.host, self._runtime_dir.parent)
        self._memory_dir = memory_folder(orders.job_id, host=mark)
        self._sandbox = None if orders.isolation.kind == SAME else JobSandbox(orders, self._memory_dir)
        memory_dir = self._memory_dir if self._sandbox is None else self._sandbox.memory_dir
        environ = base_environment(os.environ, orders.isolation)
        self._job = JobEnvironment(orders, orders.host or identity.host, link, environ, memory_dir)
        self._paths = paths = self._job.paths
        paths.streams_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        elog = paths.driver_log_dir(self._job.host) / "stdout"
        # The name under which `edt_server.outputs.logs` looks the file up.
        others = {f"log/{elog.parent.name}/stdout": elog}
        self._index = StreamIndex(paths.stream_index, paths.streams_dir, others, within=paths.result_dir)
        self._journal = Journal(paths.journal)
        history = history_of(self._journal.reports, lambda training: str(paths.payload(training)))
        self._machine = _machine_of(orders, history)
        self._watchdog = Watchdog(orders.hang_timeout)
        announce(paths.job_dir / PRESENCE)
        # A plain job restarts from the beginning: what its old processes still do counts for nothing.
        patience = 0.0 if isinstance(self._machine, Plain) else max(orders.hang_timeout, PREDECESSOR_PATIENCE)
        self._predecessors = Predecessors(self._runtime_dir / LOCK, patience)
        forker = Forker(
            orders.interpreter,
            zygote_environment_of(orders),
            paths.streams_dir,
            zygote,
            needed=lambda: self._machine.training,
            sandbox=self._sandbox,
        )
        self._children = Children(forker, self._exited, self._before_reap, self._sandbox)
        self._standbys = StandbyProcesses()
        self._remote = RemoteWorkers(orders, identity, self._feed, self._exited_remotely)
        self._link = LinkServer(
            link,
            leader=self._children.leader,
            on_message=lambda key, message: self._feed(events.Received(key, message)),
            on_lost=lambda key, why: self._feed(events.LinkLost(key, why)),
            owner=owner_of(orders),
        )
        self._clock = SteadyClock()
        self._reporter = Reporter(
            orders,
            identity,
            self._journal,
            self._clock,
            holding=lambda: self._machine.holding,
            on_message=self._on_server_message,
        )
        self._ports = RunPorts()
        self._events: deque[events.MachineEvent] = deque()
        # No event is handled before all processes of an earlier attempt are gone. Until then events are queued.
        self._feeding = True
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refused = asyncio.Event()
        self._prepared = asyncio.Event()

    async def run(self) -> None:
        """Supervise until the job is over and reported."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            stop = events.Stop(f"The job's supervisor was told to end ({number.name}).")
            loop.add_signal_handler(number, self._feed, stop)
        tasks = [
            asyncio.create_task(self._report(), name="reporter"),
            asyncio.create_task(self._sample(), name="sampler"),
            asyncio.create_task(self._watch(), name="watch"),
            asyncio.create_task(self._finish(), name="finish"),
        ]
        try:
            await self._prepare()
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Processes first, files and locks after them: the next attempt starts when the lock is free.
            await self._remote.close()
            self._children.kill_all()
            await self._children.end_orphans()
            if self._sandbox is not None:
                self._sandbox.close()
            await self._link.stop()
            self._index.close()
            self._journal.close()
            self._predecessors.close()
            self._ports.close()

    async def _prepare(self) -> None:
        try:
            make_folders(self._job)
            if await self._predecessors.gone():
                # Before the link, and with it the first process, exists.
                if self._sandbox is not None:
                    await asyncio.to_thread(self._sandbox.hand_over)
                if self._orders.hosts_dir:
                    self._predecessors.share()
                if isinstance(self._machine, Plain):
                    await asyncio.to_thread(end_leftovers, self._orders.job_id)
                await self._link.start()
        except (EdtError, OSError) as wrong:
            self._feed(events.NotStarted(DRIVER, f"The job's folders could not be prepared: {wrong}"))
        self._prepared.set()
        self._feeding = False
        self._pump()

    async def _report(self) -> None:
        # The server takes back slots that a hello does not name: first the processes in those slots have to be gone.
        await self._prepared.wait()
        await self._reporter.run()

    async def _finish(self) -> None:
        await self._over
        taken = [asyncio.create_task(self._reporter.delivered()), asyncio.create_task(self._refused.wait())]
        done, waiting = await asyncio.wait(taken, timeout=DELIVERY_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if not done:
            log.warning("no server took the last reports; they stay in %s", self._paths.journal)

    async def _sample(self) -> None:
        await asyncio.to_thread(sweep)
        while self._paths.job_dir.exists():
            self._index.sample(self._clock.now())
            await asyncio.sleep(SAMPLE_INTERVAL)
        # The job was deleted: no server will ever ask for it, and its results have no place.
        log.error("the job's folder is gone")
        remove_memory_folder(self._memory_dir)
        self._refuse("The job's folder is gone.")
        await asyncio.Event().wait()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            now = time.monotonic()
            machine, remote = self._machine, self._remote
            here = {worker: pid for worker, pid in machine.processes.items() if not remote.has(worker)}
            seen = observe(here, machine.taking_part, self._runtime_dir, now) + remote.observe(machine.taking_part, now)
            for hang in self._watchdog.look(seen, committed=self._machine.committed > 0, now=now):
                self._feed(events.Hung(hang.worker, hang.why, hang.own))
            if self._standbys and memory_is_scarce():
                self._feed(events.MemoryScarce())

    # --- events in ----------------------------------------------------------------------------------------------------

    def _feed(self, event: events.MachineEvent) -> None:
        self._events.append(event)
        if isinstance(event, events.Stop):
            self._predecessors.hurry()
        elif isinstance(event, events.Refuse):
            self._predecessors.give_up()
        if not self._feeding:
            self._pump()

    def _pump(self) -> None:
        # An event that is fed while another is handled waits its turn: the machine's instructions are one consistent
        # list, and carrying one out can fail at once (NotStarted) in the middle of the list.
        self._feeding = True
        try:
            while self._events:
                for instruction in self._machine.apply(self._events.popleft()):
                    self._follow(instruction)
        except Exception as wrong:
            # A defect of the supervisor must end the job, not leave it running unsupervised.
            if not self._over.done():
                self._over.set_exception(wrong)
            raise
        finally:
            self._feeding = False

    def _on_server_message(self, message: ToSupervisor) -> None:
        match message:
            case Allocation(version=version, slots=slots, asked=asked, budget=budget, apart=apart):
                log.info("allocation %d: slots %s, budget %s", version, [slot.id for slot in slots], budget)
                self._feed(events.Allocated(version, slots, asked, budget, apart))
            case Ack(number=number):
                self._feed(events.Acknowledged(number))
            case StopJob(why=why):
                self._feed(events.Stop(why))
            case Refused(why=why):
                log.error("refused by the server: %s", why)
                self._refuse(why)

    def _refuse(self, why: str) -> None:
        if not self._refused.is_set():
            self._refused.set()
            self._feed(events.Refuse(why))

    async def _before_reap(self, key: int) -> None:
        # The last messages before the exit: a worker that failed has sent why, and Exited must come after it.
        await self._link.drained(key)
        if isinstance(self._machine, ElasticAgents):
            await self._children.end_orphans()
        self._index.sample(self._clock.now())

    def _exited(self, key: int, code: int, signals: tuple[int, ...]) -> None:
        # Before the event: its instructions may start a worker in the same slot, which must find the GPU free.
        self._children.reap_orphans()
        words = stream_tail(self._paths.streams_dir, stream_name(key))
        self._link.forget(key)
        self._standbys.ended(key)
        updates = newest_updates(self._machine.processes, self._runtime_dir)
        pulse_file(self._runtime_dir, key).unlink(missing_ok=True)
        self._feed(events.Exited(key, code, signals, words, updates))

    def _exited_remotely(
        self, key: int, code: int, signals: tuple[int, ...], updates: int | None, words: LastLines | None
    ) -> None:
        self._index.sample(self._clock.now())
        log.info("process ended, process=%d code=%d", key, code)
        words = words or stream_tail(self._paths.streams_dir, stream_name(key))
        self._feed(events.Exited(key, code, signals, words, updates))

    # --- instructions out ---------------------------------------------------------------------------------------------

    def _follow(self, instruction: events.Instruction) -> None:
        match instruction:
            case events.StartDriver():
                self._start(DRIVER, None)
            case events.StartWorker(worker=worker, slot=slot, others=others):
                # What an agent of a torchrun job holds.
                agent = isinstance(self._machine, ElasticAgents)
                self._start(worker, slot, Task(run=0, rank=0, world=1, slots=(slot, *others)) if agent else None)
            case events.StartStandby(worker=worker):
                if room_for_another(self._machine.processes.values()):
                    self._start(worker, NOWHERE, standby=True)
                else:
                    self._feed(events.NotStarted(worker, "there is little memory left"))
            case events.AssignStandby(worker=worker, slot=slot):
                log.info("standby has a slot, process=%d slot=%s", worker, slot.id)
                self._give_request()
                self._standbys.assign(worker)
            case events.StartTask(worker=worker, task=task, spans=spans):
                master = self._orders.interface if spans else ""
                port = self._ports.of(task.run, master or MASTER)
                self._start(worker, task.slots[0], msgspec.structs.replace(task, master=master, port=port))
            case events.End(process=process, patience=patience):
                self._standbys.hurry(process)
                (self._remote if self._remote.has(process) else self._children).end(process, patience)
            case events.Kill(process=process, patience=patience, stack=stack):
                self._standbys.hurry(process)
                (self._remote if self._remote.has(process) else self._children).kill(process, patience, stack=stack)
            case events.Gather(generation=generation):
                self._later(GATHER_FOR, events.Gathered(generation))
            case events.Recheck(generation=generation):
                self._later(RECHECK_AFTER_REMOTE if self._remote.used else RECHECK_AFTER, events.Rechecked(generation))
            case events.SendMessage(process=process, message=message):
                if not (self._remote if self._remote.has(process) else self._link).send(process, message):
                    log.warning("%s not sent, process=%d has no link", type(message).__name__, process)
            case events.SendReport(number=number, report=report):
                log.info("report %d: %s", number, report)
                self._reporter.report(number, report)
            case events.Publish(progress=progress):
                self._reporter.progress(progress)
            case events.Note(text=text):
                log.warning("%s", text)
            case events.Finish(over=over):
                if over:
                    remove_memory_folder(self._memory_dir)
                self._remote.farewell(over=over)
                if not self._over.done():
                    self._over.set_result(None)

    def _give_request(self) -> None:
        # The server may have written it since the last process started, and the one that reads it removes it.
        if self._sandbox is not None:
            self._sandbox.give(self._paths.resume_from)

    def _later(self, seconds: float, event: events.MachineEvent) -> None:
        asyncio.get_running_loop().call_later(seconds, self._feed, event)

    def _start(self, key: int, slot: Slot | None, task: Task | None = None, *, standby: bool = False) -> None:
        # A machine that was divided into named hosts before, and is not any more, still hosts those slots.
        here = (self._job.host, self._identity.host)
        serves = self._orders.spec.framework == Framework.SERVE and self._orders.spreads
        if slot is not None and serves and (self._orders.host or slot.host not in here):
            # A change of the plan has brought it there.
            why = f"Replicas are reached on the server's own machine only, and not on {slot.host}."
            self._feed(events.NotStarted(key, why))
            return
        if slot is not None and slot.host not in here and self._orders.hosts_dir:
            self._remote.start(key, slot, task)
            return

        def started(pid: int) -> None:
            log.info("process started, process=%d pid=%d slot=%s", key, pid, slot.id if slot else None)
            self._standbys.started(key, pid)
            self._feed(events.Started(key, pid))

        try:
            kept = [self._predecessors.descriptor]
            self._give_request()
            if self._sandbox is not None and not isinstance(self._machine, Plain):
                # Workers end by themselves when this process does. A script has to end with it.
                kept.append(self._sandbox.lifeline)
            program = program_of(self._job, key, slot, self._umask, *kept, task=task)
        except OSError as wrong:
            self._feed(events.NotStarted(key, str(wrong)))
            return

        def failed(why: str) -> None:
            self._standbys.ended(key)
            self._feed(events.NotStarted(key, why))

        if standby:
            program = self._standbys.hidden(key, program)
        self._children.start(key, program, started, failed)


def _machine_of(orders: Launch, history: History) -> JobMembership | ElasticAgents | Plain | Replicas:
    """Return the state machine for the job's framework."""
    framework, used = Framework(orders.spec.framework), orders.spec.registered
    home = (orders.host or identify(os.getpid()).host) if orders.spreads else ""
    if framework is Framework.SERVE and used is not None and used.serves is not None:
        return Replicas(version=used.serves.version, interpreter=orders.interpreter, history=history)
    if framework in (Framework.PYTORCH, Framework.DIST):
        return Plain(orders.spec, history, home=home)
    if framework is Framework.TORCHRUN:
        options = orders.spec.torchrun or TorchrunOptions()
        return ElasticAgents(
            main=orders.spec.main or " ".join(orders.spec.command),
            interpreter=orders.interpreter,
            unit=orders.spec.slots_per_unit,
            units=options.units,
            max_restarts=options.max_restarts,
            shutdown_timeout=options.shutdown_timeout,
            history=history,
        )
    # Only on this host can a standby's scheduling class be changed. A host agent just starts processes. And most trials
    # of a search end within seconds: standbys cost a tenth of the whole search there (decision 061).
    standbys = 0 if orders.hosts_dir or orders.spec.search else orders.standbys
    return JobMembership(interpreter=orders.interpreter, history=history, standbys=standbys, home=home)
