"""Hosts that come and go with the jobs: each provider is asked for as many as they need, and gets back idle ones.

The core tells what its jobs would use (`core/demand.py`), `fleet/scaling.py` decides, a provider (`providers/`) starts
and stops machines, and the fleet withdraws a host's slots before its machine ends. Here they are put together, once a
second and at the times that the decision names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from edt_sdk.schemas.errors import EdtError, NotFound, Unprocessable
from edt_sdk.schemas.hosts import HostState, HostView
from edt_server.fleet import Fleet
from edt_server.fleet.scaling import HostUse, Scaling, ScalingSettings
from edt_server.ledger import LedgerWriter
from edt_server.providers import Provided, ProvidedState, Provider, Wish, make_provider
from edt_server.service.coming_hosts import ComingHosts
from edt_server.service.sharing import Sharing
from edt_server.settings import Settings

log = logging.getLogger(__name__)

LOOK = 1.0  # seconds between two looks at a provider


class ElasticSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What c.EdtApp.providers says of a provider besides its own settings.

    Attributes:
        group: the resource group of its hosts, "" for the one that names no hosts.
        max_hosts, min_hosts, slots: as in `ScalingSettings`, with 0 slots for those of the machine.
        idle_after: seconds without work after which a host is given back.
        pack: whether a host is also given back whose jobs have room on others.
    """

    group: str = ""
    max_hosts: int = 1
    min_hosts: int = 0
    slots: int = 0
    idle_after: float = 300.0
    pack: bool = False


@dataclass(slots=True)
class Admitting:
    """Lets a machine of a provider join, see `providers.Admission`."""

    python: str
    fleet: Fleet
    provider: str

    async def token(self, provider_id: str) -> str:
        """Return a token for one machine."""
        return self.fleet.make_token(provider=self.provider).token


@dataclass(slots=True)
class _Engine:
    """A provider, what was decided for it, and what its machines do. Times are of the monotonic clock."""

    provider: Provider
    settings: ElasticSettings
    scaling: Scaling
    asked: dict[str, float] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    machines: tuple[Provided, ...] = ()
    trouble: str = ""


class ElasticHosts:
    """The providers of a service. Unprocessable when the settings of one are wrong."""

    def __init__(self, settings: Settings, writer: LedgerWriter, sharing: Sharing, fleet: Fleet | None) -> None:
        self._writer = writer
        self._sharing = sharing
        self._engines: list[_Engine] = []
        if settings.providers and (fleet is None or not fleet.spreads):
            raise Unprocessable(
                "Machines of a provider could not join this server: it does not listen for hosts.",
                hint='Set c.EdtApp.fleet_listen as well, for example to "0.0.0.0:8790".',
                field="providers",
            )
        if fleet is not None:
            self._fleet = fleet
            self._engines = [_engine(settings, fleet, name, dict(said)) for name, said in settings.providers.items()]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to ask providers for hosts."""
        for engine in self._engines:
            name = engine.provider.name
            self._tasks.append(asyncio.create_task(self._keep(engine), name=f"edt provider {name}"))
            self._tasks.append(asyncio.create_task(self._heed(engine), name=f"edt notices of {name}"))

    async def stop(self) -> None:
        """Ask for nothing any more. Hosts go on, and the next server finds them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(engine.provider.close(keep=True) for engine in self._engines))

    # --- for people ---------------------------------------------------------------------------------------------------

    def coming(self) -> dict[str, list[ComingHosts]]:
        """Return what providers tell about hosts on their way, by resource group."""
        now, day = time.monotonic(), time.time()
        found: dict[str, list[ComingHosts]] = {}
        for engine in self._engines:
            expected = engine.scaling.expected(now)
            text = engine.scaling.coming(now) or engine.trouble
            at = None if expected is None else day + expected
            found.setdefault(self._group(engine), []).append(ComingHosts(text, at, engine.scaling.room()))
        return found

    def views(self) -> list[HostView]:
        """Return the machines that were asked for and have not joined yet."""
        return [
            HostView(name=each.id, provider=engine.provider.name, state=HostState.STARTING, why=each.why)
            for engine in self._engines
            for each in engine.machines
            if each.state in (ProvidedState.ASKED, ProvidedState.STARTING)
            and self._fleet.host_of(engine.provider.name, each.id) is None
        ]

    # --- one provider -------------------------------------------------------------------------------------------------

    async def _keep(self, engine: _Engine) -> None:
        while True:
            try:
                await self._look(engine)
            except EdtError as wrong:
                log.warning("provider %s: %s", engine.provider.name, wrong)
            next_look = engine.scaling.next_look()
            await asyncio.sleep(LOOK if next_look is None else min(LOOK, max(0.05, next_look - time.monotonic())))

    async def _look(self, engine: _Engine) -> None:
        """Compare what the provider has with what jobs need, and tell it."""
        provider, now = engine.provider, time.monotonic()
        engine.machines = await provider.hosts()
        group = self._group(engine)
        demand, offered, held, pinned = await self._writer.read(self._use, group)
        uses, own = [], 0
        for machine in engine.machines:
            host = self._fleet.host_of(provider.name, machine.id)
            if machine.state is ProvidedState.GONE:
                await self._gone(engine, machine, host)
                continue
            uses.append(self._host_use(engine, machine, host, offered, held, pinned, now))
            own += 0 if host is None else offered[host]
        if provider.trouble and provider.trouble != engine.trouble:
            engine.scaling.failed(now)
        engine.trouble = provider.trouble
        decision = engine.scaling.decide(now, demand - (sum(offered.values()) - own), uses)
        for machine_id in decision.release:
            engine.leaving.add(machine_id)
            if (host := self._fleet.host_of(provider.name, machine_id)) is not None:
                log.info("host %s is not needed any more", host)
                await self._fleet.drain(host)
        for machine_id in tuple(engine.leaving):
            host = self._fleet.host_of(provider.name, machine_id)
            if host is None or not held[host]:
                engine.leaving.discard(machine_id)
                await provider.release(machine_id, "It is not needed any more.")
        await provider.want(Wish(hosts=decision.hosts, slots=engine.settings.slots))

    def _host_use(
        self,
        engine: _Engine,
        machine: Provided,
        host: str | None,
        offered: Mapping[str, int],
        held: Mapping[str, int],
        pinned: set[str],
        now: float,
    ) -> HostUse:
        draining = machine.state is ProvidedState.DRAINING or machine.id in engine.leaving
        if host is None or (not offered[host] and not draining and not self._fleet.draining(host)):
            return HostUse(machine.id, asked_since=engine.asked.setdefault(machine.id, now), draining=draining)
        if held[host]:
            engine.idle.pop(machine.id, None)
        return HostUse(
            machine.id,
            slots=offered[host],
            held=held[host],
            idle_since=None if held[host] else engine.idle.setdefault(machine.id, now),
            draining=draining or self._fleet.draining(host),
            pinned=host in pinned,
        )

    async def _gone(self, engine: _Engine, machine: Provided, host: str | None) -> None:
        """The provider has taken a machine away: no host of its name will be back."""
        engine.asked.pop(machine.id, None)
        engine.idle.pop(machine.id, None)
        engine.leaving.discard(machine.id)
        # What still beats has processes, whatever the provider has to say. It loses only its slots.
        if host is not None:
            await self._fleet.drain(host)
            with contextlib.suppress(NotFound):
                if not self._fleet.beats(host):
                    await self._fleet.remove(host, force=True)

    async def _heed(self, engine: _Engine) -> None:
        """Withdraw the slots of hosts that will be taken away, so that their jobs leave in time."""
        async for notice in engine.provider.notices():
            host = self._fleet.host_of(engine.provider.name, notice.id)
            if host is not None:
                log.warning("host %s ends in %.0f s: %s", host, notice.seconds, notice.why)
                await self._fleet.drain(host)

    def _use(self, group: str) -> tuple[int, Counter[str], Counter[str], set[str]]:
        """Return the demand of a group, what its hosts offer and what jobs hold there, and hosts that cannot move."""
        core = self._writer.ledger.core
        offered, held, pinned = Counter[str](), Counter[str](), set[str]()
        for slot in core.slots:
            if core.resource_group_of(slot.id) != group:
                continue
            offered[slot.host] += 1
            if (job := core.holder(slot.id)) is not None:
                held[slot.host] += 1
                if core.keeps(job):
                    pinned.add(slot.host)
        # A slot that was withdrawn is held until its job has left.
        for host in self._fleet.attempts.occupied():
            held[host] = max(held[host], 1)
        found = core.demand().get(group)
        return 0 if found is None else found.total, offered, held, pinned

    def _group(self, engine: _Engine) -> str:
        groups = self._sharing.plan.resource_groups
        rest = next((each.name for each in groups if not each.hosts), groups[0].name)
        return engine.settings.group or rest


def _engine(settings: Settings, fleet: Fleet, name: str, said: dict[str, Any]) -> _Engine:
    own = {each: said.pop(each) for each in ("group", "idle_after", "pack") if each in said}
    provider = make_provider(name, said, Admitting(settings.interpreter, fleet, name), mark=fleet.mark)
    try:
        given: dict[str, Any] = said | own
        checked = msgspec.convert(given, ElasticSettings)
        scaling = ScalingSettings(
            provider=name,
            max_hosts=checked.max_hosts,
            min_hosts=checked.min_hosts,
            slots=max(1, checked.slots),
            idle_after=checked.idle_after,
            pack=checked.pack,
        )
    except (ValueError, msgspec.ValidationError) as wrong:
        raise Unprocessable(f"The settings of the provider {name} are wrong: {wrong}.", field="providers") from None
    return _Engine(provider, checked, Scaling(scaling))
