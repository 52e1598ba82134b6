"""`HostService`: the verbs about hosts, the machines that offer slots.

The fleet (`edt_server/fleet/`) knows which machines have joined and how they stand, and the core knows their slots.
Here both are put together. The server's own machine is no host of the fleet, and is shown all the same. Every user may
read. Only an admin may change, as with the plan.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Collection
from importlib.metadata import version
from typing import Protocol

import msgspec

from edt_sdk.schemas.errors import NotFound, Unprocessable
from edt_sdk.schemas.hosts import HostState, HostToken, HostView, NewHostToken
from edt_server.ledger import LedgerWriter
from edt_server.service import access
from edt_server.service.elastic_hosts import ElasticHosts
from edt_server.service.sharing import Sharing
from edt_server.settings import Settings
from edt_server.system.slots import Host, unlike

MACHINE = "machine"  # the provider of the server's own machine
_CHANGE = "change the hosts"


class JoinedHosts(Protocol):
    """What the service needs of the fleet, see `edt_server/fleet/`."""

    def standing(self) -> tuple[HostView, ...]:
        """Return its hosts, without what the core knows: slots, used, jobs."""

    def make_token(self, *, seconds: float = 3600.0, uses: int = 1) -> HostToken:
        """Return a new token. Unprocessable when the server listens for no hosts."""

    async def drain(self, name: str, draining: bool = True) -> None:
        """Withdraw a host's slots, or offer them again. NotFound when there is no such host."""

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Forget a host. Conflict while jobs hold slots there, unless `force`."""

    def log_tail(self, name: str, lines: int) -> str:
        """Return the last lines of the agent's log, "" when the server knows none."""


class HostService:
    """The hosts of a service.

    Attributes:
        fleet: the hosts with an agent, None when the server is configured for none.
        _elastic: the machines that were asked for and are no hosts yet.
        _places: slot → host, also of slots that were withdrawn while a job is still in them.
    """

    def __init__(
        self,
        writer: LedgerWriter,
        sharing: Sharing,
        settings: Settings,
        fleet: JoinedHosts | None,
        elastic: ElasticHosts | None = None,
    ) -> None:
        self._writer = writer
        self._sharing = sharing
        self._settings = settings
        self.fleet = fleet
        self._elastic = elastic
        self._places: dict[int, str] = {}
        self._begun = writer.ledger.clock.now()

    # --- for every user -----------------------------------------------------------------------------------------------

    async def hosts(self, user: str) -> list[HostView]:
        """Return the hosts: the server's own first, then those of the fleet. `jobs` has the ids of the user's jobs."""
        joined = () if self.fleet is None else self.fleet.standing()
        if self._elastic is not None:
            joined += tuple(self._elastic.views())
        own = await asyncio.to_thread(self._own, {view.name for view in joined})
        return await self._writer.read(self._filled, user, [*own, *joined])

    async def host(self, user: str, name: str) -> HostView:
        """Return a host. NotFound when there is none of that name."""
        hosts = await self.hosts(user)
        for view in hosts:
            if view.name == name:
                return view
        raise NotFound(
            f"There is no host {name!r}.", hint=f"There are: {', '.join(view.name for view in hosts)}.", field="name"
        )

    async def logs(self, user: str, name: str, lines: int) -> str:
        """Return the last lines of the log of a host's agent, "" when the server knows none. NotFound as `host`."""
        await self.host(user, name)
        if self.fleet is None or not self._joined(name):
            return ""
        return await asyncio.to_thread(self.fleet.log_tail, name, lines)

    # --- for admins ---------------------------------------------------------------------------------------------------

    async def make_token(self, user: str, new: NewHostToken) -> HostToken:
        """Return a token that lets machines join. NotAllowed for a user who is no admin.

        Unprocessable when the server accepts no hosts.
        """
        access.check_admin(user, self._settings.admins, _CHANGE)
        new.check()
        if self.fleet is None:
            raise Unprocessable(
                "This server accepts no hosts: it does not listen for them.",
                hint='Its administrator sets c.EdtApp.fleet_listen = "0.0.0.0:8790", and restarts it.',
            )
        return self.fleet.make_token(seconds=new.seconds, uses=new.uses)

    async def drain(self, user: str, name: str, *, draining: bool = True) -> HostView:
        """Withdraw the slots of a host, each at its job's next update, or offer them again. Returns the host.

        NotAllowed for a user who is no admin, NotFound, and Unprocessable for the server's own machine.
        """
        fleet = await self._changeable(user, name)
        # Its slots are remembered before they are withdrawn, so that the jobs that still leave them are counted.
        await self.host(user, name)
        await fleet.drain(name, draining)
        return await self.host(user, name)

    async def remove(self, user: str, name: str, *, force: bool = False) -> None:
        """Forget a host and its key. Conflict while jobs hold slots there, unless `force`. Other errors as `drain`."""
        await (await self._changeable(user, name)).remove(name, force=force)

    async def _changeable(self, user: str, name: str) -> JoinedHosts:
        access.check_admin(user, self._settings.admins, _CHANGE)
        if self.fleet is not None and self._joined(name):
            return self.fleet
        await self.host(user, name)
        raise Unprocessable(
            f"The host {name!r} is the server's own machine, and cannot be drained or removed.",
            hint="c.EdtApp.local_slots sets how many slots it offers, from the server's next start on.",
            field="name",
        )

    def _joined(self, name: str) -> bool:
        return self.fleet is not None and any(view.name == name for view in self.fleet.standing())

    # --- parts --------------------------------------------------------------------------------------------------------

    def _own(self, joined: Collection[str]) -> list[HostView]:
        """Return the hosts that did not join: the server's own machine. Blocks."""
        return [self._view(host) for host in self._sharing.hosts if host.name not in joined]

    def _view(self, host: Host) -> HostView:
        page = os.sysconf("SC_PAGE_SIZE")
        return HostView(
            name=host.name,
            provider=MACHINE,
            state=HostState.UP,
            cores=host.cores,
            gpus=host.gpus,
            memory=page * os.sysconf("SC_PHYS_PAGES"),
            load=os.getloadavg()[0],
            memory_free=page * os.sysconf("SC_AVPHYS_PAGES"),
            disk_free=shutil.disk_usage(self._settings.data_dir).free,
            wheel=version("jupyter-edt"),
            since=self._begun,
        )

    def _filled(self, user: str, views: list[HostView]) -> list[HostView]:
        """Return the hosts with their slots and jobs. In the writer thread, because it reads the core."""
        core = self._writer.ledger.core
        there = {slot.id: slot.host for slot in core.slots}
        others = unlike(core.plan, self._sharing.hosts)
        self._places = {slot: host for slot, host in self._places.items() if core.holder(slot) is not None} | there
        offered, holders = Counter(there.values()), dict[str, list[str]]()
        for slot, host in self._places.items():
            if (job := core.holder(slot)) is not None:
                holders.setdefault(host, []).append(job)
        return [
            msgspec.structs.replace(
                view,
                why=view.why or others.get(view.name, ""),
                slots=offered[view.name],
                used=len(jobs := holders.get(view.name, [])),
                # The ids of other users' jobs are of no use to this user, and their number is in `used`.
                jobs=tuple(dict.fromkeys(job for job in jobs if access.may(user, core.owner(job)))),
            )
            for view in views
        ]
