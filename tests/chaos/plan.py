"""What is done to a job: a list of events drawn from a seed. Pure, so that a seed names the same list for ever."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What can happen to a job."""

    RESIZE = "resize"
    SUSPEND = "suspend"
    RESUME = "resume"
    KILL_WORKER = "kill worker"
    KILL_WORKERS = "kill workers"
    STOP_WORKER = "stop worker"
    KILL_DRIVER = "kill driver"
    KILL_ZYGOTES = "kill zygotes"
    KILL_SUPERVISOR = "kill supervisor"
    KILL_SERVER = "kill server"
    START_SERVER = "start server"
    KILL_EVERYTHING = "kill everything"


# How often, relative to each other.
_WEIGHTS = {
    Kind.RESIZE: 8,
    Kind.SUSPEND: 2,
    Kind.KILL_WORKER: 6,
    Kind.KILL_WORKERS: 2,
    Kind.STOP_WORKER: 1,
    Kind.KILL_DRIVER: 2,
    Kind.KILL_ZYGOTES: 2,
    Kind.KILL_SUPERVISOR: 2,
    Kind.KILL_SERVER: 2,
    Kind.KILL_EVERYTHING: 1,
}
# What needs a server that answers.
VERBS = frozenset({Kind.RESIZE, Kind.SUSPEND, Kind.RESUME})


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        kind: what is done.
        dice: in [0, 1), for whatever is to be chosen when it happens (which worker, how many).
        settled: whether updates must have been committed since the last event; else it may hit a recovery.
        pause: seconds before it, after that.
    """

    kind: Kind
    dice: float
    settled: bool
    pause: float


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained: the arguments of `jobs/zoo.py`."""

    model: str
    optimizer: str
    shards: int
    loaders: int

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.model}, {self.optimizer}, V={self.shards}" + (", loaders" if self.loaders else "")


def trainings(seed: int, count: int) -> list[Training]:
    """`count` trainings: every model, every optimizer and every V from 1 to 8 before one comes twice."""
    dice = random.Random(f"trainings {seed}")

    def endless(values: list[str] | list[int]) -> Iterator[str | int]:
        while True:
            yield from dice.sample(values, len(values))

    models = endless(["mlp", "cnn", "transformer", "lstm", "frozen"])
    optimizers = endless(["sgd", "adam", "adamw", "adadelta"])
    shards = endless([1, 2, 3, 4, 5, 6, 7, 8])
    return [
        Training(str(next(models)), str(next(optimizers)), int(next(shards)), loaders=2 if dice.random() < 0.25 else 0)
        for _ in range(count)
    ]


def events(seed: int, number: int, count: int) -> list[Event]:
    """The events of the `number`-th training; a server that was killed, or a job suspended, comes back in the end."""
    dice = random.Random(f"events {seed} {number}")
    made: list[Event] = []
    suspended = down = False

    def add(kind: Kind) -> None:
        settled = dice.random() < 0.6 and not suspended and kind is not Kind.START_SERVER
        # A driver that dies twice without an update in between is a script that kills itself: the job fails, rightly.
        settled = settled or kind is Kind.KILL_DRIVER
        made.append(Event(kind, dice.random(), settled, round(dice.random() ** 2 * 1.5, 3)))

    while len(made) < count:
        if down and (suspended or dice.random() < 0.5):
            add(Kind.START_SERVER)
            down = False
        elif suspended and dice.random() < 0.7:
            add(Kind.RESUME)
            suspended = False
        else:
            allowed = {k: w for k, w in _WEIGHTS.items() if not (down and (k in VERBS or k is Kind.KILL_SERVER))}
            if suspended:
                del allowed[Kind.KILL_DRIVER]
            kind = dice.choices(list(allowed), list(allowed.values()))[0]
            if kind is Kind.SUSPEND and suspended:
                kind = Kind.RESUME
            add(kind)
            suspended = {Kind.SUSPEND: True, Kind.RESUME: False}.get(kind, suspended)
            down = down or kind in (Kind.KILL_SERVER, Kind.KILL_EVERYTHING)
    if down:
        add(Kind.START_SERVER)
    if suspended:
        add(Kind.RESUME)
    return made
