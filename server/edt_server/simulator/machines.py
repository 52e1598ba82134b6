"""Play hosts that come and go: a provider that gives each host a while after it was asked, as `Scaling` decides.

Pure. A released host has no work, so it is gone at once. A host counts from when its slots can be used until it is
given back. The optimum, `least_host_seconds`, counts in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, pairwise

from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import SlotsChanged
from edt_server.fleet.scaling import HostUse, Scaling, ScalingSettings
from edt_server.simulator.engine import SimulatedRun

HEAD = ("policy", "mean wait", "hosts started", "most at once", "host-hours", "optimum", "÷ optimum")


@dataclass(slots=True)
class _Machine:
    """A host: asked for, up once `slots` are there, idle since `idle_since` if it is, and gone when it has drained."""

    id: str
    asked: float
    up: float | None = None
    slots: tuple[Slot, ...] = ()
    idle_since: float | None = None
    draining: bool = False


class Machines:
    """The hosts of a simulated provider.

    Args:
        core: gets their slots besides those it has, and tells its demand.
        group: the resource group that takes every host which no group names.
        start: seconds from the wish for a host until its slots can be used.

    Attributes:
        most: most hosts that were up at once.
    """

    def __init__(self, core: Core, group: str, settings: ScalingSettings, start: float) -> None:
        self._core, self._group, self._settings, self._start = core, group, settings, start
        self._scaling = Scaling(settings)
        self._own = core.slots
        self._hosts: list[_Machine] = []  # in the order of the wishes
        self._numbers = count(1)
        self._gone: list[tuple[float, float]] = []
        self._seen = 0.0
        self.most = 0

    @property
    def spans(self) -> list[tuple[float, float]]:
        """When each host was up, from and to in seconds: to the last look where it still is."""
        return [*self._gone, *((host.up, self._seen) for host in self._hosts if host.up is not None)]

    def look(self, now: float) -> SlotsChanged | None:
        """Let hosts come and go, and return the event for the core. None when the slots stay as they are."""
        self._seen = now
        came = [host for host in self._hosts if host.up is None and host.asked + self._start <= now]
        for host in came:
            # Also of draining hosts: their workers may still be in there.
            taken = {slot.id for slot in (*self._own, *(slot for each in self._hosts for slot in each.slots))}
            free = (number for number in count() if number not in taken)
            host.up, host.slots = now, tuple(Slot(id=n, host=host.id) for n in islice(free, self._settings.slots))
        elsewhere = self._core.slots_in(self._group) - sum(
            len(host.slots) for host in self._hosts if host not in came and not host.draining
        )
        uses = [self._use(host, now) for host in self._hosts]
        told = self._scaling.decide(now, self._core.demand()[self._group].total - elsewhere, uses)
        for host in self._hosts:
            host.draining = host.draining or host.id in told.release
        gone = [host for host, use in zip(self._hosts, uses, strict=True) if host.draining and not use.held]
        self._hosts = [host for host in self._hosts if host not in gone]
        self._gone += [(host.up, now) for host in gone if host.up is not None]
        self._follow(told.hosts, now)
        self.most = max(self.most, sum(host.up is not None for host in self._hosts))
        return SlotsChanged(tuple(self._slots())) if came or told.release else None

    def next_look(self) -> float | None:
        """Return when to look again although nothing happens before. None for never."""
        times = [host.asked + self._start for host in self._hosts if host.up is None]
        decides = self._scaling.next_look()
        return min([*times, *([] if decides is None else [decides])], default=None)

    def _follow(self, wish: int, now: float) -> None:
        """Ask for hosts, or let those go that have not come, the last wishes first."""
        staying = sum(not host.draining for host in self._hosts)
        for _ in range(staying, wish, -1):
            if self._hosts[-1].up is not None:
                break
            self._hosts.pop()
        for _ in range(staying, wish):
            self._hosts.append(_Machine(f"host {next(self._numbers)}", now))

    def _slots(self) -> Iterable[Slot]:
        return (*self._own, *(slot for host in self._hosts if not host.draining for slot in host.slots))

    def _use(self, host: _Machine, now: float) -> HostUse:
        if host.up is None:
            return HostUse(host.id, asked_since=host.asked)
        holders = [job for slot in host.slots if (job := self._core.holder(slot.id)) is not None]
        if holders:
            host.idle_since = None
        elif host.idle_since is None:
            host.idle_since = now
        pinned = any(map(self._core.keeps, set(holders)))
        return HostUse(host.id, len(host.slots), len(holders), host.idle_since, draining=host.draining, pinned=pinned)


@dataclass(frozen=True, slots=True)
class HostFigures:
    """What the hosts of a run cost, and what jobs waited for them.

    Attributes:
        mean_wait: seconds from a job's arrival to its first slot, of the jobs that got one.
        started: hosts that came.
        most: most of them at once.
        hours: hours of hosts that were up.
        optimum: the same with hosts that are up exactly while the jobs need so many.
    """

    mean_wait: float
    started: int
    most: int
    hours: float
    optimum: float

    @property
    def ratio(self) -> float:
        """`hours` ÷ `optimum`, 1 where no host was needed."""
        return self.hours / self.optimum if self.optimum else 1.0


def host_figures(run: SimulatedRun, machines: Machines, ideal: SimulatedRun, own: int, slots: int) -> HostFigures:
    """Return the figures of a run with these machines of so many `slots`, besides `own` slots that are always there.

    `ideal` is the run of the same jobs with every host there from the start.
    """
    waits = [life.start - life.job.time for life in run.lives if life.start is not None]
    return HostFigures(
        mean_wait=math.fsum(waits) / len(waits) if waits else 0.0,
        started=len(machines.spans),
        most=machines.most,
        hours=math.fsum(gone - up for up, gone in machines.spans) / 3600,
        optimum=least_host_seconds(ideal, own, slots) / 3600,
    )


def least_host_seconds(run: SimulatedRun, own: int, slots: int) -> float:
    """Return the host-seconds of the fewest hosts of so many `slots` that could have held the jobs at each instant.

    No provider reaches it: it takes perfect foresight, hosts that start in time and stop at once, and jobs that move
    together whenever a host's worth of slots is free.
    """
    changes: list[tuple[float, int]] = []
    for life in run.lives:
        before = 0
        for time, size in life.sizes:
            changes.append((time, size - before))
            before = size
    changes.sort()
    held, total = 0, 0.0
    for (time, change), (after, _) in pairwise(changes):
        held += change
        total += -(-max(0, held - own) // slots) * (after - time)
    return total


def host_table(runs: Mapping[str, HostFigures]) -> str:
    """Return one line per run for a terminal, waits in seconds."""
    rows: list[Sequence[str]] = [HEAD]
    for name, each in runs.items():
        numbers = (f"{each.mean_wait:.1f}", str(each.started), str(each.most), f"{each.hours:.1f}")
        rows.append((name, *numbers, f"{each.optimum:.1f}", f"{each.ratio:.2f}"))
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    lines = ([f"{row[0]:<{widths[0]}}", *map(str.rjust, row[1:], widths[1:])] for row in rows)
    return "\n".join("  ".join(line).rstrip() for line in lines)
