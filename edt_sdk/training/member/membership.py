"""Which generation this worker is a member of, and the group that goes with it.

The supervisor decides who the members are, and nothing else. Who gives the state to whom follows from the positions
that the members tell each other when they meet, the same way for growth, for a death and for a start from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._C._distributed_c10d import Store

from edt_sdk.schemas.wire.link import Generation, Member
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group, connect_store


@dataclass(frozen=True, slots=True)
class Place:
    """How this worker reaches the others.

    Attributes:
        worker: its number within the job.
        store: its own store; used by all when it is rank 0, as long as this object lives.
        device: where its tensors live.
        interface: address that process groups bind to.
    """

    worker: int
    store: Store
    device: torch.device
    interface: str


NO_STATE = -1
"""The position of a worker that has nothing, or only a part of something."""


@dataclass(frozen=True, slots=True)
class Handover:
    """Who gives the state to whom, by rank.

    Attributes:
        gives: giver → takers; no key where a rank gives nothing.
        takes: taker → giver.
        nobody: no member has a state: rank 0 gets one from elsewhere before it gives.
    """

    gives: dict[int, tuple[int, ...]]
    takes: dict[int, int]
    nobody: bool


class Membership:
    """One worker's membership in one generation.

    Args:
        generation: its members; this worker is one.
        place: how to reach them.
        shards: V.
        waiting: called again and again until all are there; raise in it to give up.

    Raises:
        RuntimeError: another member is gone.
    """

    def __init__(self, generation: Generation, place: Place, shards: int, waiting: Callable[[], None]) -> None:
        self.generation = generation
        self.rank = rank_of(generation, place.worker)
        self.block = blocks(shards, len(generation.members))[self.rank]
        self._shards = shards
        leader = generation.members[0]
        self.group = Group(
            # Always a new connection: an attempt that was given up may still hold the one before.
            lambda: connect_store(leader.host, leader.store_port),
            self.rank,
            len(generation.members),
            device=place.device,
            interface=place.interface,
            generation=generation.number,
            waiting=waiting,
        )

    def positions(self, own: int) -> list[int]:
        """Everybody's position, in rank order; `own` is this member's."""
        return self._told(own)

    def lowest(self, own: int) -> int:
        """The smallest of everybody's numbers; `own` is this member's.

        Raises:
            RuntimeError: a member is gone.
        """
        return own if self.world == 1 else min(self._told(own))

    def _told(self, own: int) -> list[int]:
        found = torch.empty(self.world, dtype=torch.int64)
        self.group.all_gather(found, torch.tensor([own])).wait()
        return [int(position) for position in found]

    @property
    def number(self) -> int:
        """The generation's number."""
        return self.generation.number

    @property
    def world(self) -> int:
        """How many members there are."""
        return len(self.generation.members)

    def owner(self, shard: int) -> Member:
        """The member that computes a shard."""
        for rank, block in enumerate(blocks(self._shards, self.world)):
            if shard in block:
                return self.generation.members[rank]
        raise IndexError(f"shard {shard} of {self._shards}")

    def close(self) -> None:
        """Drop the group."""
        self.group.close()


def rank_of(generation: Generation, worker: int) -> int:
    """A worker's rank in a generation; ValueError when it is not a member."""
    return [member.worker for member in generation.members].index(worker)


def is_member(generation: Generation, worker: int) -> bool:
    """Whether a worker belongs to a generation."""
    return any(member.worker == worker for member in generation.members)


def handover(positions: Sequence[int]) -> Handover:
    """Who gives the state to whom: everybody below the highest position takes it, taker j from giver j mod G.

    Args:
        positions: of the members in rank order, `NO_STATE` for one that has none.
    """
    best = max(positions)
    nobody = best == NO_STATE
    givers = [0] if nobody else [rank for rank, position in enumerate(positions) if position == best]
    takers = [rank for rank in range(len(positions)) if rank not in givers]
    takes = {taker: givers[j % len(givers)] for j, taker in enumerate(takers)}
    gives: dict[int, tuple[int, ...]] = {}
    for taker, giver in takes.items():
        gives[giver] = (*gives.get(giver, ()), taker)
    return Handover(gives, takes, nobody)
