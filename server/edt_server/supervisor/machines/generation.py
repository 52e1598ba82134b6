"""One training's generations: who is a member, whether a change is under way, who comes next. Pure.

At most one planned change is under way; the next one is made from everything that has accumulated in between. A death
waits for no change: the next generation supersedes the one that it broke, formed or not. Who of the members has a state
is not known here (docs/decisions/010).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from edt_sdk.schemas.wire.control import GenerationFormed
from edt_sdk.schemas.wire.link import Begin
from edt_server.supervisor.machines.worker_group import Worker


@dataclass(slots=True)
class Training:
    """The k-th call of `train()`, from its request until its workers are gone.

    Attributes:
        shards: V, the most members that can have something to do.
        ranks: workers of the newest generation as it was published, in rank order.
        members: those of them whose processes are there, in the same order.
        joining: members that have not said Joined yet.
        leaving: former members that have not ended yet.
        gathering: those who are ready wait a moment for others.
        gathered: that moment has passed.
        broken: the newest generation cannot go on: a member of it died, or its group broke.
        began: committed updates when the newest generation was complete.
        updates: committed updates at the end, None before.
    """

    number: int
    payload: str
    shards: int
    epochs: int
    generation: int = 0
    ranks: tuple[int, ...] = ()
    members: tuple[int, ...] = ()
    joining: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    gathering: bool = False
    gathered: bool = False
    broken: bool = False
    began: int = 0
    updates: int | None = None

    @property
    def changing(self) -> bool:
        """True while a change of membership is under way."""
        return bool(self.joining or self.leaving)

    def rank(self, worker: int) -> int | None:
        """The worker's place in the newest generation."""
        return self.ranks.index(worker) if worker in self.ranks else None

    def next_members(
        self, ready: Collection[int], may_stay: Callable[[int], bool], *, suspended: bool
    ) -> tuple[int, ...] | None:
        """The members of the next generation, None when there is nothing to change (now).

        Args:
            ready: workers that are prepared and in no generation.
            may_stay: whether a present member's slot is still the job's.
            suspended: the job may use no slot at all.
        """
        if self.updates is not None or (self.changing and not self.broken):
            return None
        staying = [worker for worker in self.members if may_stay(worker)]
        if self.members and not staying and not suspended:
            # Its slot is gone, but it has the state, and whoever comes into the job's other slots is not ready yet.
            staying = [self.members[0]]
        room = max(0, self.shards - len(staying))
        following = (*staying, *sorted(ready)[:room])
        if self.broken and not self.members and self.leaving:
            # Only those who were about to leave have the state: they write it down before anybody goes on.
            following = ()
        return None if following == self.members and not self.broken else following

    def change(self, following: tuple[int, ...]) -> tuple[int, ...]:
        """Make `following` the newest generation; the workers to tell: former members, then fresh ones."""
        former = (*self.members, *sorted(self.leaving))
        self.generation += 1
        self.joining = set(following)
        self.leaving = set(former) - set(following)
        self.members = self.ranks = following
        self.broken = self.gathering = self.gathered = False
        return (*former, *(worker for worker in following if worker not in former))

    def begin(self) -> Begin:
        """What a worker is told to prepare for; beside others that train it can take the time to practise."""
        return Begin(training=self.number, payload=self.payload, rehearse=bool(self.members))

    def gone(self, worker: int, *, left: bool) -> None:
        """The worker's process has ended; `left`: it had said so, as it was told to."""
        if worker in self.members:
            self.members = tuple(member for member in self.members if member != worker)
            self.broken = True
        elif worker in self.leaving and not self.members and not left:
            self.broken = True  # the others cannot meet any more before they leave
        self.joining.discard(worker)
        self.leaving.discard(worker)
        if not self.members and not self.leaving:
            self.broken = False  # nobody is left to be told: whoever comes next begins anew

    def formed(self, workers: Mapping[int, Worker], update: int) -> GenerationFormed:
        """The report that all members have joined; one that has ended since is not named any more."""
        members = [worker.member(fresh=False) for number in self.members if (worker := workers.get(number))]
        return GenerationFormed(
            training=self.number,
            number=self.generation,
            workers=tuple(member.worker for member in members),
            slots=tuple(member.slot for member in members),
            pids=tuple(member.pid for member in members),
            update=update,
        )
