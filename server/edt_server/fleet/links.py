"""Know which hosts do not reach each other, and which of them a job does without. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

# Seconds since the last failure until it counts no more: a job that comes and goes with a bad link gets nothing done.
AGAIN = 60.0
Pair = frozenset[str]


class Links:
    """The pairs of hosts that do not reach each other, `pairs`, by what the hosts themselves tell.

    One direction that fails is enough: the workers of a job connect in both. A pair counts after `apart` seconds
    without success: a host that has just come back is not heard as early by all.
    """

    def __init__(self, apart: float = 6.0) -> None:
        self._apart = apart
        self._failing: dict[Pair, float] = {}
        self._failed: dict[Pair, float] = {}

    @property
    def pairs(self) -> frozenset[Pair]:
        """The pairs that do not reach each other."""
        return frozenset(self._failed)

    @property
    def quiet(self) -> bool:
        """Return whether all hosts reach each other, as far as they have told lately."""
        return not self._failing and not self._failed

    def look(self, unreached: Mapping[str, Collection[str]], now: float) -> None:
        """Take which others each host does not reach. A pair counts while both are in here, and so are heard."""
        failing = {Pair((host, each)) for host, others in unreached.items() for each in others if each in unreached}
        self._failing = {pair: self._failing.get(pair, now) for pair in failing}
        failed = {pair: now for pair, since in self._failing.items() if now - since >= self._apart}
        self._failed = {pair: at for pair, at in {**self._failed, **failed}.items() if now - at < AGAIN}

    def sentence(self, host: str) -> str:
        """Return which hosts a host does not reach, "" where there are none."""
        others = ", ".join(sorted(_beyond(self.pairs, host)))
        return f"Hosts {host} and {others} do not reach each other. No job has slots of both." if others else ""

    def left_out(self, home: str, slots: Sequence[str], before: Collection[str]) -> tuple[tuple[str, ...], str]:
        """Return the hosts that a job does without, and why, in a sentence for each. From any thread.

        `home` is the host of its supervisor, which stays while the job has slots there. Of the others the host goes
        that fewest of the rest reach, else that with fewest of its `slots`. `before` are those left out now.
        """
        pairs = self.pairs
        if home not in slots:
            return (), ""  # it is about to move, and all hosts are equal
        out = _beyond(pairs, home)
        rest = {*slots, *before} - out
        while cut := {host: others for host in rest if (others := _beyond(pairs, host) & rest)}:
            worst = min(cut, key=lambda host: (-len(cut[host]), slots.count(host), host))
            out.add(worst)
            rest.remove(worst)
        why = []
        for far in sorted(out):
            others = _beyond(pairs, far)
            near = home if home in others else min(others & rest or others)
            why.append(f"Hosts {near} and {far} do not reach each other, so it has no slot of {far}.")
        return tuple(sorted(out)), " ".join(why)


def _beyond(pairs: Collection[Pair], host: str) -> set[str]:
    """Return the hosts that a host and they do not reach each other."""
    return {each for pair in pairs if host in pair for each in pair if each != host}
