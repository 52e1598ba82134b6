"""Run the job's workers on other hosts: the supervisor's end of its outposts, one per host, below that host's agent.

For the state machine a remote worker is a worker like any other: the same instructions, the same events. When the
conversation with an agent ends, its host counts as lost with all workers of the job there. What was to be started
waits until there is an agent again, or the slot is taken back (decision 015).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path

import zmq.asyncio

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import Launch, ProcessIdentity, Slot
from edt_sdk.schemas.wire.link import Begin, Downward
from edt_sdk.schemas.wire.pulse import Beat, Phase
from edt_sdk.schemas.wire.regular import open_regular
from edt_sdk.schemas.wire.task import Task
from edt_server.messaging import AgentConnection, ConversationLost, read_address
from edt_server.supervisor.state_machines.events import Hung, LinkLost, MachineEvent, NotStarted, Received, Started
from edt_server.supervisor.state_machines.watchdog import Observation
from edt_server.supervisor.state_machines.wording import LastLines

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_ANSWER_PATIENCE = 30.0
Feed = Callable[[MachineEvent], None]
Exit = Callable[[int, int, tuple[int, ...], int | None, LastLines | None], None]


class RemoteWorkers:
    """The outposts of an attempt, by host.

    `feed` gets each event, and `exited` a worker's exit: number, exit code, signals it was sent, updates it knew of,
    and its last lines where they cannot be read here.
    """

    def __init__(self, orders: Launch, identity: ProcessIdentity, feed: Feed, exited: Exit) -> None:
        self.job_id = orders.job_id
        self.feed = feed
        self.exited = exited
        self._orders = orders
        self._identity = identity
        self._context: zmq.asyncio.Context | None = None
        self._hosts: dict[str, _Host] = {}
        self._number = 0

    @property
    def used(self) -> bool:
        """Whether the job has or had workers on other hosts."""
        return bool(self._hosts)

    def has(self, worker: int) -> bool:
        """Return whether this worker is, or will be, on another host."""
        return self._of(worker) is not None

    def start(self, worker: int, slot: Slot, task: Task | None = None) -> None:
        """Start a worker on its slot's host, or a process of a plain job, as soon as there is an agent."""
        host = self._hosts.get(slot.host)
        if host is None:
            if self._context is None:
                self._context = zmq.asyncio.Context()
            host = self._hosts[slot.host] = _Host(slot.host, self)
        host.start(wire.StartProcess(worker=worker, slot=slot, task=task))

    def end(self, worker: int, patience: float) -> None:
        """End a worker as `Children.end` does."""
        host = self._of(worker)
        if host is not None and not host.cancel(worker):
            host.send(wire.EndProcess(worker=worker, patience=patience))

    def kill(self, worker: int, patience: float, *, stack: bool = False) -> None:
        """Kill a worker as `Children.kill` does."""
        host = self._of(worker)
        if host is not None:
            host.send(wire.KillProcess(worker=worker, patience=patience, stack=stack))

    def send(self, worker: int, message: Downward) -> bool:
        """Send a message as `LinkServer.send` does."""
        host = self._of(worker)
        return host is not None and host.tell(worker, message)

    def observe(self, taking_part: Collection[int], now: float) -> list[Observation]:
        """Return the newest observations of the workers, and request new ones."""
        for host in self._hosts.values():
            host.send(wire.LookAtWorkers(taking_part=tuple(taking_part)))
        return [seen for host in self._hosts.values() for seen in host.observe(taking_part)]

    def farewell(self, *, over: bool) -> None:
        """Dismiss all outposts: nothing more is needed there."""
        for host in self._hosts.values():
            host.send(wire.Farewell(over=over))

    async def close(self) -> None:
        """End all conversations. Outposts that were not dismissed kill their processes."""
        self.farewell(over=False)
        await asyncio.gather(*(host.close() for host in self._hosts.values()))
        if self._context is not None:
            # In ms, for farewells that are still to be sent.
            self._context.destroy(linger=500)

    def _of(self, worker: int) -> _Host | None:
        return next((host for host in self._hosts.values() if worker in host.workers), None)

    def converse(self, name: str) -> tuple[AgentConnection, wire.StartOutpost] | None:
        """Return a new conversation with a host's agent and its first message, None when there is no agent."""
        address = read_address(Path(self._orders.hosts_dir), name)
        if address is None or self._context is None:
            return None
        self._number += 1
        order = wire.StartOutpost(attempt=self._orders.attempt, number=self._number, supervisor=self._identity)
        return AgentConnection(self._context, address, self._orders.host_silent), order


class _Host:
    """Another host: the workers wanted there, the workers that run there, and the conversation with its agent."""

    def __init__(self, name: str, job: RemoteWorkers) -> None:
        self._name = name
        self._job = job
        self._wanted: dict[int, wire.StartProcess] = {}
        self._there: set[int] = set()
        self._seen: dict[int, Observation] = {}
        self._connection: AgentConnection | None = None
        self._needed = asyncio.Event()
        self._given: set[Path] = set()
        self._giving: set[asyncio.Task[None]] = set()
        self._one_file = asyncio.Lock()
        self._room: asyncio.Future[wire.FilePut] | None = None
        self._task = asyncio.create_task(self._run(), name=f"host {name}")

    @property
    def workers(self) -> set[int]:
        return self._there | self._wanted.keys()

    def start(self, order: wire.StartProcess) -> None:
        if self._connection is not None:
            self._order(order)
        else:
            self._wanted[order.worker] = order
            self._needed.set()

    def cancel(self, worker: int) -> bool:
        """Drop a worker that waits for an agent, reported as an exit by SIGTERM. Return False when it does not wait."""
        if worker not in self._wanted:
            return False
        del self._wanted[worker]
        loop = asyncio.get_running_loop()
        # Later, because the caller is still changing the state that led to this.
        loop.call_soon(self._job.exited, worker, -signal.SIGTERM, (int(signal.SIGTERM),), None, None)
        return True

    def send(self, message: wire.ToOutpost) -> bool:
        if self._connection is None:
            return False
        self._connection.send(self._job.job_id, message)
        return True

    def tell(self, worker: int, message: Downward) -> bool:
        """Send a message over a worker's link. Before it prepares, its host gets the file that it prepares from."""
        if self._connection is None:
            return False
        tell = wire.TellProcess(worker=worker, message=message)
        if not isinstance(message, Begin) or self._connection.address.shared:
            return self.send(tell)
        # A worker gets no other message before it has answered this one.
        task = asyncio.create_task(self._give(self._connection, Path(message.payload), tell), name="give payload")
        self._giving.add(task)
        task.add_done_callback(self._giving.discard)
        return True

    async def _give(self, connection: AgentConnection, file: Path, then: wire.TellProcess) -> None:
        """Send a file of the job's own folder to the host, once a conversation, and then the message."""
        async with self._one_file:
            if file not in self._given:
                offset, last = 0, False
                with open_regular(file) as source:
                    size = os.fstat(source.fileno()).st_size
                    while not last:
                        data = source.read(wire.PART)
                        last = not data or offset + len(data) >= size
                        self._room = asyncio.get_running_loop().create_future()
                        connection.send(self._job.job_id, wire.PutFile(name=file.name, offset=offset, last=last), data)
                        put = await self._room
                        if put.why:
                            why = f"host {self._name} could not take the training's objects: {put.why}"
                            self._job.feed(Hung(then.worker, why))
                            self.send(wire.KillProcess(worker=then.worker, patience=0.0))
                            return
                        offset += len(data)
                self._given.add(file)
        if self._connection is connection:
            self.send(then)

    def observe(self, taking_part: Collection[int]) -> list[Observation]:
        return [
            Observation(worker, worker in taking_part, seen.beat, seen.state, seen.cpu)
            for worker, seen in self._seen.items()
            if worker in self._there
        ]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    def _order(self, order: wire.StartProcess) -> None:
        self._there.add(order.worker)
        self.send(order)

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._needed.wait()
            if not self._wanted:
                self._needed.clear()
                pause = _FIRST_PAUSE
            elif (begun := self._job.converse(self._name)) is not None and await self._talk(*begun):
                pause = _FIRST_PAUSE
            else:
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)

    async def _talk(self, connection: AgentConnection, order: wire.StartOutpost) -> bool:
        """Hold a conversation until it is lost. Return False when there was none."""
        why = f"was lost with host {self._name}"
        try:
            connection.send(self._job.job_id, order)
            async with asyncio.timeout(_ANSWER_PATIENCE):
                _, answer = await connection.receive()
            if not isinstance(answer, wire.OutpostStarted) or not answer.pid:
                self._refused(answer)
                return False
            log.info("host %s: outpost %d started, pid=%d", self._name, order.number, answer.pid)
            self._connection = connection
            wanted, self._wanted = self._wanted, {}
            for start in wanted.values():
                self._order(start)
            while True:
                _, message = await connection.receive()
                if isinstance(message, wire.OutpostEnded):
                    why = f"was lost with the process on host {self._name} that looked after it"
                    return True
                if isinstance(message, wire.FilePut):
                    if self._room is not None and not self._room.done():
                        self._room.set_result(message)
                    continue
                self._hear(message)
        except (ConversationLost, TimeoutError):
            return self._connection is not None
        except asyncio.CancelledError:
            self._there.clear()  # they are not lost: the job is over
            raise
        finally:
            # The workers end with the agent (`agent.guard`) or with their outpost, so they count as lost at once.
            self._connection = None
            self._given.clear()
            for task in self._giving:
                task.cancel()
            self._lose(why)
            await connection.close()

    def _refused(self, answer: object) -> None:
        why = answer.why if isinstance(answer, wire.OutpostStarted) else f"a {type(answer).__name__} came instead"
        wanted, self._wanted = self._wanted, {}
        for worker in wanted:
            self._job.feed(NotStarted(worker, f"host {self._name} could not start anything for the job: {why}"))

    def _lose(self, why: str) -> None:
        lost = sorted(self._there)
        if lost:
            log.warning("host %s: %d workers lost", self._name, len(lost))
        self._there.clear()
        self._seen.clear()
        for worker in lost:
            # Before the exit, so that the loss counts as caused from outside and not by the job's code.
            self._job.feed(Hung(worker, why))
            self._job.exited(worker, -signal.SIGKILL, (), None, None)

    def _hear(self, message: wire.FromAgent | wire.FromOutpost) -> None:
        match message:
            case wire.ProcessStarted(worker=worker, pid=pid) if worker in self._there:
                log.info("process started, process=%d pid=%d host=%s", worker, pid, self._name)
                self._job.feed(Started(worker, pid))
            case wire.ProcessNotStarted(worker=worker, why=why) if worker in self._there:
                self._there.discard(worker)
                self._job.feed(NotStarted(worker, why))
            case wire.ProcessSaid(worker=worker, message=said) if worker in self._there:
                self._job.feed(Received(worker, said))
            case wire.ProcessSilent(worker=worker, why=why) if worker in self._there:
                self._job.feed(LinkLost(worker, why))
            case wire.ProcessExited(worker=worker) as end if worker in self._there:
                self._there.discard(worker)
                self._seen.pop(worker, None)
                words = None if end.words is None else LastLines(*end.words)
                self._job.exited(worker, end.code, end.signals, end.updates, words)
            case wire.Seen(vitals=vitals):
                now = asyncio.get_running_loop().time()
                self._seen = {vital.worker: _observation(vital, now) for vital in vitals}


def _observation(vital: wire.Vital, now: float) -> Observation:
    # The clocks of two hosts are unrelated: only the age of a heartbeat can be transferred.
    beat = None if vital.phase is None else Beat(Phase(vital.phase), vital.updates, now - vital.age)
    return Observation(vital.worker, False, beat, vital.state, vital.used)
