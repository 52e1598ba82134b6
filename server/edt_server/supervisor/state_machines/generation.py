"""Keep a training's generations: its members, whether a change is running, the next members. Pure.

At most one planned change runs at a time. The next change contains everything that has accumulated in between. A death
does not wait for a change: the next generation replaces the generation that it broke, formed or not. Which members have
the training state is not known here (decision 010).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from edt_sdk.schemas.wire.control import GenerationFormed
from edt_sdk.schemas.wire.link import Begin
from edt_server.supervisor.state_machines.worker_group import Worker


@dataclass(slots=True)
class TrainingRun:
    """The k-th call of `train()`, from its request until its workers are gone.

    Attributes:
        shards: V, the most members that can have work.
        ranks: workers of the newest generation as it was published, in rank order.
        members: the workers among `ranks` with an existing process, in the same order.
        joining: members without a Joined so far.
        leaving: former members that have not exited yet.
        gathering: ready workers wait for others.
        gathered: that wait is over.
        broken: the newest generation cannot continue: a member died, or its group broke.
        lost: workers that died since the newest generation was published, as members or while they left.
        began: committed updates when the newest generation was complete.
        updates: committed updates at the end, None before.
        budget: of the newest generation.
        held: all members of the newest generation wait, as they have reached its budget.
        validated: the last epoch with a reported validation.
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
    lost: tuple[int, ...] = ()
    began: int = 0
    updates: int | None = None
    budget: int | None = None
    held: bool = False
    validated: int = 0

    @property
    def changing(self) -> bool:
        """True while a change of membership is running."""
        return bool(self.joining or self.leaving)

    def rank(self, worker: int) -> int | None:
        """Return the worker's place in the newest generation, None when it has none."""
        return self.ranks.index(worker) if worker in self.ranks else None

    def next_members(
        self,
        ready: Collection[int],
        may_stay: Callable[[int], bool],
        host: Callable[[int], str],
        budget: int | None,
        *,
        suspended: bool,
        home: str = "",
    ) -> tuple[int, ...] | None:
        """Return the members of the next generation, None when nothing is to change now.

        `ready` are prepared workers in no generation. A member `may_stay` while its slot is the job's. A `suspended`
        job may use no slot at all. Another `budget` than that of the newest generation needs a new one. Members on the
        same `host` follow each other, those of `home` first, without which there is no generation. "" is no such host.
        """
        # One planned change at a time: all members of the last have to have joined, and its leavers have to be gone,
        # before the next one is published (decision 002).
        if self.updates is not None or (self.changing and not self.broken):
            return None
        staying = [worker for worker in self.members if may_stay(worker)]
        if self.members and not staying and not suspended:
            # Its slot is gone, but it has the state, and no worker in the job's other slots is ready yet. Without it
            # the state would exist on disk only, and the training would go back to its last checkpoint.
            staying = [self.members[0]]
        room = max(0, self.shards - len(staying))
        following = _by_host((*staying, *sorted(ready)[:room]), host, home)
        if home and following and host(following[0]) != home:
            return None  # rank 0 writes the job's files, and those are there: its worker is about to be ready
        if self.broken and not self.members and self.leaving:
            # Only the leaving workers have the state: they write a checkpoint before any other worker starts from it.
            following = ()
        same = following == self.members and (budget == self.budget or not following)
        return None if same and not self.broken else following

    def change(self, following: tuple[int, ...], budget: int | None) -> tuple[int, ...]:
        """Make `following` the newest generation. Return the workers to notify: former members, then new ones."""
        former = (*self.members, *sorted(self.leaving))
        self.generation += 1
        self.joining = set(following)
        self.leaving = set(former) - set(following)
        self.members = self.ranks = following
        self.budget = budget
        self.broken = self.gathering = self.gathered = self.held = False
        self.lost = ()
        return (*former, *(worker for worker in following if worker not in former))

    def begin(self) -> Begin:
        """Return the message that a worker prepares from. While others train it has the time to rehearse an update."""
        return Begin(training=self.number, payload=self.payload, rehearse=bool(self.members))

    def gone(self, worker: int, *, left: bool) -> None:
        """Record the exit of the worker's process. `left` means that it had announced its exit, as asked."""
        if not left and worker in (*self.members, *self.leaving):
            self.lost = (*self.lost, worker)
        if worker in self.members:
            self.members = tuple(member for member in self.members if member != worker)
            self.broken = True
        elif worker in self.leaving and not self.members and not left:
            self.broken = True  # without it the others cannot meet once more before they leave
        self.joining.discard(worker)
        self.leaving.discard(worker)
        if not self.members and not self.leaving:
            self.broken = False  # no worker is left to notify: the next one starts a new generation

    def formed(self, workers: Mapping[int, Worker], update: int) -> GenerationFormed:
        """Return the report that all members have joined. Members that have exited since are left out."""
        members = [worker.member() for number in self.members if (worker := workers.get(number))]
        return GenerationFormed(
            training=self.number,
            number=self.generation,
            workers=tuple(member.worker for member in members),
            slots=tuple(member.slot for member in members),
            pids=tuple(member.pid for member in members),
            update=update,
        )


def _by_host(members: tuple[int, ...], host: Callable[[int], str], home: str) -> tuple[int, ...]:
    """Return the members host by host, so that each host sums what is a part of the tree (decision 060).

    Without a `home` the first one stays the first: it writes the logs.
    """
    places = [home, *map(host, members)]
    return tuple(sorted(members, key=lambda member: places.index(host(member))))
