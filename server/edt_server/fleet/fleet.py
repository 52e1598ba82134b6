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
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from edt_sdk.schemas.errors import Conflict, EdtError, NotFound, Unprocessable
from edt_sdk.schemas.hosts import HostToken, HostView, NewHostToken, check_host_name
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import MACHINE
from edt_sdk.schemas.wire.control import SAME, ProcessIdentity
from edt_server.fleet.addresses import advertised
from edt_server.fleet.attempts import PlacedAttempts
from edt_server.fleet.connection import BEAT, LOST_ALL, AgentChannel, HostConnection, HostLost
from edt_server.fleet.links import Links
from edt_server.fleet.local_agents import LocalAgents
from edt_server.fleet.registry import LOCAL, MACHINE_ITSELF, HostRecord, JoinToken, Registry
from edt_server.settings import Settings
from edt_server.system.host_kind import kinds_here
from edt_server.system.private_files import make_private_dir, write_private
from edt_server.system.processes import ended, identify, visible
from edt_server.system.slots import Host, find_host

log = logging.getLogger(__name__)

_LOOK = 0.5


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
        self._control: AgentChannel | None = None
        self._keys = ("", "")
        self._machine: Host | None = None
        self._woken = asyncio.Event()
        self._look_due = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reported: tuple[Host, ...] = ()
        self._following = False
        self._own: set[str] = set()
        self._links = Links(settings.host_silent)
        self._kind_asked = False
        self._local = LocalAgents(settings, self.addresses_dir)
        self.attempts = PlacedAttempts(
            self._hosts, self._send, self._spawn, self._tell_peers, settings.host_dataset_bytes
        )
        """Where the attempts of jobs are, and their files."""
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
            self._hosts[record.name] = self._known(record)
        for path in self.addresses_dir.glob("*.json"):
            known = self._hosts.get(path.stem)
            if path.stem not in local and (known is None or known.record.provider == LOCAL):
                self._spawn(self._retire(path.stem), f"edt retire {path.stem}")
        for name, host in local.items():
            known = self._hosts.get(name)
            record = self._local.record(host, None if known is None else known.record)
            self._registry.keep(record)
            self._hosts[name] = self._known(record)
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
        views = [each.view() for each in self._hosts.values() if each.record.provider != MACHINE_ITSELF]
        return tuple(msgspec.structs.replace(view, why=view.why or self._links.sentence(view.name)) for view in views)

    def make_token(self, *, seconds: float = 3600.0, uses: int = 1, provider: str = "") -> HostToken:
        """Return a new token, with which `uses` machines may join. Unprocessable where hosts cannot dial in."""
        servers = advertised(self._settings.fleet_listen, self._settings.fleet_addresses)
        if not servers or self._control is None:
            raise Unprocessable(
                "No machine can join this server: it does not listen for hosts.",
                hint='Set c.EdtApp.fleet_listen, for example to "0.0.0.0:8790", and start the server again.',
                field="fleet_listen",
            )
        NewHostToken(seconds=seconds, uses=uses).check()
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
        jobs = self.attempts.on(name)
        if jobs and host.connected and not force:
            raise Conflict(
                f"Jobs are on the host {name}: {', '.join(jobs)}.",
                hint=f"Drain it first (edt host drain {name} --wait), or remove it with force: its jobs lose a host.",
            )
        self._send(host, wire.Retire(at_once=True))
        self._lose(host, "It was removed.")
        if host.taking is not None:
            host.taking.cancel()
        del self._hosts[name]
        self._registry.forget(name)
        (self.addresses_dir / f"{name}.json").unlink(missing_ok=True)
        if self._control is not None:
            self._control.forget(_admitted_as(host.record))
        self._tell_peers(self._beside(name))
        await self._report_changes()

    def host_of(self, provider: str, provider_id: str) -> str | None:
        """Return the host that a machine of a provider has become, None while it is none."""
        there = (each for each in self._hosts.values() if each.record.provider == provider)
        return next((each.name for each in there if each.record.provider_id == provider_id), None)

    def draining(self, name: str) -> bool:
        """Return whether a host gives up its slots."""
        host = self._hosts.get(name)
        return host is not None and (host.record.draining or bool(host.ends))

    def beats(self, name: str) -> bool:
        """Return whether something has come from a host lately."""
        host = self._hosts.get(name)
        return host is not None and host.connected and host.age() < host.silent

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

    def kind_of(self, host: str, *, portable: bool) -> str:
        """Return the kind of a host, or of MACHINE, for portable jobs or for others. "" where it is not known."""
        known = self._machine if host == MACHINE else self._hosts[host].record if host in self._hosts else None
        return "" if known is None else known.portable_kind if portable else known.kind

    @property
    def spreads(self) -> bool:
        """Whether a job's workers may be on hosts with files of their own."""
        return bool(self.endpoints)

    def may_span(self, job: str, hosts: Collection[str]) -> None:
        """Let the job's supervisor have outposts on these hosts besides its own."""
        own = self._machine
        # Also for a supervisor of this machine: its agent tells whether the other hosts reach it.
        if own is not None and own.name in hosts and len({*hosts, self._home(job)} - {""}) > 1:
            self._begin_own(own.name)
        self.attempts.may_span(job, {*hosts} - {self._home(job)})

    @property
    def parted(self) -> bool:
        """Whether there are hosts that do not reach each other."""
        return bool(self._links.pairs)

    def apart(self, job: str, slots: Sequence[str], before: Collection[str]) -> tuple[tuple[str, ...], str]:
        """Return the hosts that a job has to do without, since they and its others do not reach each other, and why.

        `slots` are the hosts of its slots, and `before` those that it does without now.
        """
        return self._links.left_out(self._home(job), slots, before)

    def _home(self, job: str) -> str:
        """Return the host of the job's supervisor as slots name it, "" where it has none."""
        home = self.attempts.home(job)
        return "" if home is None else self._named(home)

    def _named(self, host: str) -> str:
        return self._machine.name if host == MACHINE and self._machine is not None else host

    def _beside(self, name: str) -> set[str]:
        """Return a host and those that it shares attempts with. The agent of this machine has those of the server."""
        found = self.attempts.beside(MACHINE) if name == self._named(MACHINE) else set()
        return set(map(self._named, found | self.attempts.beside(name)))

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
            host.heard, host.closed, host.excused = time.monotonic(), None, 0.0
            self._hear(host, peer, received, data)

    def _hear(self, host: HostConnection, peer: bytes, message: wire.ToServer, data: bytes) -> None:
        match message:
            case wire.HostBeat():
                host.beat = message
                self._send(host, wire.Heard(probe=tuple(sorted(self._beside(host.name) - {host.name}))))
            case wire.HostNotice(seconds=seconds, why=why):
                log.warning("host %s ends in %.0f s: %s", host.name, seconds, why)
                host.ends = why
                self._look_soon()
            case _:
                self.attempts.hear(host, peer, message, data)

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
            check_host_name(join.name)
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
        self._hosts[name] = self._known(record)
        if self._control is not None:
            self._control.admit(_admitted_as(record), join.public_key)
        log.info("host %s has joined", name)
        return wire.HostJoined(host=name)

    def _greet(self, host: HostConnection, peer: bytes, hello: wire.HostHello) -> None:
        before, sandboxed = host.hello, self._settings.isolation.kind != SAME
        if hello.protocol != wire.AGENT_PROTOCOL:
            self._answer(peer, _other_version(hello.protocol))
            return
        if before is not None and before.identity == hello.identity and hello.connection < before.connection:
            return  # that connection is over
        if sandboxed and hello.sandbox is None:
            host.why = "It has an earlier jupyter-edt than the server, which would run jobs without a sandbox."
            self._answer(peer, wire.HostRefused(why=host.why, hint="Install the server's version there."))
            return
        fresh = host.record.up and host.peer is not None and host.closed is None and host.age() < host.silent
        if before is not None and before.identity != hello.identity:
            if fresh and before.identity.boot_id != hello.identity.boot_id and host.peer != peer:
                why = f"Another machine is the host {host.name} already, with the same key."
                self._answer(peer, wire.HostRefused(why=why, hint="A copy of a machine joins with a token of its own."))
                return
            # With its agent everything below it has ended, whether the loss was noticed or not.
            self._lose(host, "Its agent was started again.")
        again = host.record.up and host.peer is not None
        host.peer, host.hello, host.heard, host.closed, host.why = peer, hello, time.monotonic(), None, ""
        host.excused = 0.0
        if before is None or before.identity != hello.identity:
            host.ends = ""  # it is back
        if not again:
            host.since = time.time()
        resources: dict[str, Any] = {}
        if not host.record.shared:
            fields = ("cores", "gpus", "offers", "kind", "portable_kind")
            resources = {name: getattr(hello, name) for name in fields}
        self._keep(host, up=True, lacks=(hello.sandbox or "") if sandboxed else "", **resources)
        outdated = self.attempts.outdated(host.name, hello.below)
        self._answer(peer, wire.HostWelcome(outdated=outdated, beat=host.beats))
        self.attempts.greeted(host, hello)
        if host.record.provider == LOCAL and host.name not in self._local.names:
            self._send(host, wire.Retire())
        self._write_address(host)
        self._tell_peers(self._beside(host.name))
        self._look_soon()
        if visible(hello.identity):
            self._spawn(self._until_ended(host, hello.identity), f"edt agent {host.name}")

    # --- presence -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """A client of the control channel has gone. Find out whether it was a host."""
        for host in self._hosts.values():
            if host.connected and host.closed is None:
                self._send(host, wire.Heard())

    async def _watch(self) -> None:
        looked = time.monotonic()
        while True:
            # Many hosts that come at once are few changes.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._look_due.wait()
            self._look_due.clear()
            now = time.monotonic()
            # This process itself may have been stopped. What was sent meanwhile is still to be read.
            passed, looked = now - looked, now
            pause = max(0.0, passed - 2 * _LOOK)
            for host in self._unheard():
                host.excused += passed - pause
            if pause > BEAT:
                self._links.look({}, now)
            for host in tuple(self._hosts.values()):
                host.heard += pause
                if host.closed is not None:
                    host.closed += pause
                if why := host.lost():
                    self._lose(host, why)
                    if host.record.shared:
                        self._local.kill(host.name)
            self._look_at_links(now)
            await self._report_changes()

    def _look_at_links(self, now: float) -> None:
        """Take note of who reaches whom, where a host that is heard does not reach all, or did not lately."""
        if self._links.quiet and not any(host.beat and host.beat.unreached for host in self._hosts.values()):
            return
        heard = {name: host.beat for name, host in self._hosts.items() if self.beats(name)}
        self._links.look({name: beat.unreached for name, beat in heard.items() if beat is not None}, now)

    def _unheard(self) -> list[HostConnection]:
        """Return all other machines where none of them is heard: then no job could go on here or elsewhere."""
        if self._machine is not None:
            return []
        far = [host for host in self._hosts.values() if host.record.up and not host.record.shared]
        cut_off = len(far) > 1 and all(host.silent < host.age() < LOST_ALL for host in far)
        return far if cut_off else []

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
        self._keep(host, up=False)
        host.let_down(lambda: HostLost(f"Host {host.name} was lost."))
        self.attempts.lost(host)
        self._tell_peers(self._beside(host.name))

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

    def _look_soon(self) -> None:
        self._wake_waiters()
        self._look_due.set()

    def _wake_waiters(self) -> None:
        self._woken.set()
        self._woken = asyncio.Event()

    # --- addresses ----------------------------------------------------------------------------------------------------

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

    def _tell_peers(self, names: Collection[str]) -> None:
        """Tell each of these hosts of those that it shares attempts with, and of the server itself."""
        own = wire.HostPeer(host=MACHINE, endpoint="", identity=identify(os.getpid()), public_key=self._keys[0])
        for host in (self._hosts[name] for name in set(map(self._named, names)) if name in self._hosts):
            if not host.connected:
                continue
            others = [self._hosts[name] for name in self._beside(host.name) if name in self._hosts]
            there = [(each, each.hello) for each in others if each.connected and each.hello is not None]
            peers = [
                wire.HostPeer(
                    host=each.name, endpoint=hello.endpoint, identity=hello.identity, public_key=each.record.public_key
                )
                for each, hello in there
            ]
            self._send(host, wire.HostPeers(peers=(own, *peers)))

    async def _find_kind(self) -> None:
        """Find the kind of this machine, on which that of all others in its resource group depends."""
        found = await asyncio.to_thread(kinds_here, self._settings.interpreter, self._settings.control_dir)
        self._kind_asked = False
        if self._machine is not None:
            self._machine = replace(self._machine, kind=found[0], portable_kind=found[1])
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
            self._hosts[name] = self._known(record)
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

    def _known(self, record: HostRecord) -> HostConnection:
        return HostConnection(record, since=time.time(), silent=self._settings.host_silent)

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


def _admitted_as(record: HostRecord) -> str:
    """Return what a host's key is admitted as.

    A connection keeps that name when its host is removed, and must not count as that of the next host of this name.
    """
    return _admitted(record.name, record.public_key)


@lru_cache(maxsize=4096)  # compared with each message
def _admitted(name: str, public_key: str) -> str:
    return f"{wire.HOST_KEY}{name}:{zlib.crc32(public_key.encode()):08x}"


def _other_version(theirs: int) -> wire.HostRefused:
    return wire.HostRefused(
        why=f"This machine speaks protocol {theirs} and the server {wire.AGENT_PROTOCOL}.",
        hint="Install the same version of jupyter-edt on both.",
    )
