"""Decide how many hosts a provider should have, and which ones it gets back.

Pure: the time is an argument, in seconds of a monotonic clock. Wishes are levels, so that asking twice is the same as
asking once. A wish rises when hosts were short for `patience` seconds, and then only to the least that was short in
this time: a burst that is over before asks for nothing. A host is given back after `idle_after` seconds without work,
which bridges the gap between two bursts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

_REMEMBERED = 9  # starts of hosts that the median is of: enough for an outlier, few enough for a provider that changes
_LONGEST_PAUSE = 300.0  # seconds between two wishes to a provider that keeps failing


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """The settings of one provider. ValueError when they contradict each other.

    Attributes:
        provider: its name, as people know it.
        max_hosts: most hosts at once, those that are draining included.
        min_hosts: fewest hosts, also without any demand.
        slots: how many slots a new host is expected to offer, at least 1.
        idle_after: seconds without work after which a host is given back.
        patience: seconds that a demand must last before a wish rises or, for hosts that have not come yet, falls.
        pack: also give back a host with work, when for `idle_after` seconds its jobs would have had room on the others.
            They move there at their next update. Without it jobs that end at different times leave a few slots in use
            on nearly every host, and none is ever idle.
    """

    provider: str
    max_hosts: int
    min_hosts: int = 0
    slots: int = 1
    idle_after: float = 300.0
    patience: float = 5.0
    pack: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.min_hosts <= self.max_hosts or self.slots < 1 or min(self.idle_after, self.patience) < 0:
            raise ValueError(f"{self} cannot be: it needs 0 ≤ min_hosts ≤ max_hosts, slots ≥ 1, and no time below 0")


@dataclass(frozen=True, slots=True)
class HostUse:
    """A host that the provider has given or is asked for. Times are those of the clock of `Scaling.decide`.

    Attributes:
        id: the provider's id, the same before and after the host has come.
        slots: how many it offers, 0 while it has not come.
        held: how many of them jobs hold or are leaving.
        idle_since: since when `held` is 0. None while it is not, and while the host has not come.
        asked_since: when it was asked for. None once it has come.
        draining: it is on its way out, whoever decided that.
        pinned: it is not released while it has work, since something on it cannot move: a job that would have to
            restart.
    """

    id: str
    slots: int = 0
    held: int = 0
    idle_since: float | None = None
    asked_since: float | None = None
    draining: bool = False
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """What the provider is told: how many hosts it should have without those that drain, and ids of hosts to drain.

    A host with work is drained before it is given back: its slots are withdrawn, and its jobs leave at their boundary.
    """

    hosts: int
    release: tuple[str, ...] = ()


class Scaling:
    """The wishes to one provider. Call `decide` after every change, and at the time of `next_look`."""

    def __init__(self, settings: ScalingSettings) -> None:
        self._settings = settings
        self._wish = settings.min_hosts
        self._differs_since: float | None = None  # since when there are too few, or too many, hosts
        self._rises = False
        self._nearest = 0  # to the wish, of all that would have been right since then
        self._asked: dict[str, float] = {}  # host that has not come → when it was asked for
        self._starts: deque[float] = deque(maxlen=_REMEMBERED)
        self._pause = 0.0
        self._paused_until: float | None = None
        self._kept: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()  # to be released
        self._surplus_since: list[float] = []  # since when one host is not needed, since when two, …
        self._next: float | None = None
        self._full = False  # more hosts would be asked for if max_hosts let them

    def decide(self, now: float, demand: int, hosts: Sequence[HostUse]) -> ScalingDecision:
        """Return what the provider is told at `now`.

        Args:
            now: seconds, never less than before.
            demand: slots that jobs want on these hosts: `Demand.total` of the resource group, less the slots of the
                group on other hosts. A number below 0 counts as 0.
            hosts: all hosts of the provider that it has given, was asked for, or is taking away.
        """
        self._learn(now, hosts)
        here = [host for host in hosts if host.asked_since is None and not host.draining]
        release = self._surplus(now, demand, here)
        kept = {host.id: host for host in here if host.id not in release}
        # One that was lost is not replaced at once: whether it is needed has to last for `patience`, as always.
        self._wish -= len(self._kept - kept.keys())
        self._kept = frozenset(kept)
        self._settle(now, self._needed(demand, list(kept.values()), draining=sum(host.draining for host in hosts)))
        if self._paused_until is not None:
            self._wish = min(self._wish, len(kept) + len(self._asked))
        # A host that came after its wish was taken back is there all the same, and may have work by now.
        self._wish = max(self._wish, len(kept))
        surplus = (since + self._settings.idle_after for since in self._surplus_since)
        times = (self._paused_until, self._due(), *surplus, *map(self._expires, kept.values()))
        self._next = min((time for time in times if time is not None and time > now), default=None)
        return ScalingDecision(self._wish, tuple(host.id for host in here if host.id in release))

    def failed(self, now: float) -> None:
        """Record that the provider refused a wish, or that a host it was asked for will not come.

        Nothing is asked of it for `patience` seconds, then twice as long after each further failure, up to 5 minutes,
        until a host has come.
        """
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause or self._settings.patience)
        self._paused_until = now + self._pause

    def next_look(self) -> float | None:
        """Return when `decide` could decide otherwise although nothing has changed. None for never."""
        return self._next

    def coming(self, now: float) -> str:
        """Return the part of a sentence about hosts on their way, without a full stop. "" when none is.

        For example "1 host was asked of ray 40 s ago; such hosts took 90 s (median of 5)".
        """
        name = self._settings.provider
        if self._asked:
            count, ago = len(self._asked), span(now - min(self._asked.values()))
            hosts = "1 host was" if count == 1 else f"{count} hosts were"
            text = f"{hosts} asked of {name}{'' if count == 1 else ', the first'} {ago} ago"
            took = f"such hosts took {span(median(self._starts))}" if self._starts else ""
            return f"{text}; {took} (median of {len(self._starts)})" if took else text
        if self._paused_until is not None and self._paused_until > now:
            return f"the provider {name} could not give a host and is asked again in {span(self._paused_until - now)}"
        if self._full:
            most = self._settings.max_hosts
            given = "the only host" if most == 1 else f"all {most} hosts"
            return f"the provider {name} has given {given} it may (max_hosts)"
        return ""

    def expected(self, now: float) -> float | None:
        """Return in how many seconds the next host should come. None when none was asked for, or none ever came."""
        if not self._asked or not self._starts:
            return None
        return max(0.0, min(self._asked.values()) + median(self._starts) - now)

    def room(self) -> int:
        """Return how many slots the provider could still add, with hosts on their way, as of the last `decide`."""
        return (self._settings.max_hosts - len(self._kept)) * self._settings.slots

    # --- how ----------------------------------------------------------------------------------------------------------

    def _learn(self, now: float, hosts: Iterable[HostUse]) -> None:
        """Note how long hosts took to come that were on their way at the last look."""
        came = [host.id for host in hosts if host.asked_since is None and host.id in self._asked]
        self._starts += [now - self._asked[host] for host in came]
        if came:
            self._pause = 0.0
        if came or (self._paused_until is not None and self._paused_until <= now):
            self._paused_until = None
        self._asked = {host.id: host.asked_since for host in hosts if host.asked_since is not None}

    def _expires(self, host: HostUse) -> float | None:
        return None if host.held or host.idle_since is None else host.idle_since + self._settings.idle_after

    def _surplus(self, now: float, demand: int, here: Sequence[HostUse]) -> frozenset[str]:
        """Return the hosts that were not needed for long enough: the least work goes first, then the longest idle."""
        spare = sum(host.slots for host in here) - max(0, demand)
        could: list[HostUse] = []
        for host in sorted(here, key=lambda host: (host.held, host.idle_since or 0.0, host.id)):
            may = not host.held or (self._settings.pack and not host.pinned)
            if may and host.slots <= spare and len(here) - len(could) > self._settings.min_hosts:
                spare -= host.slots
                could.append(host)
        # The hosts that went were the surplus of longest standing. What is left has stood for less.
        went = len(self._told - {host.id for host in here})
        since = self._surplus_since[went:][: len(could)]
        self._surplus_since = since + [now] * (len(could) - len(since))
        due = sum(each + self._settings.idle_after <= now for each in self._surplus_since)
        expired = [self._expires(host) for host in could[:due]]
        ready = zip(could, expired, strict=False)
        self._told = frozenset(
            host.id for host, expires in ready if self._settings.pack or (expires is not None and expires <= now)
        )
        return self._told

    def _needed(self, demand: int, kept: Sequence[HostUse], *, draining: int) -> int:
        """Return how many hosts would be right if neither demand nor hosts changed any more."""
        short = max(0, demand - sum(host.slots for host in kept))
        wanted = max(self._settings.min_hosts, len(kept) + -(-short // self._settings.slots))
        most = max(len(kept), self._settings.max_hosts - draining)
        self._full = wanted > most
        return min(wanted, most)

    def _settle(self, now: float, needed: int) -> None:
        """Let the wish follow what is needed after `patience`, and no further than was needed all that time."""
        rises = needed > self._wish
        if needed == self._wish:
            self._differs_since = None
        elif self._differs_since is None or rises != self._rises:
            self._differs_since, self._rises, self._nearest = now, rises, needed
        else:
            self._nearest = min(self._nearest, needed) if rises else max(self._nearest, needed)
        due = self._due()
        if due is not None and due <= now:
            self._wish, self._differs_since = self._nearest, None
            if needed != self._wish:
                self._settle(now, needed)

    def _due(self) -> float | None:
        return None if self._differs_since is None else self._differs_since + self._settings.patience


def span(seconds: float) -> str:
    """Return a span of time in words, in the unit that fits: "40 s", "5 min", "1.5 h"."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h".replace(".0 h", " h")
