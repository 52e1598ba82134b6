"""The supervisor's process: joins the pure machine (`membership`) with processes, link, server and files.

Events of all four are put through the machine one at a time, on one event loop; what it answers is done at once and in
order. No rule about the job is written here. However this process ends by itself, none of the job's is left behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path

import msgspec

from edt_sdk.schemas.control import Ack, Allocation, Launch, Refused, Slot, StopJob, ToSupervisor
from edt_sdk.schemas.errors import EdtError
from edt_server.processes import identify
from edt_server.supervisor.children import Children, Program
from edt_server.supervisor.environment import Surroundings, driver_environment, make_folders, worker_environment
from edt_server.supervisor.events import (
    DRIVER,
    Acknowledged,
    Allocated,
    End,
    Event,
    Exited,
    Finish,
    Instruction,
    LinkLost,
    Note,
    NotStarted,
    Publish,
    Refuse,
    Said,
    Send,
    StartDriver,
    Started,
    StartWorker,
    Stop,
    Tell,
)
from edt_server.supervisor.journal import Journal
from edt_server.supervisor.link_server import LinkServer
from edt_server.supervisor.membership import Membership
from edt_server.supervisor.orphans import adopt_orphans, reap_orphans
from edt_server.supervisor.reporter import Reporter
from edt_server.supervisor.stream_index import StreamIndex
from edt_server.supervisor.tails import last_words

log = logging.getLogger(__name__)

SAMPLE_INTERVAL = 0.1
# Without a server the last reports stay in the journal, where the next one reads them: no need to wait for it for ever.
DELIVERY_PATIENCE = 60.0
ORPHAN_PATIENCE = 3.0


class Supervisor:
    """One job.

    Args:
        orders: what to supervise.
        umask: for the job's processes; the supervisor's own files are for this account alone.
    """

    def __init__(self, orders: Launch, *, umask: int) -> None:
        self._orders = orders
        self._umask = umask
        identity = identify(os.getpid())
        link = Path(orders.runtime_dir) / "link.sock"
        self._job = Surroundings(orders, identity.host, link, dict(os.environ))
        self._paths = paths = self._job.paths
        paths.streams_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        elog = paths.driver_log_dir(identity.host) / "stdout"
        # The name under which `edt_server.logs` looks the file up.
        others = {f"log/{elog.parent.name}/stdout": elog}
        self._index = StreamIndex(paths.stream_index, paths.streams_dir, others)
        self._journal = Journal(paths.journal)
        self._machine = Membership(interpreter=orders.interpreter, reports=self._journal.last)
        self._children = Children(self._exited, self._before_reap)
        self._link = LinkServer(
            link,
            leader=self._children.leader,
            on_message=lambda key, message: self._feed(Said(key, message)),
            on_lost=lambda key, why: self._feed(LinkLost(key, why)),
        )
        self._reporter = Reporter(
            orders,
            identity,
            self._journal,
            holding=lambda: self._machine.holding,
            on_message=self._server_said,
        )
        self._events: deque[Event] = deque()
        self._feeding = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refused = asyncio.Event()

    async def run(self) -> None:
        """Supervise until the job is over and reported."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_end, number)
        tasks = [
            asyncio.create_task(self._reporter.run(), name="reporter"),
            asyncio.create_task(self._sample(), name="sampler"),
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
            self._children.kill_all()
            await self._end_orphans()
            await self._link.stop()
            self._index.close()
            self._journal.close()

    async def _prepare(self) -> None:
        try:
            make_folders(self._job)
            await self._link.start()
        except (EdtError, OSError) as wrong:
            self._feed(NotStarted(DRIVER, f"The job's folders could not be prepared: {wrong}"))

    async def _finish(self) -> None:
        await self._over
        taken = [asyncio.create_task(self._reporter.delivered()), asyncio.create_task(self._refused.wait())]
        done, waiting = await asyncio.wait(taken, timeout=DELIVERY_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if not done:
            log.warning("no server took the last reports; they stay in %s", self._paths.journal)

    async def _sample(self) -> None:
        while self._paths.job_dir.exists():
            self._index.sample(time.time())
            await asyncio.sleep(SAMPLE_INTERVAL)
        # Somebody removed the job: no server will ever ask for it, and its results have no place.
        log.error("the job's folder is gone")
        self._refuse("The job's folder is gone.")
        await asyncio.Event().wait()

    async def _end_orphans(self) -> None:
        deadline = time.monotonic() + ORPHAN_PATIENCE
        # Only /proc tells when they are gone.
        while reap_orphans(self._children.pids, kill=True) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    # --- events in ----------------------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        self._events.append(event)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._events:
                for instruction in self._machine.apply(self._events.popleft()):
                    self._follow(instruction)
        except Exception as wrong:
            # A defect of ours must end the job, not leave it running without anybody who looks after it.
            if not self._over.done():
                self._over.set_exception(wrong)
            raise
        finally:
            self._feeding = False

    def _server_said(self, message: ToSupervisor) -> None:
        match message:
            case Allocation(version=version, slots=slots):
                log.info("allocation %d: slots %s", version, [slot.id for slot in slots])
                self._feed(Allocated(version, slots))
            case Ack(number=number):
                self._feed(Acknowledged(number))
            case StopJob(why=why):
                self._feed(Stop(why))
            case Refused(why=why):
                log.error("refused by the server: %s", why)
                self._refuse(why)

    def _refuse(self, why: str) -> None:
        if not self._refused.is_set():
            self._refused.set()
            self._feed(Refuse(why))

    def _told_to_end(self, number: signal.Signals) -> None:
        self._feed(Stop(f"The job's supervisor was told to end ({number.name})."))

    async def _before_reap(self, key: int) -> None:
        await self._link.drained(key)
        self._index.sample(time.time())

    def _exited(self, key: int, code: int, signals: tuple[int, ...]) -> None:
        reap_orphans(self._children.pids, kill=not self._children.pids)
        words = last_words(self._paths.streams_dir, _stream_name(key))
        self._feed(Exited(key, code, signals, words))

    # --- instructions out ---------------------------------------------------------------------------------------------

    def _follow(self, instruction: Instruction) -> None:
        match instruction:
            case StartDriver():
                self._start(DRIVER, None)
            case StartWorker(worker=worker, slot=slot):
                self._start(worker, slot)
            case End(process=process, patience=patience):
                self._children.end(process, patience)
            case Tell(process=process, message=message):
                if not self._link.send(process, message):
                    log.warning("%s not sent, process=%d has no link", type(message).__name__, process)
            case Send(number=number, report=report):
                log.info("report %d: %s", number, report)
                self._reporter.report(number, report)
            case Publish(progress=progress):
                self._reporter.progress(progress)
            case Note(text=text):
                log.warning("%s", text)
            case Finish():
                if not self._over.done():
                    self._over.set_result(None)

    def _start(self, key: int, slot: Slot | None) -> None:
        job, host = self._job, self._job.host
        if slot is None:
            module, environment, log_dir = "driver", driver_environment(job), self._paths.driver_log_dir(host)
        else:
            module, environment = "worker", worker_environment(job, key, slot)
            log_dir = self._paths.worker_log_dir(key, host)
        program = Program(
            arguments=(self._orders.interpreter, "-u", "-m", f"edt_sdk.training.{module}"),
            directory=job.code_dir,
            environment=environment,
            streams=self._paths.streams_dir / _stream_name(key),
            umask=self._umask,
        )
        try:
            log_dir.mkdir(parents=True, exist_ok=True)
            pid = self._children.start(key, program)
        except (EdtError, OSError) as wrong:
            self._feed(NotStarted(key, str(wrong)))
            return
        log.info("process started, process=%d pid=%d slot=%s", key, pid, slot.id if slot else None)
        self._feed(Started(key, pid))


def main(argv: list[str]) -> int:
    """Run a supervisor from its orders; the exit code is 0 when the job is over, however it ended."""
    if len(argv) != 2:
        print("usage: python -m edt_server.supervisor <launch.json>", file=sys.stderr)
        return 2
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    orders = msgspec.json.decode(Path(argv[1]).read_bytes(), type=Launch)
    umask = os.umask(0o077)
    adopt_orphans()
    asyncio.run(_run(orders, umask))
    return 0


async def _run(orders: Launch, umask: int) -> None:
    await Supervisor(orders, umask=umask).run()


def _stream_name(key: int) -> str:
    return "driver" if key == DRIVER else f"worker-{key}"
