"""Where the attempts of jobs are: on which host the supervisor is, which others it may use, and where the files are.

A host that has files of its own gets those that an attempt needs before it begins, and sends what is written there.
Only hosts on which the newest attempt was placed are listened to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import MACHINE
from edt_sdk.schemas.wire.control import Launch, ProcessIdentity, encode
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import open_regular
from edt_server.files.job_trees import Digests, JobTree, is_text
from edt_server.fleet import intake
from edt_server.fleet.connection import Collecting, HostConnection, HostLost
from edt_server.system.private_files import write_private

log = logging.getLogger(__name__)

_STORE_AWAY = 1.0


class _Send(Protocol):
    def __call__(self, host: HostConnection, message: wire.ToHost, *data: bytes) -> None: ...


@dataclass(slots=True)
class _Placed:
    """Where an attempt of a job is: its orders, without the key in them, and the hosts that may have outposts of it."""

    orders: Launch
    tree: JobTree
    members: set[str] = field(default_factory=set)

    @property
    def home(self) -> str:
        """The host of its supervisor."""
        return self.orders.host

    @property
    def hosts(self) -> set[str]:
        """All hosts that may have processes of it."""
        return {self.home, *self.members}

    @property
    def attempt(self) -> tuple[str, int]:
        """The job and the number of the attempt."""
        return self.orders.job_id, self.orders.attempt


class PlacedAttempts:
    """The newest attempt of each job that has one, on these `hosts`.

    Messages go out by `send`. `together` gets the hosts of an attempt when one is added or removed. Data sets of at
    most `dataset_bytes` are sent to hosts.
    """

    def __init__(
        self,
        hosts: Mapping[str, HostConnection],
        send: _Send,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        together: Callable[[Collection[str]], None],
        dataset_bytes: int,
    ) -> None:
        self._hosts = hosts
        self._send = send
        self._spawn = spawn
        self._together = together
        self._dataset_bytes = dataset_bytes
        self._placed: dict[str, _Placed] = {}
        self._secrets: dict[str, Launch] = {}  # orders of supervisors that are being started, with their keys
        self._of_host: dict[str, dict[str, _Placed]] = {}  # by the host and the job
        self._complete: set[tuple[str, int]] = set()
        self._digests = Digests()

    # --- what supervision asks for ------------------------------------------------------------------------------------

    def adopt(self, orders: Launch) -> None:
        """Know where an attempt is, from the orders it was started with."""
        paths = JobPaths(Path(orders.data_dir), orders.owner, orders.job_id)
        before = self._placed.get(orders.job_id)
        placed = self._placed[orders.job_id] = _Placed(msgspec.structs.replace(orders, secret_key=""), JobTree(paths))
        if before is not None:
            self._index(before, frozenset())
            self._together(before.hosts)
        self._index(placed, placed.hosts)

    async def start_supervisor(self, orders: Launch) -> ProcessIdentity:
        """Start the supervisor of an attempt on the host that the orders name.

        EdtError when it could not be started, or OSError with what its host lacks.
        HostLost when the host is gone, and with it the supervisor, if it was started.
        """
        self.adopt(orders)
        host = self._hosts.get(orders.host)
        if host is None or not host.connected:
            raise HostLost(f"Host {orders.host} is gone.")
        placed = self._placed[orders.job_id]
        if not host.record.shared:
            # The next server finds out from them where the job is. The key belongs to the host.
            await asyncio.to_thread(write_private, placed.tree.paths.launch_file, encode(placed.orders))
        future = host.starting[placed.attempt] = asyncio.get_running_loop().create_future()
        self._secrets[orders.job_id] = orders
        try:
            await self._prepare(host, placed)
            identity: ProcessIdentity = await future
            return identity
        finally:
            host.starting.pop(placed.attempt, None)
            self._secrets.pop(orders.job_id, None)

    def home(self, job: str) -> str | None:
        """Return the host of the job's supervisor, MACHINE for the server's own, None where it has none."""
        placed = self._placed.get(job)
        return None if placed is None else placed.home

    def away(self, job: str) -> bool:
        """Return whether the job's supervisor is on a host with files of its own, and cannot be seen from here."""
        placed = self._placed.get(job)
        return placed is not None and self._is_away(placed.home)

    def may_span(self, job: str, hosts: Collection[str]) -> None:
        """Let the job's supervisor have outposts on these hosts besides its own."""
        placed = self._placed.get(job)
        if placed is None:
            return
        members = {name for name in hosts if name != placed.home and name in self._hosts}
        if members - placed.members:
            placed.members |= members
            self._index(placed, placed.hosts)
            self._together(placed.hosts)
        for name in members:
            if self._hosts[name].connected:
                self._spawn(self._prepare(self._hosts[name], placed), f"edt prepare {job} {name}")

    async def supervisor_gone(self, job: str, attempt: int) -> str:
        """Wait until the supervisor of an attempt is gone. Return its host if it was lost with that, "" otherwise."""
        placed = self._placed.get(job)
        host = None if placed is None else self._hosts.get(placed.home)
        if host is None:
            return ""
        await host.ending((job, attempt)).wait()
        return host.name if (job, attempt) in host.killed else ""

    def complete(self, job: str) -> bool:
        """Return whether every file of the job is here, as of the last `collect`."""
        placed = self._placed.get(job)
        return placed is None or placed.attempt in self._complete or not any(map(self._is_away, placed.hosts))

    async def collect(self, job: str, *, end: bool) -> None:
        """Have every file of the job here. With `end` the attempt is over, and its processes end first.

        Hosts that are lost are left out.
        """
        placed = self._placed.get(job)
        if placed is not None:
            hosts = [self._hosts[name] for name in placed.hosts & self._hosts.keys()]
            # Those that share the files have nothing to send, but may have processes that end.
            wanted = [host for host in hosts if not host.record.shared or (end and placed.orders.spreads)]
            await asyncio.gather(*(self._collect(host, placed, end=end) for host in wanted))
            self._complete.add(placed.attempt)

    def forget(self, job: str) -> None:
        """Drop a job that is over, here and on all hosts."""
        placed = self._placed.pop(job, None)
        if placed is None:
            return
        self._index(placed, frozenset())
        self._together(placed.hosts)
        self._complete.discard(placed.attempt)
        for host in self._hosts.values():
            host.offered.pop(job, None)
            host.prepared = {each for each in host.prepared if each[0] != job}
            # A host that is away now says that it has them when it is back.
            if job in host.holds or (host.name in placed.hosts and not host.record.shared):
                host.holds.discard(job)
                self._send(host, wire.Forget(job=job, owner=placed.orders.owner))

    def on(self, name: str) -> list[str]:
        """Return the jobs that may have processes on a host, sorted."""
        return sorted(self._of_host[name]) if name in self._of_host else []

    def beside(self, name: str) -> set[str]:
        """Return a host and all others that may have processes of the same attempts."""
        # Asked with every heartbeat of every host.
        return {name}.union(*(placed.hosts for placed in self._of_host.get(name, {}).values()))

    def occupied(self) -> set[str]:
        """Return the hosts that may have processes of jobs."""
        return set(self._of_host)

    def _index(self, placed: _Placed, hosts: Collection[str]) -> None:
        """Find the attempt by these hosts, and by no others of it."""
        job = placed.orders.job_id
        for name in placed.hosts.difference(hosts):
            self._of_host[name].pop(job, None)
            if not self._of_host[name]:
                del self._of_host[name]
        for name in hosts:
            self._of_host.setdefault(name, {})[job] = placed

    # --- hosts that come and go ---------------------------------------------------------------------------------------

    def outdated(self, name: str, below: Collection[wire.Below]) -> tuple[wire.Below, ...]:
        """Return the attempts on a host that are over, or have their successors elsewhere."""
        return tuple(each for each in below if not self._belongs(name, each))

    def greeted(self, host: HostConnection, hello: wire.HostHello) -> None:
        """Give a host that is back what it may have missed."""
        outdated = self.outdated(host.name, hello.below)
        host.below = {(each.job, each.attempt) for each in hello.below if each.supervises and each not in outdated}
        host.prepared.clear()
        for placed in self._placed.values():
            if placed.home == host.name and placed.attempt not in host.below and placed.attempt not in host.starting:
                # As a rule with an agent that ended while this server was away.
                host.over(placed.attempt, lost=True)
            elif placed.attempt in host.starting or host.name in placed.members:
                self._spawn(self._prepare(host, placed), f"edt prepare {placed.attempt} {host.name}")
        host.holds = {job for job, _ in hello.jobs}
        for job, owner in hello.jobs:
            if job not in self._placed:
                # It was over while the host was away. What was sent from there since was refused.
                host.holds.discard(job)
                self._send(host, wire.Forget(job=job, owner=owner))
        for job, collecting in host.collecting.items():
            self._send(host, _collect(self._placed[job], end=collecting.end))
        if host.taking is None or host.taking.done():
            host.taking = self._spawn(self._take_parts(host), f"edt parts {host.name}")

    def lost(self, host: HostConnection) -> None:
        """Know that the supervisors on a host are gone."""
        host.prepared.clear()
        for placed in self._placed.values():
            if placed.home == host.name:
                host.over(placed.attempt, lost=True)

    def hear(self, host: HostConnection, peer: bytes, message: wire.ToServer, data: bytes) -> None:
        """Take what a host says of an attempt or its files."""
        match message:
            case wire.SupervisorStarted(job=job, attempt=attempt, identity=identity, why=why, errno=errno):
                waiting = host.starting.get((job, attempt))
                if identity is not None:
                    host.below.add((job, attempt))
                if waiting is not None and not waiting.done():
                    if identity is None:
                        wrong = f"Host {host.name} could not start the supervisor: {why}"
                        waiting.set_exception(OSError(errno, wrong) if errno else EdtError(wrong, job=job))
                    else:
                        waiting.set_result(identity)
            case wire.SupervisorEnded(job=job, attempt=attempt):
                host.over((job, attempt))
            case wire.FilePart() | wire.Gone():
                host.parts.put_nowait((peer, message, data))
            case wire.Want():
                self._spawn(self._give(host, message), f"edt give {host.name}")
            case wire.FilesCollected(job=job) if job in host.collecting:
                if not host.collecting[job].over.done():
                    host.collecting[job].over.set_result(None)
            case wire.Compare(job=job, end=end) if job in self._placed:
                self._spawn(self._compare(host, self._placed[job], end=end), f"edt compare {job}")

    def _belongs(self, name: str, below: wire.Below) -> bool:
        placed = self._placed.get(below.job)
        if placed is None or placed.attempt != (below.job, below.attempt):
            return False
        return placed.home == name or not below.supervises

    def _is_away(self, name: str) -> bool:
        return name != MACHINE and (name not in self._hosts or not self._hosts[name].record.shared)

    # --- files --------------------------------------------------------------------------------------------------------

    async def _prepare(self, host: HostConnection, placed: _Placed) -> None:
        """Give a host the orders of an attempt, unless it has them, and offer the files that it needs."""
        if placed.attempt in host.prepared:
            return
        host.prepared.add(placed.attempt)
        supervises = placed.home == host.name
        # Only the supervisor gets its key.
        orders = self._secrets.get(placed.orders.job_id, placed.orders) if supervises else placed.orders
        files: tuple[wire.JobFile, ...] = ()
        refused = ""
        if not host.record.shared:
            host.holds.add(orders.job_id)
            try:
                files = await asyncio.to_thread(self._needed, placed, supervises)
            except Unprocessable as wrong:
                refused = str(wrong)
            host.offered[orders.job_id] = frozenset(each.path for each in files)
        if self._placed.get(orders.job_id) is placed:
            self._send(host, wire.Prepare(launch=orders, supervises=supervises, files=files, refused=refused))

    def _needed(self, placed: _Placed, supervises: bool) -> tuple[wire.JobFile, ...]:
        """Return the files of a job that a host needs, and the others that its supervisor's host may know of."""
        dataset = self._dataset(placed)
        tree, orders, root = placed.tree, placed.orders, placed.tree.paths.data_dir
        found = [path for path, _ in tree.files()]
        if supervises:
            with contextlib.suppress(FileNotFoundError):
                requested = tree.paths.resume_from.read_text(encoding="utf-8").partition("\n")[0]
                needed = tree.needed(requested.removesuffix(".ckpt"))
                return self._entries(tree, found, needed) + dataset
            return self._entries(tree, found, tree.needed()) + dataset
        # Members have the driver's objects in one file, which the supervisor sends, and run in the folder of the code.
        code = tree.paths.submitted
        wanted = [path for path in found if (root / path).is_relative_to(code) or str(root / path) == orders.warm_start]
        return self._entries(tree, wanted, frozenset(wanted)) + dataset

    def _dataset(self, placed: _Placed) -> tuple[wire.JobFile, ...]:
        """Return the files of the catalogue's copy of the job's data set, as they are called on a host.

        Unprocessable when it is too large to be sent.
        """
        if not placed.orders.dataset_dir:
            return ()
        root, paths = Path(placed.orders.dataset_dir), placed.tree.paths
        found = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        size = sum(path.stat().st_size for path in found)
        if size > self._dataset_bytes:
            raise Unprocessable(
                f"The server's copy of the data set {placed.orders.spec.dataset} has {size:,} bytes, and at most "
                f"{self._dataset_bytes:,} are sent to a host.",
                hint="Put it into the data folder of the server and of each host (edt host join --data DIR), and "
                "register it there without a copy. Or the administrator raises c.EdtApp.host_dataset_bytes.",
            )
        there = paths.dataset.relative_to(paths.data_dir)
        made = [self._digests.entry(root, str(path.relative_to(root)), root) for path in found if is_text(str(path))]
        entries = tuple(msgspec.structs.replace(each, path=f"{there}/{each.path}") for each in made if each is not None)
        if len(entries) < len(found):
            raise Unprocessable(
                f"A file of the data set {placed.orders.spec.dataset} cannot be sent: it cannot be read, or its name "
                "is not in UTF-8.",
                hint="Register the data set again.",
            )
        return entries

    def _entries(self, tree: JobTree, found: list[str], needed: frozenset[str]) -> tuple[wire.JobFile, ...]:
        root = tree.paths.data_dir
        made = [self._digests.entry(root, each, tree.within(root / each), needed=each in needed) for each in found]
        return tuple(each for each in made if each is not None)

    async def _give(self, host: HostConnection, want: wire.Want) -> None:
        """Answer a Want."""
        placed = self._placed.get(want.job)
        if placed is None or want.path not in host.offered.get(want.job, ()):
            self._send(host, wire.Chunk(job=want.job, path=want.path, offset=want.offset, lost="It was not offered."))
            return
        try:
            data = await asyncio.to_thread(_read, placed, want)
        except (EdtError, OSError) as wrong:
            self._send(host, wire.Chunk(job=want.job, path=want.path, offset=want.offset, lost=str(wrong)))
        else:
            self._send(host, wire.Chunk(job=want.job, path=want.path, offset=want.offset), data)

    async def _take_parts(self, host: HostConnection) -> None:
        """Write what the host sends of files, and answer once it is on the disk.

        A part of a former connection is left out: the host sends it again.
        """
        while True:
            received = [await host.parts.get()]
            while not host.parts.empty():
                received.append(host.parts.get_nowait())
            peer = host.peer
            batch = [(self._sender(host, part), part, data) for sent_by, part, data in received if sent_by == peer]
            while batch and host.peer == peer:
                try:
                    answers = await asyncio.to_thread(intake.take, batch)
                except OSError as wrong:
                    # No answer, so the host keeps the bytes. It goes on by itself when there is room.
                    log.error("files of host %s cannot be written: %s", host.name, wrong)
                    await asyncio.sleep(_STORE_AWAY)
                    continue
                for answer in answers if host.peer == peer else ():
                    self._send(host, answer)
                break

    def _sender(self, host: HostConnection, part: wire.FilePart | wire.Gone) -> intake.Sender:
        placed = self._placed.get(part.job)
        if placed is None:
            return intake.Sender(host.name, refused="The job is over.")
        if placed.orders.attempt != part.attempt:
            why = f"Attempt {placed.orders.attempt} has taken the place of attempt {part.attempt}."
            return intake.Sender(host.name, refused=why)
        if host.name not in placed.hosts:
            return intake.Sender(host.name, refused="The job has no slot on this host.")
        engine = placed.orders.spec.framework == Framework.EDT
        return intake.Sender(host.name, placed.tree, placed.home == host.name, engine)

    async def _collect(self, host: HostConnection, placed: _Placed, *, end: bool) -> None:
        if not host.record.up:
            return
        job = placed.orders.job_id
        collecting = host.collecting[job] = Collecting(asyncio.get_running_loop().create_future(), end)
        # One that is not connected now is asked when it is back.
        self._send(host, _collect(placed, end=end))
        try:
            await collecting.over
        except HostLost as lost:
            log.warning("%s job=%s", lost, job)
        finally:
            host.collecting.pop(job, None)

    async def _compare(self, host: HostConnection, placed: _Placed, *, end: bool) -> None:
        def entries() -> tuple[wire.JobFile, ...]:
            found = [path for path, _ in placed.tree.files()]
            return self._entries(placed.tree, found, frozenset(found))

        files = await asyncio.to_thread(entries)
        self._send(host, msgspec.structs.replace(_collect(placed, end=end), files=files))


def _collect(placed: _Placed, *, end: bool) -> wire.Collect:
    orders = placed.orders
    return wire.Collect(job=orders.job_id, owner=orders.owner, attempt=orders.attempt, end=end)


def _read(placed: _Placed, want: wire.Want) -> bytes:
    place, of_host = placed.tree.checked(want.path), placed.tree.paths.dataset
    within = placed.tree.within(place)
    if place.is_relative_to(of_host):
        within = Path(placed.orders.dataset_dir)
        place = within / place.relative_to(of_host)
    with open_regular(place, within=within) as file:
        file.seek(want.offset)
        return file.read(wire.PART)
