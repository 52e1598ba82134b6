"""What is done to machines and jobs in `make chaos-fleet`: steps drawn from a seed. Pure, as `plan` is."""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What can happen."""

    KILL_AGENT = "kill agent"
    POWER_OFF = "power off"
    CUT = "cut"
    STOP_AGENT = "stop agent"
    LEAVE = "leave"
    DRAIN = "drain"
    SLOW = "slow link"
    FULL_DISK = "full disk"
    KILL_SERVER = "kill server"
    RESIZE = "resize"


# How often, relative to each other, and how many seconds it lasts: from, to.
_KINDS = {
    Kind.KILL_AGENT: (3, 0.5, 8.0),
    Kind.POWER_OFF: (3, 2.0, 25.0),
    Kind.CUT: (4, 1.0, 25.0),
    Kind.STOP_AGENT: (2, 0.5, 10.0),
    Kind.LEAVE: (2, 0.5, 6.0),
    Kind.DRAIN: (3, 1.0, 12.0),
    Kind.SLOW: (2, 3.0, 15.0),
    Kind.FULL_DISK: (2, 2.0, 12.0),
    Kind.KILL_SERVER: (2, 0.0, 10.0),
    Kind.RESIZE: (4, 0.0, 0.0),
}
# What needs a server that answers.
VERBS = frozenset({Kind.DRAIN, Kind.RESIZE})
_RATES = ("2mbit", "20mbit", "100mbit")
# After it is mended a machine has so long to join until the next one may be disturbed.
_SETTLING = 6.0
# Hosts need a moment, too, to hear a server that was started, or it would never do anything.
_SERVER_SETTLING = 8.0
_LONGEST_PAUSE = 6.0


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """One thing that is done.

    Attributes:
        at: seconds after the begin, when everything is done at once.
        number: of the event, from 1.
        undo: whether the event ends here.
        kind: what it is.
        machine: where, "" for the server and the jobs.
        seconds: how long it lasts.
        dice: in [0, 1), for what is chosen when it happens.
        rate: of a slow link.
    """

    at: float
    number: int
    undo: bool
    kind: Kind
    machine: str
    seconds: float
    dice: float
    rate: str

    def __str__(self) -> str:
        where = f" {self.machine}" if self.machine else ""
        if self.undo:
            return f"end of {self.number}: {self.kind}{where}"
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.number}: {self.kind}{where}{f' {self.rate}' if self.kind is Kind.SLOW else ''}{lasting}"


def steps(seed: int, count: int, machines: Collection[str], without: Collection[str] = ()) -> list[Step]:
    """Return the steps of so many events, in order. Two machines, or more, are left alone at any time."""
    dice = random.Random(f"fleet {seed}")
    made: list[Step] = []
    busy: dict[str, float] = {}  # machine → when it may count as whole again
    server_up = -_SERVER_SETTLING
    now = 0.0
    kinds = {kind: values for kind, values in _KINDS.items() if kind not in without}
    while len(made) < count:
        now += dice.random() ** 2 * _LONGEST_PAUSE
        whole = [name for name in machines if busy.get(name, 0.0) <= now]
        up = server_up <= now
        able = {
            kind: weight
            for kind, (weight, *_) in kinds.items()
            if (up or kind not in VERBS)
            and (kind is not Kind.KILL_SERVER or server_up + _SERVER_SETTLING <= now)
            and (kind in (Kind.KILL_SERVER, Kind.RESIZE) or len(whole) > len(machines) - 2)
        }
        if not able:
            continue
        kind = dice.choices(list(able), list(able.values()))[0]
        _, least, most = kinds[kind]
        seconds = round(dice.uniform(least, most), 1)
        machine = "" if kind in (Kind.KILL_SERVER, Kind.RESIZE) else dice.choice(whole)
        made.append(Step(now, len(made) + 1, False, kind, machine, seconds, dice.random(), dice.choice(_RATES)))
        if machine:
            # The end of a drain may have to wait for the server.
            late = _KINDS[Kind.KILL_SERVER][2] if kind is Kind.DRAIN else 0.0
            busy[machine] = now + seconds + late + _SETTLING
        elif kind is Kind.KILL_SERVER:
            server_up = now + seconds
    ends = [each for each in made if each.kind is not Kind.RESIZE]
    undone = [_end(each, [other for other in made if other.kind is Kind.KILL_SERVER]) for each in ends]
    return list(heapq.merge(made, sorted(undone)))


def _end(step: Step, downs: list[Step]) -> Step:
    """Return the end of an event, which comes after the server's return if it needs the server."""
    at = step.at + step.seconds
    if step.kind in VERBS:
        at = max([at, *(down.at + down.seconds + 0.001 for down in downs if down.at <= at <= down.at + down.seconds)])
    return Step(at, step.number, True, step.kind, step.machine, step.seconds, step.dice, step.rate)
