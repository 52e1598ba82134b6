"""The attempts of jobs whose orders a host has: their files come and go, and their processes begin and end, with these.

On a host with files of its own an attempt begins when its files are here, and is over for the host when the server has
what it wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.agent.below import END_PATIENCE, ProcessesBelow
from edt_server.agent.files import HostFiles
from edt_server.agent.orders import localized
from edt_server.agent.spool import Spool
from edt_server.agent.uplink import Uplink
from edt_server.files import job_trees
from edt_server.files.job_trees import JobTree
from edt_server.messaging import ConversationLost, read_struct
from edt_server.supervisor.processes.predecessors import LOCK, Predecessors
from edt_server.system.private_files import make_private_dir, write_private

log = logging.getLogger(__name__)

# Processes of an attempt that is over finish an update and write what only they have.
LAST_PATIENCE = 60.0
_NO_ROOM = 1.0


@dataclass(slots=True, eq=False)
class JobHere:
    """An attempt whose orders are here. `home` is its supervisor's host, and `ready` is set when its files are here."""

    launch: Launch
    home: str
    tree: JobTree
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    spool: Spool | None = None
    sending: asyncio.Task[None] | None = None

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        return self.launch.attempt

    async def stop_sending(self) -> None:
        """Send no more of its files."""
        if self.sending is not None:
            self.sending.cancel()
            await asyncio.wait({self.sending})


class JobsHere:
    """The jobs of a host. `interface` returns the address that its workers listen at."""

    def __init__(
        self, orders: wire.AgentOrders, uplink: Uplink, below: ProcessesBelow, interface: Callable[[], str]
    ) -> None:
        self._orders = orders
        self._uplink = uplink
        self._below = below
        self._interface = interface
        self._data_dir = Path(orders.data_dir)
        self._files = None if orders.shared else HostFiles(self._data_dir, orders.cache_bytes)
        self._here: dict[str, JobHere] = {}
        self._chunks: dict[tuple[str, str, int], asyncio.Future[bytes]] = {}
        self._room = asyncio.Semaphore(wire.WINDOW)
        self._ordered = asyncio.Event()
        self._preparing: dict[str, wire.Prepare] = {}
        # A job is prepared or forgotten, and one order at a time: what one writes, the other removes.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def kept(self) -> tuple[tuple[str, str], ...]:
        """Return the jobs with files of their own here, and the owner of each."""
        if self._files is None:
            return ()
        owners = {path.name: path.parts[-3] for path in (self._data_dir / "results").glob("*/batchworkdir/*")}
        there = [path.name for path in (self._data_dir / "jobs").glob("*")]
        return tuple((job, owners.get(job, "")) for job in {*there, *owners})

    async def prepare(self, order: wire.Prepare) -> None:
        """Have the orders and the files of an attempt here, and start its supervisor if it belongs here.

        A supervisor waits for its outposts here, so what cannot be prepared for want of room is tried again. The server
        decides where a supervisor is tried again. A newer order takes the place of this one.
        """
        job = order.launch.job_id
        self._preparing[job] = order
        while self._preparing.get(job) is order:
            async with self._lock(job):
                done = self._preparing.get(job) is not order or await self._prepared(order)
                if done and self._preparing.get(job) is order:
                    del self._preparing[job]
            if not done:
                await asyncio.sleep(_NO_ROOM)

    async def _prepared(self, order: wire.Prepare) -> bool:
        """Prepare an attempt once. Return False when it is to be tried again."""
        job, attempt = order.launch.job_id, order.launch.attempt
        before = self._here.get(job)
        if before is not None and before.attempt >= attempt:
            # The server has not heard the answer. What is still under way here goes on.
            if order.supervises and before.ready.is_set():
                self._tell_supervisor(job, attempt)
            return True
        try:
            await self.end_attempt(job, attempt - 1)
            if before is not None:
                await before.stop_sending()
            launch = localized(order.launch, self._orders, self._interface())
            here = JobHere(launch, order.launch.host, JobTree(JobPaths(self._data_dir, launch.owner, job)))
            self._here[job] = here
            self._ordered.set()
            self._ordered = asyncio.Event()
            await self._begin(here, order)
            done = True
        except* (EdtError, OSError, ConversationLost) as wrong:
            errors = _leaves(wrong)
            number = next((each.errno or 0 for each in errors if isinstance(each, OSError)), 0)
            # After the connection the server asks again.
            done = order.supervises or not number or not self._uplink.connected.is_set()
            why = "; ".join(str(each) for each in errors)
            log.warning("job %s could not be prepared: %s", job, why)
            left = self._here.get(job)
            if left is not None and left.attempt == attempt and not left.ready.is_set():
                del self._here[job]
            if order.supervises and self._preparing.get(job) is order:
                failed = wire.SupervisorStarted(job=job, attempt=attempt, identity=None, why=why, errno=number)
                self._uplink.send(failed)
        return done

    async def _begin(self, here: JobHere, order: wire.Prepare) -> None:
        paths = here.tree.paths
        make_private_dir(paths.job_dir)
        make_private_dir(Path(here.launch.runtime_dir))

        async def files() -> None:
            if self._files is not None:
                await self._files.have(here.tree, order.files, lambda path, offset: self._fetch(order, path, offset))
                await self._send_files(here, order.files, supervises=order.supervises)

        await asyncio.gather(files(), self._below.templates.of_job(here.launch))
        if order.supervises or self._files is not None:
            write_private(paths.launch_file, msgspec.json.encode(here.launch))
        here.ready.set()
        if order.supervises:
            await self._below.start_supervisor(here.launch, paths)
            self._tell_supervisor(paths.job_id, here.attempt)

    def _tell_supervisor(self, job: str, attempt: int) -> None:
        identity = self._below.supervisor(job, attempt)
        if identity is None:
            self._uplink.send(wire.SupervisorEnded(job=job, attempt=attempt, code=0))
        else:
            self._uplink.send(wire.SupervisorStarted(job=job, attempt=attempt, identity=identity))

    async def of(self, job: str, attempt: int) -> JobHere:
        """Return the job here, once the orders of this attempt, or of a later one, have come and its files are here."""
        while (here := self._here.get(job)) is None or here.attempt < attempt:
            await self._ordered.wait()
        if here.attempt == attempt:
            await here.ready.wait()
        return here

    async def collect(self, order: wire.Collect) -> None:
        """Let the server have every file of an attempt, after the end of its processes if it is over."""
        job, attempt = order.job, order.attempt
        if order.end:
            await self.end_attempt(job, attempt, LAST_PATIENCE)
        here = self._here.get(job)
        if here is None and self._files is not None:
            # Of an agent before this one, which did not come to send everything.
            tree = JobTree(JobPaths(self._data_dir, order.owner, job))
            launch = read_struct(tree.paths.launch_file, Launch)
            if launch is not None and launch.attempt == attempt:
                if order.files is None:
                    self._uplink.send(wire.Compare(job=job, attempt=attempt, end=order.end))
                    return
                here = self._here[job] = JobHere(launch, launch.host, tree)
                await self._send_files(here, order.files, supervises=launch.host == self._orders.host)
                here.ready.set()
        if here is not None and here.spool is not None and here.attempt == attempt:
            await here.spool.flushed()
        self._uplink.send(wire.FilesCollected(job=job, attempt=attempt))

    async def flushed(self, patience: float) -> None:
        """Return when the server has all files of all jobs here, or after so many seconds."""
        spools = [here.spool for here in self._here.values() if here.spool is not None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, patience)):
                await asyncio.gather(*(spool.flushed() for spool in spools))

    async def end_attempt(self, job: str, attempt: int, patience: float = 0.0) -> None:
        """End what is left here of an attempt, or of an older one.

        Its workers have `patience` seconds to write what only they have. The server refuses what they write once their
        attempt has been replaced or their job is over: then they would only keep slots that are offered already.
        """
        await self._below.end_attempt(job, attempt, patience and patience + END_PATIENCE)
        here = self._here.get(job)
        if here is None or here.attempt > attempt:
            return
        # All processes of an attempt hold its lock. Those without a supervisor end by themselves.
        lock = Path(here.launch.runtime_dir) / LOCK
        if lock.exists():
            predecessors = Predecessors(lock, patience)
            try:
                await predecessors.gone()
            finally:
                predecessors.close()

    async def forget(self, job: str, owner: str) -> None:
        """Drop a job that is over, with all its files here."""
        self._preparing.pop(job, None)
        async with self._lock(job):
            here = self._here.get(job)
            if here is not None:
                await here.stop_sending()
                await self._below.end_outpost(job)
                # Processes of an attempt that was replaced would write into the folder that is removed.
                await self.end_attempt(job, here.attempt)
                self._here.pop(job, None)
            if self._files is not None:
                await asyncio.to_thread(self._files.remove, JobTree(JobPaths(self._data_dir, owner, job)))
                await asyncio.to_thread(self._files.trim)

    def _lock(self, job: str) -> asyncio.Lock:
        return self._locks.setdefault(job, asyncio.Lock())

    # --- files --------------------------------------------------------------------------------------------------------

    def given(self, chunk: wire.Chunk, data: bytes) -> None:
        """Take the bytes of a file that were asked for."""
        waiting = self._chunks.pop((chunk.job, chunk.path, chunk.offset), None)
        if waiting is None or waiting.done():
            return
        if chunk.lost:
            waiting.set_exception(EdtError(f"The server cannot give {chunk.path}: {chunk.lost}", job=chunk.job))
        else:
            waiting.set_result(data)

    def taken(self, answer: wire.Taken) -> None:
        """Take the server's answer to a part of a file."""
        here = self._here.get(answer.job)
        if here is not None and here.spool is not None and here.attempt == answer.attempt:
            here.spool.taken(answer)

    def disconnected(self) -> None:
        """The connection to the server is lost: what was asked for will not come, and what was sent may not have."""
        for waiting in self._chunks.values():
            if not waiting.done():
                waiting.set_exception(ConversationLost("the server is gone"))
        self._chunks.clear()
        for here in self._here.values():
            if here.spool is not None:
                here.spool.disconnected()

    async def put(self, job: str, put: wire.PutFile, content: bytes) -> wire.FilePut:
        """Write a part of a file that the job's supervisor gives, into the job's own folder."""
        tree = self._here[job].tree
        try:
            place = tree.checked(f"{tree.paths.job_dir.relative_to(self._data_dir)}/{put.name}")
            beside = job_trees.unfinished(place)
            write, fresh = job_trees.write_at, put.offset == 0
            await asyncio.to_thread(write, beside, tree.within(place), put.offset, content, 0o600, fresh=fresh)
            if put.last:
                os.replace(beside, place)
        except (EdtError, OSError) as wrong:
            return wire.FilePut(name=put.name, offset=put.offset, why=str(wrong))
        return wire.FilePut(name=put.name, offset=put.offset)

    async def _send_files(self, here: JobHere, known: tuple[wire.JobFile, ...], *, supervises: bool) -> None:
        """Send from now on what changes of the job's files, of which the server has those that are `known`."""
        assert self._files is not None
        here.spool = Spool(
            tree=here.tree,
            attempt=here.attempt,
            supervises=supervises,
            engine=here.launch.spec.framework == Framework.EDT,
            send=self._uplink.send,
            room=self._room,
            connected=self._uplink.connected,
        )
        await asyncio.to_thread(here.spool.compare, known, self._files.digests)
        here.sending = asyncio.create_task(here.spool.run(), name=f"spool {here.launch.job_id}")

    async def _fetch(self, order: wire.Prepare, path: str, offset: int) -> bytes:
        job = order.launch.job_id
        if self._preparing.get(job) is not order:
            raise EdtError("The job is over, or other orders have come.", job=job)
        future = self._chunks[job, path, offset] = asyncio.get_running_loop().create_future()
        if not self._uplink.send(wire.Want(job=job, path=path, offset=offset)):
            self._chunks.pop((job, path, offset), None)
            raise ConversationLost("the server is gone")
        data: bytes = await future
        return data


def _leaves(group: BaseExceptionGroup[Exception]) -> list[BaseException]:
    """Return the errors in a group of groups."""
    found: list[BaseException] = []
    for each in group.exceptions:
        found += _leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return found
