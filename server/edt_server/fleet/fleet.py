"""The hosts of a server: which there are, what they are asked for, and when one is lost.

A host's agent dials in and says what runs below it. From then on the host is up: its slots are offered, and supervisors
and outposts are started there. While nothing comes from it the host is doubtful and then lost (`connection`). Its slots
are withdrawn then, and the jobs whose supervisor was there get another one. Whoever asks for something that needs the
host waits until there is an answer, or HostLost.

The server starts and stops no machine here, except the agents of this machine (`local_agents`). Nothing of a job is
decided here, and nothing of a job's files is known but where they are (`files.job_trees`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.schemas.errors import Conflict, EdtError, NotFound, Unprocessable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.hosts import HostToken, HostView
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import Launch, ProcessIdentity, encode
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import open_regular
from edt_server.files.job_trees import Digests, JobTree
from edt_server.fleet import intake
from edt_server.fleet.connection import BEAT, FENCE, SILENT, AgentChannel, HostConnection
from edt_server.fleet.local_agents import LocalAgents
from edt_server.fleet.registry import LOCAL, MACHINE_ITSELF, HostRecord, JoinToken, Registry, check_name
from edt_server.settings import Settings
from edt_server.system.kinds import kind_here
from edt_server.system.private_files import make_private_dir, write_private
from edt_server.system.processes import ended, identify, visible
from edt_server.system.slots import Host, find_host

log = logging.getLogger(__name__)

_LOOK = 0.5
_STORE_AWAY = 1.0
LOOPBACK = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "*", "[::]")
MACHINE = ""
"""The name under which orders know the server's own machine."""


class HostLost(EdtError):
    """The host is gone, and a request to it may not have been carried out."""


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
    def attempt(self) -> tuple[str, int]:
        """The job and the number of the attempt."""
        return self.orders.job_id, self.orders.attempt


class Fleet:
    """All hosts of a server besides, or in place of, its own machine.

    From `follow` on, `changed` gets the hosts whose slots are offered each time these change.
    """

    def __init__(self, settings: Settings, changed: Callable[[tuple[Host, ...]], Awaitable[None]]) -> None:
        self.addresses_dir = settings.control_dir / "hosts"
        """Where supervisors on this machine find the agents of hosts."""
        self._settings = settings
        self._changed = changed
        self._registry = Registry(settings.control_dir / "fleet")
        self._tokens: dict[str, JoinToken] = {}
        self._hosts: dict[str, HostConnection] = {}
        self._placed: dict[str, _Placed] = {}
        self._secrets: dict[str, Launch] = {}  # orders of supervisors that are being started, with their keys
        self._complete: set[tuple[str, int]] = set()
        self._digests = Digests()
        self._control: AgentChannel | None = None
        self._keys = ("", "")
        self._machine: Host | None = None
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reported: tuple[Host, ...] = ()
        self._following = False
        self._peers_due = False
        self._own: set[str] = set()
        self._kind_asked = False
        self._local = LocalAgents(settings, self.addresses_dir)
        self.stopped = False

    # --- its life -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Find the hosts that there were. Those that were up count as doubtful until they are heard, or lost."""
        make_private_dir(self.addresses_dir)
        local = await asyncio.to_thread(self._local.resources)
        for record in self._registry.hosts():
            if record.provider == LOCAL and record.name not in local:
                # The configuration names it no more: it ends when nothing runs there.
                record = msgspec.structs.replace(record, draining=True)
            self._hosts[record.name] = HostConnection(record, since=time.time())
        for path in self.addresses_dir.glob("*.json"):
            known = self._hosts.get(path.stem)
            if path.stem not in local and (known is None or known.record.provider == LOCAL):
                self._spawn(self._retire(path.stem), f"edt retire {path.stem}")
        for name, host in local.items():
            known = self._hosts.get(name)
            record = self._local.record(host, None if known is None else known.record)
            self._registry.keep(record)
            self._hosts[name] = HostConnection(record, since=time.time())
        if not local and self._settings.local_slots >= 0:
            self._machine = await asyncio.to_thread(find_host, self._settings.local_slots)
            self._kind_asked = self.spreads
        self._reported = self.there

    @property
    def there(self) -> tuple[Host, ...]:
        """Return the hosts whose slots are offered now, this machine first."""
        own = () if self._machine is None else (self._machine,)
        offering = [each.record for each in self._hosts.values() if each.offering]
        # Before it is known whether they compute what this machine does, others wait.
        return (*own, *(each.resources for each in offering if each.shared or not self._kind_asked))

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where agents of other machines dial."""
        return (f"tcp://{self._settings.fleet_listen}",) if self._settings.fleet_listen else ()

    def started(self, control: AgentChannel, keys: tuple[str, str]) -> None:
        """Admit the hosts: the control channel is about to listen."""
        self._control, self._keys = control, keys
        for name in self._hosts:
            record = self._hosts[name].record
            control.admit(_admitted_as(record), record.public_key)
        for name, token in self._registry.tokens():
            self._tokens[name] = token
            control.admit(wire.TOKEN_KEY + name, token.public_key)

    async def follow(self) -> None:
        """Start the agents of this machine, watch all hosts, and report changes from now on."""
        self._following = True
        self._spawn(self._watch(), "edt hosts")
        if self._kind_asked:
            self._spawn(self._find_kind(), "edt kind")
        for name in self._local.names:
            self._spawn(self._local.keep(name), f"edt host {name}")
        await self._report_changes()

    async def stop(self) -> None:
        """Ask for nothing any more. Hosts go on, and the next server hears from them."""
        self.stopped = True
        for each in self._hosts.values():
            each.let_down(lambda: HostLost("This server stops."))
        self._wake_waiters()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what people ask for ------------------------------------------------------------------------------------------

    def standing(self) -> tuple[HostView, ...]:
        """Return all hosts but this machine as they are now."""
        return tuple(each.view() for each in self._hosts.values() if each.record.provider != MACHINE_ITSELF)

    def make_token(self, *, seconds: float = 3600.0, uses: int = 1, provider: str = "") -> HostToken:
        """Return a new token, with which `uses` machines may join. Unprocessable where hosts cannot dial in."""
        servers = self._advertised()
        if not servers or self._control is None:
            raise Unprocessable(
                "No machine can join this server: it does not listen for hosts.",
                hint='Set c.EdtApp.fleet_listen, for example to "0.0.0.0:8790", and start the server again.',
                field="fleet_listen",
            )
        if not 0 < seconds <= 30 * 86_400:
            raise Unprocessable("A token is valid for more than no time, and for 30 days at most.", field="seconds")
        if not 1 <= uses <= 10_000:
            raise Unprocessable("A token is for 1 to 10,000 machines.", field="uses")
        text = self._registry.make_token(servers, self._keys[0], seconds=seconds, uses=uses, provider=provider)
        self._tokens = dict(self._registry.tokens())
        for name, token in self._tokens.items():
            self._control.admit(wire.TOKEN_KEY + name, token.public_key)
        return HostToken(token=text, command=f"edt host join {text}", expires=time.time() + seconds, uses=uses)

    async def drain(self, name: str, draining: bool = True) -> None:
        """Withdraw a host's slots, or offer them again. NotFound when there is no such host."""
        host = self._host(name)
        self._keep(host, draining=draining)
        await self._report_changes()

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Forget a host and its key. NotFound, or Conflict while jobs are there, unless `force`."""
        host = self._host(name)
        if host.record.provider in (LOCAL, MACHINE_ITSELF):
            raise Conflict(
                f"The host {name} is a part of this machine.",
                hint="The administrator takes it out of c.EdtApp.local_hosts.",
            )
        jobs = sorted(job for job, each in self._placed.items() if name in (each.home, *each.members))
        if jobs and host.connected and not force:
            raise Conflict(
                f"Jobs are on the host {name}: {', '.join(jobs)}.",
                hint=f"Drain it first (edt host drain {name} --wait), or remove it with force: its jobs lose a host.",
            )
        self._send(host, wire.Retire())
        self._lose(host, "It was removed.")
        if host.taking is not None:
            host.taking.cancel()
        del self._hosts[name]
        self._registry.forget(name)
        (self.addresses_dir / f"{name}.json").unlink(missing_ok=True)
        if self._control is not None:
            self._control.forget(_admitted_as(host.record))
        self._tell_peers()
        await self._report_changes()

    def host_of(self, provider: str, provider_id: str) -> str | None:
        """Return the host that a machine of a provider has become, None while it is none."""
        there = (each for each in self._hosts.values() if each.record.provider == provider)
        return next((each.name for each in there if each.record.provider_id == provider_id), None)

    def draining(self, name: str) -> bool:
        """Return whether a host gives up its slots."""
        return name in self._hosts and self._hosts[name].record.draining

    def beats(self, name: str) -> bool:
        """Return whether something has come from a host lately."""
        return name in self._hosts and self._hosts[name].connected and self._hosts[name].age() < SILENT

    def occupied(self) -> set[str]:
        """Return the hosts that attempts of jobs may have processes on."""
        return {name for placed in self._placed.values() for name in (placed.home, *placed.members)}

    @property
    def mark(self) -> str:
        """What begins the names of machines that providers start for this server, the same for all its starts."""
        return f"edt-{zlib.crc32(str(self._settings.data_dir).encode()):08x}"

    def log_tail(self, name: str, lines: int) -> str:
        """Return the last lines of the log of an agent on this machine, else "". NotFound as of `drain`. Blocks."""
        self._host(name)
        try:
            text = (self.addresses_dir / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "".join(text.splitlines(keepends=True)[-lines:])

    # --- what supervision asks for ------------------------------------------------------------------------------------

    async def place(self, preferred: Callable[[], Awaitable[Sequence[str]]]) -> str | None:
        """Return the first of these hosts that is connected, MACHINE for this one. Wait until one is.

        `preferred` is asked again after each change. None when this server stops.
        """
        while not self.stopped:
            woken = self._woken
            wanted = await preferred()
            # On the machine itself nothing has to travel.
            if self._machine is not None and (not wanted or self._machine.name in wanted):
                return MACHINE
            known = [self._hosts[name] for name in wanted if name in self._hosts]
            # Where the files are shared any host will do, once those with slots of the job are lost.
            others = [] if any(host.record.up for host in known) else map(self._hosts.__getitem__, self._local.names)
            for host in (*known, *others):
                if host.connected:
                    return host.name
            await woken.wait()
        return None

    def away(self, job: str) -> bool:
        """Return whether the job's supervisor is on a host with files of its own, and cannot be seen from here."""
        placed = self._placed.get(job)
        return placed is not None and self._is_away(placed.home)

    def _is_away(self, host: str) -> bool:
        return host != MACHINE and (host not in self._hosts or not self._hosts[host].record.shared)

    def kind_of(self, host: str) -> str:
        """Return the kind of a host, or of MACHINE, "" where it is not known."""
        if host == MACHINE:
            return "" if self._machine is None else self._machine.kind
        return self._hosts[host].record.kind if host in self._hosts else ""

    @property
    def spreads(self) -> bool:
        """Whether a job's workers may be on hosts with files of their own."""
        return bool(self.endpoints)

    def adopt(self, orders: Launch) -> None:
        """Know where an attempt is, from the orders it was started with."""
        paths = JobPaths(Path(orders.data_dir), orders.owner, orders.job_id)
        self._placed[orders.job_id] = _Placed(msgspec.structs.replace(orders, secret_key=""), JobTree(paths))

    async def start_supervisor(self, orders: Launch) -> ProcessIdentity:
        """Start the supervisor of an attempt on the host that the orders name. EdtError when it could not be started.

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

    def may_span(self, job: str, hosts: Collection[str]) -> None:
        """Let the job's supervisor have outposts on these hosts besides its own."""
        placed = self._placed.get(job)
        if placed is None:
            return
        for name in hosts:
            if self._machine is not None and name == self._machine.name and placed.home != MACHINE:
                self._begin_own(name)
            if name == placed.home or name not in self._hosts:
                continue
            placed.members.add(name)
            if self._hosts[name].connected:
                self._spawn(self._prepare(self._hosts[name], placed), f"edt prepare {job} {name}")

    async def supervisor_gone(self, job: str, attempt: int) -> None:
        """Return when the supervisor of an attempt on a host is gone: it has ended, or its host is lost."""
        placed = self._placed.get(job)
        host = None if placed is None else self._hosts.get(placed.home)
        if host is not None:
            await host.ending((job, attempt)).wait()

    def complete(self, job: str) -> bool:
        """Return whether every file of the job is here, as of the last `collect`."""
        placed = self._placed.get(job)
        away = placed is not None and any(map(self._is_away, (placed.home, *placed.members)))
        return not away or (placed is not None and placed.attempt in self._complete)

    async def collect(self, job: str, *, end: bool) -> None:
        """Have every file of the job here. With `end` the attempt is over, and its processes end first.

        Hosts that are lost are left out.
        """
        placed = self._placed.get(job)
        if placed is not None:
            names = {placed.home, *placed.members} & self._hosts.keys()
            hosts = [self._hosts[name] for name in names]
            # Those that share the files have nothing to send, but may have processes that end.
            wanted = [host for host in hosts if not host.record.shared or (end and placed.orders.spreads)]
            await asyncio.gather(*(self._collect(host, placed, end=end) for host in wanted))
            self._complete.add(placed.attempt)

    def forget(self, job: str) -> None:
        """Drop a job that is over, here and on all hosts."""
        placed = self._placed.pop(job, None)
        if placed is None:
            return
        self._complete.discard(placed.attempt)
        for host in self._hosts.values():
            host.offered.pop(job, None)
            host.prepared = {each for each in host.prepared if each[0] != job}
            # A host that is away now says that it has them when it is back.
            if job in host.holds:
                host.holds.discard(job)
                self._send(host, wire.Forget(job=job, owner=placed.orders.owner))

    # --- what hosts send ----------------------------------------------------------------------------------------------

    def receive(self, sender: str, peer: bytes, message: bytes, data: bytes) -> None:
        """Take a message of an agent, or of a machine that joins."""
        try:
            received = wire.decode_to_server(message)
        except msgspec.MsgspecError as wrong:
            log.warning("message that is none dropped, sender=%s: %s", sender, type(wrong).__name__)
            return
        if sender.startswith(wire.TOKEN_KEY):
            if isinstance(received, wire.Join):
                self._answer(peer, self._join(sender.removeprefix(wire.TOKEN_KEY), received))
            return
        host = self._hosts.get(sender.removeprefix(wire.HOST_KEY).partition(":")[0])
        if host is None or _admitted_as(host.record) != sender:
            self._answer(peer, wire.HostRefused(why="This host was removed.", hint="Join again with a new token."))
        elif isinstance(received, wire.HostHello):
            self._greet(host, peer, received)
        elif host.peer == peer:
            host.heard, host.closed = time.monotonic(), None
            self._hear(host, peer, received, data)

    def _hear(self, host: HostConnection, peer: bytes, message: wire.ToServer, data: bytes) -> None:
        match message:
            case wire.HostBeat():
                host.beat = message
                self._send(host, wire.Heard())
            case wire.HostNotice(seconds=seconds, why=why):
                log.warning("host %s ends in %.0f s: %s", host.name, seconds, why)
                host.ends = why
                self._spawn(self._report_changes(), "edt hosts changed")
            case wire.SupervisorStarted(job=job, attempt=attempt, identity=identity, why=why):
                waiting = host.starting.get((job, attempt))
                if identity is not None:
                    host.below.add((job, attempt))
                if waiting is not None and not waiting.done():
                    if identity is None:
                        wrong = f"Host {host.name} could not start the supervisor: {why}"
                        waiting.set_exception(EdtError(wrong, job=job))
                    else:
                        waiting.set_result(identity)
            case wire.SupervisorEnded(job=job, attempt=attempt):
                host.over((job, attempt))
            case wire.FilePart() | wire.Gone():
                host.parts.put_nowait((peer, message, data))
            case wire.Want():
                self._spawn(self._give(host, message), f"edt give {host.name}")
            case wire.FilesCollected(job=job):
                collected = host.collecting.get(job)
                if collected is not None and not collected.done():
                    collected.set_result(None)
            case wire.Compare(job=job, end=end) if job in self._placed:
                self._spawn(self._compare(host, self._placed[job], end=end), f"edt compare {job}")

    def _join(self, token: str, join: wire.Join) -> wire.HostJoined | wire.HostRefused:
        valid = self._tokens.get(token)
        same = next((each for each in self._hosts.values() if each.record.public_key == join.public_key), None)
        if same is not None:
            return wire.HostJoined(host=same.name)  # the answer was lost
        if join.protocol != wire.AGENT_PROTOCOL:
            return _other_version(join.protocol)
        if valid is None or valid.uses < 1 or valid.expires < time.time():
            return wire.HostRefused(why="The token is used up or too old.", hint="Get a new one: edt host token")
        try:
            check_name(join.name)
        except Unprocessable as wrong:
            return wire.HostRefused(why=wrong.message, hint=wrong.hint)
        taken = {*self._hosts, socket.gethostname(), *self._settings.local_hosts}
        numbers = (f"{join.name}-{number}" for number in range(2, 10_000))
        name = join.name if join.name not in taken else next(each for each in numbers if each not in taken)
        provider = valid.provider or join.provider
        record = HostRecord(
            name=name,
            public_key=join.public_key,
            provider=provider,
            provider_id=join.provider_id,
            joined=time.time(),
        )
        self._registry.keep(record)
        self._tokens[token] = valid = msgspec.structs.replace(valid, uses=valid.uses - 1)
        self._registry.keep_token(token, valid)
        self._hosts[name] = HostConnection(record, since=time.time())
        if self._control is not None:
            self._control.admit(_admitted_as(record), join.public_key)
        log.info("host %s has joined", name)
        return wire.HostJoined(host=name)

    def _greet(self, host: HostConnection, peer: bytes, hello: wire.HostHello) -> None:
        before = host.hello
        if hello.protocol != wire.AGENT_PROTOCOL:
            self._answer(peer, _other_version(hello.protocol))
            return
        fresh = host.record.up and host.peer is not None and host.closed is None and host.age() < SILENT
        if before is not None and before.identity != hello.identity:
            if fresh and before.identity.boot_id != hello.identity.boot_id and host.peer != peer:
                why = f"Another machine is the host {host.name} already, with the same key."
                self._answer(peer, wire.HostRefused(why=why, hint="A copy of a machine joins with a token of its own."))
                return
            # With its agent everything below it has ended, whether the loss was noticed or not.
            self._lose(host, "Its agent was started again.")
        again = host.record.up and host.peer is not None
        host.peer, host.hello, host.heard, host.closed, host.why = peer, hello, time.monotonic(), None, ""
        if before is None or before.identity != hello.identity:
            host.ends = ""  # it is back
        if not again:
            host.since = time.time()
        if host.record.shared:
            self._keep(host, up=True, kind=hello.kind)
        else:
            resources = {"cores": hello.cores, "gpus": hello.gpus, "offers": hello.offers, "kind": hello.kind}
            self._keep(host, up=True, **resources)
        outdated = tuple(each for each in hello.below if not self._belongs(host, each))
        self._answer(peer, wire.HostWelcome(outdated=outdated, beat=BEAT, fence=FENCE))
        host.below = {(each.job, each.attempt) for each in hello.below if each.supervises and each not in outdated}
        host.prepared.clear()
        for placed in self._placed.values():
            if placed.home == host.name and placed.attempt not in host.below and placed.attempt not in host.starting:
                host.over(placed.attempt)
            elif placed.attempt in host.starting or host.name in placed.members:
                self._spawn(self._prepare(host, placed), f"edt prepare {placed.attempt} {host.name}")
        host.holds = {job for job, _ in hello.jobs}
        for job, owner in hello.jobs:
            if job not in self._placed:
                # It was over while the host was away. What was sent from there since was refused.
                host.holds.discard(job)
                self._send(host, wire.Forget(job=job, owner=owner))
        for job in host.collecting:
            self._send(host, _collect(self._placed[job], end=False))
        if host.record.provider == LOCAL and host.name not in self._local.names:
            self._send(host, wire.Retire())
        self._write_address(host)
        self._tell_peers()
        self._spawn(self._report_changes(), "edt hosts changed")
        if host.taking is None or host.taking.done():
            host.taking = self._spawn(self._take_parts(host), f"edt parts {host.name}")
        if visible(hello.identity):
            self._spawn(self._until_ended(host, hello.identity), f"edt agent {host.name}")

    def _belongs(self, host: HostConnection, below: wire.Below) -> bool:
        placed = self._placed.get(below.job)
        if placed is None or placed.attempt != (below.job, below.attempt):
            return False
        return placed.home == host.name or not below.supervises

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
        if not host.record.shared:
            host.holds.add(orders.job_id)
            files = await asyncio.to_thread(self._needed, placed, supervises)
            host.offered[orders.job_id] = frozenset(each.path for each in files)
        if self._placed.get(orders.job_id) is placed:
            self._send(host, wire.Prepare(launch=orders, supervises=supervises, files=files))

    def _needed(self, placed: _Placed, supervises: bool) -> tuple[wire.JobFile, ...]:
        """Return the files of a job that a host needs, and the others that its supervisor's host may know of."""
        tree, orders, root = placed.tree, placed.orders, self._settings.data_dir
        found = [path for path, _ in tree.files()]
        if supervises:
            with contextlib.suppress(FileNotFoundError):
                requested = tree.paths.resume_from.read_text(encoding="utf-8").partition("\n")[0]
                needed = tree.needed(requested.removesuffix(".ckpt"))
                return self._entries(tree, found, needed)
            return self._entries(tree, found, tree.needed())
        # Members have the driver's objects in one file, which the supervisor sends, and run in the folder of the code.
        code = tree.paths.submitted
        wanted = [path for path in found if (root / path).is_relative_to(code) or str(root / path) == orders.warm_start]
        return self._entries(tree, wanted, frozenset(wanted))

    def _entries(self, tree: JobTree, found: list[str], needed: frozenset[str]) -> tuple[wire.JobFile, ...]:
        root = self._settings.data_dir
        made = [self._digests.entry(root, each, tree.within(root / each), needed=each in needed) for each in found]
        return tuple(each for each in made if each is not None)

    async def _give(self, host: HostConnection, want: wire.Want) -> None:
        """Answer a Want."""
        placed = self._placed.get(want.job)
        if placed is None or want.path not in host.offered.get(want.job, ()):
            self._send(host, wire.Chunk(job=want.job, path=want.path, offset=want.offset, lost="It was not offered."))
            return
        try:
            data = await asyncio.to_thread(_read, placed.tree, want)
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
        if host.name not in (placed.home, *placed.members):
            return intake.Sender(host.name, refused="The job has no slot on this host.")
        engine = placed.orders.spec.framework == Framework.EDT
        return intake.Sender(host.name, placed.tree, placed.home == host.name, engine)

    async def _collect(self, host: HostConnection, placed: _Placed, *, end: bool) -> None:
        if not host.connected:
            return
        job = placed.orders.job_id
        future = host.collecting[job] = asyncio.get_running_loop().create_future()
        self._send(host, _collect(placed, end=end))
        try:
            await future
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

    # --- presence -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """A client of the control channel has gone. Find out whether it was a host."""
        for host in self._hosts.values():
            if host.connected and host.closed is None:
                self._send(host, wire.Heard())

    async def _watch(self) -> None:
        looked = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK)
            now = time.monotonic()
            # This process itself may have been stopped. What was sent meanwhile is still to be read.
            pause, looked = max(0.0, now - looked - 2 * _LOOK), now
            for host in tuple(self._hosts.values()):
                host.heard += pause
                if host.closed is not None:
                    host.closed += pause
                if why := host.lost():
                    self._lose(host, why)
                    if host.record.shared:
                        self._local.kill(host.name)
            await self._report_changes()

    async def _until_ended(self, host: HostConnection, identity: ProcessIdentity) -> None:
        """Wait for the end of an agent on this machine, which is seen at once."""
        await ended(identity)
        if host.hello is not None and host.hello.identity == identity:
            self._lose(host, "Its agent has ended.")
            await self._report_changes()

    def _lose(self, host: HostConnection, why: str) -> None:
        if host.record.up:
            log.warning("host %s is lost: %s", host.name, why)
        host.why, host.since = why, time.time()
        host.peer = host.hello = host.beat = host.closed = None
        host.prepared.clear()
        self._keep(host, up=False)
        host.let_down(lambda: HostLost(f"Host {host.name} was lost."))
        for placed in self._placed.values():
            if placed.home == host.name:
                host.over(placed.attempt)
        self._tell_peers()

    async def _report_changes(self) -> None:
        self._wake_waiters()
        there = self.there
        if self._following and self._reported != there:
            before, self._reported = self._reported, there
            # An unavailable store must not end the watch. The next look tries again.
            try:
                await self._changed(there)
            except EdtError:
                self._reported = before
                log.exception("the slots could not be changed")

    def _wake_waiters(self) -> None:
        self._woken.set()
        self._woken = asyncio.Event()

    # --- addresses ----------------------------------------------------------------------------------------------------

    def _advertised(self) -> tuple[str, ...]:
        """Return where a machine that joins dials."""
        listen = self._settings.fleet_listen
        if not listen:
            return ()
        given = tuple(f"tcp://{each}" for each in self._settings.fleet_addresses)
        address, _, port = listen.rpartition(":")
        if given or address not in ANY_ADDRESS:
            return given or (f"tcp://{listen}",)
        return (f"tcp://{socket.getfqdn()}:{port}", *(f"tcp://{each}:{port}" for each in _addresses()))

    def _write_address(self, host: HostConnection) -> None:
        """Tell the supervisors of this machine where the agent is."""
        assert host.hello is not None
        address = wire.AgentAddress(
            protocol=wire.AGENT_PROTOCOL,
            host=host.name,
            endpoint=host.hello.endpoint,
            identity=host.hello.identity,
            public_key=host.record.public_key,
            client_public=self._keys[0],
            client_secret=self._keys[1],
            shared=host.record.shared,
        )
        write_private(self.addresses_dir / f"{host.name}.json", wire.encode(address))

    def _tell_peers(self) -> None:
        """Tell all hosts of each other, once after several changes."""
        if not self._peers_due:
            self._peers_due = True
            asyncio.get_running_loop().call_soon(self._send_peers)

    def _send_peers(self) -> None:
        self._peers_due = False
        own = wire.HostPeer(host=MACHINE, endpoint="", identity=identify(os.getpid()), public_key=self._keys[0])
        there = [(each, each.hello) for each in self._hosts.values() if each.connected and each.hello is not None]
        others = [
            wire.HostPeer(
                host=each.name, endpoint=hello.endpoint, identity=hello.identity, public_key=each.record.public_key
            )
            for each, hello in there
        ]
        message = wire.HostPeers(peers=(own, *others))
        for host, _ in there:
            self._send(host, message)

    async def _find_kind(self) -> None:
        """Find the kind of this machine, on which that of all others in its resource group depends."""
        kind = await asyncio.to_thread(kind_here, self._settings.interpreter, self._settings.control_dir)
        self._kind_asked = False
        if self._machine is not None:
            self._machine = replace(self._machine, kind=kind)
        await self._report_changes()

    # --- small ones ---------------------------------------------------------------------------------------------------

    def _begin_own(self, name: str) -> None:
        """Start an agent for this machine itself, whose slots are used by a supervisor elsewhere."""
        if name in self._own or self._control is None:
            return
        self._own.add(name)
        known = self._hosts.get(name)
        record = self._local.record(Host(name), None if known is None else known.record, MACHINE_ITSELF)
        self._registry.keep(record)
        if known is None:
            self._hosts[name] = HostConnection(record, since=time.time())
            self._control.admit(_admitted_as(record), record.public_key)
        self._spawn(self._local.keep(name), f"edt host {name}")

    async def _retire(self, name: str) -> None:
        """Forget a host of this machine that the configuration names no more, once its agent has ended."""
        await self._local.gone(name)
        host = self._hosts.pop(name, None)
        if host is not None:
            self._lose(host, "The configuration does not name it any more.")
        self._registry.forget(name)
        (self.addresses_dir / f"{name}.json").unlink(missing_ok=True)

    def _host(self, name: str) -> HostConnection:
        if name not in self._hosts:
            raise NotFound(f"There is no host {name!r}.", hint=f"There are: {', '.join(self._hosts) or 'none'}.")
        return self._hosts[name]

    def _keep(self, host: HostConnection, **changes: Any) -> None:
        changed = msgspec.structs.replace(host.record, **changes)
        if changed != host.record:
            host.record = changed
            self._registry.keep(changed)

    def _send(self, host: HostConnection, message: wire.ToHost, *data: bytes) -> None:
        if host.peer is None or self._control is None:
            return
        if not self._control.answer(host.peer, wire.encode(message), *data) and host.closed is None:
            host.closed = time.monotonic()

    def _answer(self, peer: bytes, message: wire.ToHost) -> None:
        if self._control is not None:
            self._control.answer(peer, wire.encode(message))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s ended", task.get_name(), exc_info=task.exception())


def _collect(placed: _Placed, *, end: bool) -> wire.Collect:
    orders = placed.orders
    return wire.Collect(job=orders.job_id, owner=orders.owner, attempt=orders.attempt, end=end)


def _admitted_as(record: HostRecord) -> str:
    """Return what a host's key is admitted as.

    A connection keeps that name when its host is removed, and must not count as that of the next host of this name.
    """
    return f"{wire.HOST_KEY}{record.name}:{zlib.crc32(record.public_key.encode()):08x}"


def _other_version(theirs: int) -> wire.HostRefused:
    return wire.HostRefused(
        why=f"This machine speaks protocol {theirs} and the server {wire.AGENT_PROTOCOL}.",
        hint="Install the same version of jupyter-edt on both.",
    )


def _read(tree: JobTree, want: wire.Want) -> bytes:
    place = tree.checked(want.path)
    with open_regular(place, within=tree.within(place)) as file:
        file.seek(want.offset)
        return file.read(wire.PART)


def interface_of(listen: str) -> str:
    """Return the address at which this machine's workers listen so that hosts reach them, by `fleet_listen`.

    Unprocessable where that is no address with a port.
    """
    if not listen:
        return LOOPBACK
    address, _, port = listen.rpartition(":")
    if not address or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Unprocessable(
            f"{listen!r} is no address with a port.",
            hint='Set c.EdtApp.fleet_listen to one such as "0.0.0.0:8790".',
            field="fleet_listen",
        )
    if address not in ANY_ADDRESS:
        return address.strip("[]")
    return next(iter(_addresses()), LOOPBACK)


def _addresses() -> list[str]:
    """Return the addresses of this machine's name, without those that only it reaches."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(each[4][0]) for each in found if not str(each[4][0]).startswith("127.")})
