"""Run a job's outpost: the process below a host's agent that forks the job's workers there, for a supervisor elsewhere.

What the supervisor does for workers of its own host is done here with the same parts: the job's own zygote, redirected
streams, the link, heartbeats. It decides nothing and carries out what it is sent. Without the supervisor it closes the
links, so that the workers write their checkpoints, and exits with the last of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import SAME, Launch, Slot
from edt_sdk.schemas.wire.link import Begin, Generation
from edt_sdk.schemas.wire.task import Task
from edt_server.agent.below import MAX_LINE
from edt_server.supervisor.link_server import LinkServer
from edt_server.supervisor.processes.children import Children
from edt_server.supervisor.processes.forker import Forker
from edt_server.supervisor.processes.liveness import newest_updates, observe, pulse_file
from edt_server.supervisor.processes.memory import host_mark, memory_folder, remove_memory_folder
from edt_server.supervisor.processes.orphans import adopt_orphans, reap_orphans
from edt_server.supervisor.processes.predecessors import LOCK, Predecessors
from edt_server.supervisor.processes.sandbox import JobSandbox
from edt_server.supervisor.processes.zygote import Zygote, ZygoteProcess
from edt_server.supervisor.programs.environment import JobEnvironment, base_environment
from edt_server.supervisor.programs.programs import program_of, stream_name, zygote_environment_of
from edt_server.supervisor.state_machines.wording import stream_tail
from edt_server.supervisor.stream_index import StreamIndex
from edt_server.system.processes import ended, visible
from edt_server.system.steady_clock import SteadyClock

log = logging.getLogger(__name__)

# Workers that lost their supervisor finish an update and write a checkpoint.
LAST_PATIENCE = 60.0
_POLL = 0.05
SAMPLE_INTERVAL = 0.1


class Outpost:
    """The outpost of a job on a host. `writer` is the writing end of the connection to the agent.

    `zygote` was forked with it, None where it starts its own.
    """

    def __init__(
        self,
        orders: Launch,
        order: wire.StartOutpost,
        host: str,
        umask: int,
        writer: asyncio.StreamWriter,
        zygote: Zygote | None = None,
    ) -> None:
        self._runtime_dir = Path(orders.runtime_dir)
        self._supervisor = order.supervisor
        self._umask = umask
        self._patience = max(orders.hang_timeout, LAST_PATIENCE)
        self._lease = 2.5 * orders.host_silent  # as that of a host, which the supervisor's is
        memory_dir = memory_folder(orders.job_id, host=host_mark(host, self._runtime_dir.parent))
        link = self._runtime_dir / f"link.{order.number}"
        self._sandbox = None if orders.isolation.kind == SAME else JobSandbox(orders, memory_dir, host)
        self._job = JobEnvironment(orders, host, link, base_environment(os.environ, orders.isolation), memory_dir)
        paths = self._job.paths
        # Where hosts have files of their own, the supervisor does not see the streams of the workers here.
        index = paths.stream_index_of(host)
        spreads = orders.spreads
        self._index = StreamIndex(index, paths.streams_dir, {}, within=paths.result_dir) if spreads else None
        self._clock = SteadyClock()
        self._predecessors = Predecessors(self._runtime_dir / LOCK, 0.0)
        environment = zygote_environment_of(orders)
        with contextlib.suppress(OSError):  # reported when the zygote is needed
            zygote = zygote or ZygoteProcess(orders.interpreter, environment)
        streams = self._job.paths.streams_dir
        self._running: dict[int, int] = {}
        forker = Forker(
            orders.interpreter,
            environment,
            streams,
            zygote,
            needed=lambda: bool(self._running),
            sandbox=self._sandbox,
        )
        self._children = Children(forker, self._exited, self._before_reap, self._sandbox)
        self._link = LinkServer(
            link,
            leader=self._children.leader,
            on_message=lambda worker, message: self._say(wire.ProcessSaid(worker=worker, message=message)),
            on_lost=lambda worker, why: self._say(wire.ProcessSilent(worker=worker, why=why)),
        )
        self._writer = writer
        self._heard = time.monotonic()
        self._dismissed = asyncio.Event()
        self._orphaned = asyncio.Event()
        self._generation: Generation | None = None

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Serve the supervisor until it needs nothing more, or is gone."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._dismissed.set)
        # The agent knows that the attempt is over, also where its supervisor cannot be seen.
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._orphaned.set)
        # The supervisor shares the lock before it starts anything here. Only another attempt holds it alone (decision
        # 010).
        if not self._predecessors.join():
            log.error("another attempt of the job has begun")
            self._children.kill_all()
            return
        await self._link.start()
        ends: dict[str, asyncio.Task[object]] = {
            "told": asyncio.create_task(self._listen(reader)),
            "dismissed": asyncio.create_task(self._dismissed.wait()),
            "orphaned": asyncio.create_task(self._supervisor_gone()),
            "told that it is": asyncio.create_task(self._orphaned.wait()),
            "sampler": asyncio.create_task(self._sample()),
        }
        try:
            await asyncio.wait(ends.values(), return_when=asyncio.FIRST_COMPLETED)
            for name, task in ends.items():
                if task.done() and task.exception() is not None:
                    log.error("outpost: %s", name, exc_info=task.exception())
            if not ends["told"].done() and not ends["dismissed"].done():
                await self._wait_for_workers()
        finally:
            for task in ends.values():
                task.cancel()
            await asyncio.gather(*ends.values(), return_exceptions=True)
            self._children.kill_all()
            if self._sandbox is not None:
                await self._children.end_orphans()
                self._sandbox.close()
            # Only /proc shows when they are gone.
            while reap_orphans((), kill=True):  # noqa: ASYNC110
                await asyncio.sleep(_POLL)
            with contextlib.suppress(ConnectionError):
                await self._link.stop()
                self._writer.close()
            self._predecessors.close()

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while (line := await reader.readline()).endswith(b"\n"):
            self._heard = time.monotonic()
            match wire.decode_to_agent(line):
                case wire.StartProcess(worker=worker, slot=slot, task=task):
                    self._start(worker, slot, task)
                case wire.EndProcess(worker=worker, patience=patience):
                    self._children.end(worker, patience)
                case wire.KillProcess(worker=worker, patience=patience, stack=stack):
                    self._children.kill(worker, patience, stack=stack)
                case wire.TellProcess(worker=worker, message=message):
                    if isinstance(message, Begin):
                        # The supervisor's path, and this host may have another data folder.
                        payload = self._job.paths.payload(message.training)
                        message = msgspec.structs.replace(message, payload=str(payload))
                    elif isinstance(message, Generation):
                        self._generation = message
                    self._link.send(worker, message)
                case wire.LookAtWorkers(taking_part=taking_part):
                    self._say(wire.Seen(vitals=self._vitals(taking_part)))
                case wire.Farewell(over=over):
                    if over:
                        remove_memory_folder(self._job.memory_dir)
                    return

    def _say(self, message: wire.FromOutpost) -> None:
        self._writer.write(wire.encode(message) + b"\n")

    def _start(self, worker: int, slot: Slot, task: Task | None) -> None:
        def started(pid: int) -> None:
            self._running[worker] = pid
            self._say(wire.ProcessStarted(worker=worker, pid=pid))

        def failed(why: str) -> None:
            self._say(wire.ProcessNotStarted(worker=worker, why=why))

        try:
            program = program_of(self._job, worker, slot, self._umask, self._predecessors.descriptor, task=task)
            # Without this process no process could end it, and its supervisor counts it as lost.
            program = replace(program, bound=True)
        except OSError as wrong:
            failed(str(wrong))
            return
        self._children.start(worker, program, started, failed)

    async def _sample(self) -> None:
        while True:
            if self._index is not None:
                self._index.sample(self._clock.now())
            await asyncio.sleep(SAMPLE_INTERVAL)

    async def _before_reap(self, worker: int) -> None:
        await self._link.drained(worker)
        if self._job.orders.spec.framework == Framework.TORCHRUN:
            await self._children.end_orphans()

    def _exited(self, worker: int, code: int, signals: tuple[int, ...]) -> None:
        self._children.reap_orphans()
        self._link.forget(worker)
        if self._index is not None:
            self._index.sample(self._clock.now())
        updates = newest_updates({worker, *self._running}, self._runtime_dir)
        pulse_file(self._runtime_dir, worker).unlink(missing_ok=True)
        self._running.pop(worker, None)
        words = stream_tail(self._job.paths.streams_dir, stream_name(worker)) if self._index is not None else None
        said = None if words is None else (words.stream, words.text)
        self._say(wire.ProcessExited(worker=worker, code=code, signals=signals, updates=updates, words=said))

    def _vitals(self, taking_part: tuple[int, ...]) -> tuple[wire.Vital, ...]:
        now = time.monotonic()
        return tuple(
            wire.Vital(
                worker=seen.worker,
                phase=None if seen.beat is None else int(seen.beat.phase),
                updates=0 if seen.beat is None else seen.beat.updates,
                age=0.0 if seen.beat is None else now - seen.beat.since,
                state=seen.state,
                used=seen.cpu,
            )
            for seen in observe(self._running, taking_part, self._runtime_dir, now)
        )

    # --- without a supervisor -----------------------------------------------------------------------------------------

    async def _supervisor_gone(self) -> None:
        # A pidfd shows the end at once. Where the process cannot be seen, only the lease is left (decision 015).
        if visible(self._supervisor):
            await ended(self._supervisor)
            return
        # The supervisor sends two messages a second.
        while time.monotonic() - self._heard < self._lease:  # noqa: ASYNC110
            await asyncio.sleep(1.0)

    def _end_waits(self) -> None:
        """Tell the workers here to wait for none on other hosts: with the supervisor's host those may be cut off."""
        if self._generation is None or self._index is None:
            return
        gone = tuple(each.worker for each in self._generation.members if each.worker not in self._running)
        for worker in self._running if gone else ():
            self._link.send(worker, msgspec.structs.replace(self._generation, gone=gone))

    async def _wait_for_workers(self) -> None:
        """Close the links, so that the workers notice that no supervisor is left, and wait until they have exited."""
        log.info("the supervisor is gone")
        self._end_waits()
        await self._link.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while self._running and not self._dismissed.is_set():  # noqa: ASYNC110  # several things end it
                    await asyncio.sleep(_POLL)


def main(argv: list[str]) -> int:
    """Run an outpost from its `StartOutpost` and the `Launch` as JSON, and its host. stdin is a socket to the agent.

    Before all that, `--zygote` gives it the zygote that was forked with it.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s outpost %(levelname)s %(message)s")
    umask = os.umask(0o077)
    adopt_orphans()
    zygote = Zygote.inherited(argv)
    order = msgspec.json.decode(argv[0], type=wire.StartOutpost)
    orders = msgspec.json.decode(argv[1], type=Launch)
    connection = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    try:
        asyncio.run(_run(orders, order, argv[2], umask, connection, zygote))
    except (EdtError, OSError) as wrong:
        log.error("%s", wrong)
        return 1
    return 0


async def _run(
    orders: Launch,
    order: wire.StartOutpost,
    host: str,
    umask: int,
    connection: socket.socket,
    zygote: Zygote | None,
) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE)
    await Outpost(orders, order, host, umask, writer, zygote).run(reader)
