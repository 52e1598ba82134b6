"""Hold this worker's membership in a generation, with the process group of that generation.

The supervisor decides which workers are members, and nothing else. The members exchange their positions in the
schedule, and from these follows which member gives its state to which. This works the same way for growth, after a
death and at a start from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._C._distributed_c10d import Store

from edt_sdk.schemas.wire.link import Generation
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group, connect_store


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Describes how this worker and the other members reach each other.

    All members use this worker's own `store` while it is rank 0 and this object lives. Process groups bind to the
    address `interface`.
    """

    worker: int
    store: Store
    device: torch.device
    interface: str


NO_STATE = -1
"""The position of a worker that has no state, or only a part of one."""


@dataclass(frozen=True, slots=True)
class Handover:
    """Assigns the ranks that give their state to the ranks that take it.

    Attributes:
        gives: giver → takers, without a key for a rank that gives nothing.
        takes: taker → giver.
        none_has_state: no member has a state, so rank 0 loads one before it gives.
    """

    gives: dict[int, tuple[int, ...]]
    takes: dict[int, int]
    none_has_state: bool


class GroupMembership:
    """Represents a worker's membership in a generation of V `shards`.

    `waiting` is called repeatedly until all members are there. Raise in it to give up. RuntimeError in any method means
    that another member is gone.
    """

    def __init__(self, endpoint: Endpoint, shards: int, generation: Generation, waiting: Callable[[], None]) -> None:
        self.generation = generation
        self.number = generation.number
        self.world = len(generation.members)
        self.rank = rank_of(generation, endpoint.worker)
        self.block = blocks(shards, self.world)[self.rank]
        self.spans_hosts = len({member.host for member in generation.members}) > 1
        leader = generation.members[0]
        self.group = Group(
            # Always a new connection: the thread of an attempt that was given up may still use the last one.
            lambda: connect_store(leader.host, leader.store_port),
            self.rank,
            self.world,
            device=endpoint.device,
            interface=endpoint.interface,
            generation=generation.number,
            waiting=waiting,
        )

    def gathered(self, own: int) -> list[int]:
        """Return the numbers of all members in rank order. `own` is this member's."""
        found = torch.empty(self.world, dtype=torch.int64)
        self.group.all_gather(found, torch.tensor([own])).wait()
        return [int(number) for number in found]

    def has_lost(self, gone: frozenset[int]) -> bool:
        """Return whether one of these workers is a member."""
        return any(member.worker in gone for member in self.generation.members)

    def close(self) -> None:
        """Close the group."""
        self.group.close()


def rank_of(generation: Generation, worker: int) -> int:
    """Return a worker's rank in a generation. ValueError when the worker is not a member."""
    return [member.worker for member in generation.members].index(worker)


def is_member(generation: Generation, worker: int) -> bool:
    """Return whether a worker belongs to a generation."""
    return any(member.worker == worker for member in generation.members)


def handover(positions: Sequence[int]) -> Handover:
    """Assign givers and takers: a rank below the highest position takes the state, taker j from giver j mod G.

    The positions are in rank order, `NO_STATE` for a member without a state.
    """
    best = max(positions)
    none_has_state = best == NO_STATE
    givers = [0] if none_has_state else [rank for rank, position in enumerate(positions) if position == best]
    takers = [rank for rank in range(len(positions)) if rank not in givers]
    # Takers are spread over all givers, so that several transfers run at the same time.
    takes = {taker: givers[j % len(givers)] for j, taker in enumerate(takers)}
    gives: dict[int, tuple[int, ...]] = {}
    for taker, giver in takes.items():
        gives[giver] = (*gives.get(giver, ()), taker)
    return Handover(gives, takes, none_has_state)
