"""One training's generations: who is a member, whether a change is under way, who comes next. Pure.

At most one change is under way. The next one is made from everything that has accumulated in between. Every generation
but a training's first has a survivor, since only a survivor has the state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from edt_sdk.schemas.control import GenerationFormed
from edt_server.supervisor.roster import Worker


@dataclass(slots=True)
class Training:
    """The k-th call of `train()`, from its request until its workers are gone.

    Attributes:
        shards: V, the most members that can have something to do.
        members: workers of the newest generation, in rank order.
        joining: members that have not said Joined yet.
        leaving: former members that have not ended yet.
        update: committed updates when the newest generation formed.
        updates: committed updates at the end, None before.
        closing: True when members have begun to end: no generation follows.
    """

    number: int
    payload: str
    shards: int
    epochs: int
    generation: int = 0
    members: tuple[int, ...] = ()
    joining: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    update: int = 0
    updates: int | None = None
    closing: bool = False

    @property
    def changing(self) -> bool:
        """True while a change of membership is under way."""
        return bool(self.joining or self.leaving)

    def rank(self, worker: int) -> int | None:
        """The worker's place in the newest generation."""
        return self.members.index(worker) if worker in self.members else None

    def next_members(self, ready: Collection[int], may_stay: Callable[[int], bool]) -> tuple[int, ...] | None:
        """The members of the next generation, None when there is nothing to change (now).

        Args:
            ready: workers that are prepared and in no generation.
            may_stay: whether a present member's slot is still the job's.
        """
        if self.closing or self.changing:
            return None
        staying = [worker for worker in self.members if may_stay(worker)]
        if self.members and not staying:
            staying = [self.members[0]]
        room = max(0, self.shards - len(staying))
        following = (*staying, *sorted(ready)[:room])
        return None if following == self.members else following

    def change(self, following: tuple[int, ...]) -> tuple[int, ...]:
        """Make `following` the newest generation; the workers to tell: former members, then fresh ones."""
        everybody = (*self.members, *(worker for worker in following if worker not in self.members))
        self.generation += 1
        self.joining = set(following)
        self.leaving = set(self.members) - set(following)
        self.members = following
        return everybody

    def formed(self, workers: Mapping[int, Worker]) -> GenerationFormed:
        """The report that all members have joined; one that has ended since is not named any more."""
        members = [worker.member(fresh=False) for number in self.members if (worker := workers.get(number))]
        return GenerationFormed(
            training=self.number,
            number=self.generation,
            workers=tuple(member.worker for member in members),
            slots=tuple(member.slot for member in members),
            pids=tuple(member.pid for member in members),
            update=self.update,
        )
