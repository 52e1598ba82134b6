"""Which generation this worker is a member of, and the group that goes with it.

A change goes from one generation to the next, at a boundary that all members of the old one know. What happens to
each worker follows from the two member lists alone, so nobody has to ask anybody. The supervisor decides who the
members are; this file never does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._C._distributed_c10d import Store

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.link import Generation, Member
from edt_sdk.training.blocks import blocks
from edt_sdk.training.group import Group, connect_store


@dataclass(frozen=True, slots=True)
class Place:
    """How this worker reaches the others.

    Attributes:
        worker: its number within the job.
        store: its own store; used by all when it is rank 0.
        device: where its tensors live.
        interface: address that process groups bind to.
    """

    worker: int
    store: Store
    device: torch.device
    interface: str


@dataclass(frozen=True, slots=True)
class Handover:
    """Who gives the state to whom when a generation begins, by rank: joiner j gets it from survivor j mod S."""

    gives: dict[int, tuple[int, ...]]
    takes: dict[int, int]


class Membership:
    """One worker's membership in one generation.

    Args:
        generation: its members; this worker is one.
        place: how to reach them.
        shards: V.
    """

    def __init__(self, generation: Generation, place: Place, shards: int) -> None:
        self.generation = generation
        self.rank = rank_of(generation, place.worker)
        self.block = blocks(shards, len(generation.members))[self.rank]
        self._shards = shards
        leader = generation.members[0]
        if self.rank == 0 or len(generation.members) == 1:
            store = place.store
        else:
            store = connect_store(leader.host, leader.store_port)
        self.group = Group(
            store,
            self.rank,
            len(generation.members),
            device=place.device,
            interface=place.interface,
            generation=generation.number,
        )

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


def survivors(generation: Generation) -> tuple[Member, ...]:
    """The members that were in the generation before."""
    return tuple(member for member in generation.members if not member.fresh)


def handover(generation: Generation) -> Handover:
    """Who gives the state to whom; empty where all begin with the payload, or nobody joins."""
    stay = [rank for rank, member in enumerate(generation.members) if not member.fresh]
    join = [rank for rank, member in enumerate(generation.members) if member.fresh]
    if not stay:
        return Handover({}, {})
    takes = {rank: stay[j % len(stay)] for j, rank in enumerate(join)}
    gives = {giver: tuple(rank for rank in join if takes[rank] == giver) for giver in stay}
    return Handover(gives, takes)


def check_succession(before: Generation, after: Generation) -> None:
    """Conflict when nobody stays: the state of the training would be lost."""
    if not survivors(after):
        raise Conflict(f"Generation {after.number} keeps no worker of generation {before.number}.")
