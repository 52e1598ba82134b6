"""A fleet in memory, for tests of what is above it: hosts that joined, and what was asked of them."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.hosts import HostState, HostToken, HostView


class FleetInMemory:
    """The methods of `edt_server.fleet.Fleet`. A host in `busy` holds slots of jobs."""

    def __init__(self, *hosts: HostView) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.busy: set[str] = set()
        self.asked: list[tuple[object, ...]] = []

    def standing(self) -> tuple[HostView, ...]:
        return tuple(self.hosts.values())

    def make_token(self, *, seconds: float = 3600.0, uses: int = 1) -> HostToken:
        self.asked.append(("token", seconds, uses))
        return HostToken(token="edt1:secret", command="edt host join 'edt1:secret'", expires=seconds, uses=uses)

    async def drain(self, name: str, draining: bool = True) -> None:
        state = HostState.DRAINING if draining else HostState.UP
        self.hosts[name] = msgspec.structs.replace(self._known(name), state=state)

    async def remove(self, name: str, *, force: bool = False) -> None:
        self._known(name)
        if name in self.busy and not force:
            raise Conflict(f"Jobs hold slots of the host {name!r}.", hint="Drain it first.")
        del self.hosts[name]

    def log_tail(self, name: str, lines: int) -> str:
        return "\n".join(["joined", f"{name} is up"][-lines:])

    def _known(self, name: str) -> HostView:
        if name not in self.hosts:
            raise NotFound(f"There is no host {name!r}.")
        return self.hosts[name]


def joined(name: str = "gpu-1", **changes: object) -> HostView:
    """A host that joined."""
    known = {"provider": "joined", "state": HostState.UP, "cores": 8, "address": "10.0.0.5", "round_trip": 0.004}
    return HostView(name=name, **(known | changes))
