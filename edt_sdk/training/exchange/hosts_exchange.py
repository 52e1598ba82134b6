"""Sum the vectors of an update over members on several hosts: within each host by its memory, then between the hosts.

Ranks are numbered host by host, so the shards of a host are a few whole subtrees of the fixed tree. Its members first
add up to the sums of these subtrees, and only those travel: with eight workers on each of two hosts an eighth of what
they would send one by one (`group_exchange.py`). The tree is the same, and so are the bits.

A vector is cut into as many lanes as the smallest host has members. The l-th members of all hosts sum lane l between
them, and leave the result in their windows, where the other members of their hosts read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from edt_sdk.training.exchange.blocks import blocks, subtrees
from edt_sdk.training.exchange.group import Group, Handle
from edt_sdk.training.exchange.group_exchange import Piece, PieceInTree, Pieces, Scratch
from edt_sdk.training.exchange.shared_exchange import Neighbours, SharedExchange, Summands


class Lane:
    """The members with the same number on their hosts, as a group. The other members send nothing meanwhile.

    `number` is this member's own, and `joined` whether it has a lane.
    """

    def __init__(self, neighbours: Neighbours) -> None:
        self._group: Group = neighbours.group
        self.number = self._group.rank - neighbours.here.start
        self.world = len(neighbours.hosts)
        self.joined = self.number < neighbours.lanes
        self._ranks = [ranks[self.number] for ranks in neighbours.hosts] if self.joined else []

    def all_to_all(self, output: Tensor, input: Tensor, out_splits: Sequence[int], in_splits: Sequence[int]) -> Handle:
        """Send the h-th split of `input` to the lane's member on host h, and receive one from each."""
        return self._group.all_to_all(output, input, self._spread(out_splits), self._spread(in_splits))

    def all_gather(self, output: Tensor, input: Tensor) -> Handle:
        """Gather `input` of all members of the lane into `output`, in the order of the hosts."""
        splits = [len(input)] * self.world
        # Not the group's own, which would send it to all members.
        return self.all_to_all(output, input.repeat(self.world), splits, splits)

    def _spread(self, splits: Sequence[int]) -> list[int]:
        spread = [0] * self._group.world
        for rank, length in zip(self._ranks, splits, strict=True):
            spread[rank] = length
        return spread


class _Elsewhere(Piece):
    """Takes part in the transfers of a piece that other lanes sum: all members call all transfers."""

    def __init__(self, lane: Lane, like: Tensor) -> None:
        self._lane = lane
        self._nothing = like.new_empty(0)
        self._handle = lane.all_to_all(self._nothing, self._nothing, [], [])

    def finish(self) -> None:
        self._handle.wait()
        self._handle = self._lane.all_to_all(self._nothing, self._nothing, [], [])

    def wait(self) -> None:
        self._handle.wait()


@dataclass(frozen=True, slots=True, eq=False)
class HostsExchange(SharedExchange):
    """A `SharedExchange` whose members are on several hosts. `scratch` is memory for what travels."""

    scratch: Scratch

    def _add_up(self) -> None:
        """Sum this member's lane over all hosts into the memory that the other members of its host will read."""
        neighbours, lane, pieces = self.neighbours, Lane(self.neighbours), Pieces()
        world, counts = neighbours.group.world, self.counts
        of_ranks = blocks(len(counts), world)
        shares = [range(of_ranks[ranks.start].start, of_ranks[ranks.stop - 1].stop) for ranks in neighbours.hosts]
        ours = shares[neighbours.hosts.index(neighbours.here)]
        roots = [node for node in subtrees(ours, len(counts)) if any(counts[node.start : node.stop])]
        if self.fast:
            # A member has one vector for its whole block, which is no subtree. So each host counts as one shard.
            roots = roots[:1]
            counts = [sum(self.counts[share.start : share.stop]) for share in shares]
            shares = [range(host, host + 1) for host in range(len(shares))]
        summands, results = Summands(neighbours, self.counts, fast=self.fast), neighbours.results(self.total)
        # Not the window itself: the library may still write into what it received when a member is lost.
        received: list[Tensor] = []
        for (section, span), result in zip(neighbours.spans, results, strict=True):
            if not lane.joined:
                pieces.add(_Elsewhere(lane, result))
                continue
            parts = [self.scratch.take(result, len(result)) for _ in roots]
            for root, part in zip(roots, parts, strict=True):
                summands.add(section, neighbours.lane(span, lane.number), part, root=root)
            received.append(self.scratch.take(result, len(result)))
            pieces.add(PieceInTree(lane, shares, parts, counts, received[-1], self.divisor, self.scratch, lent=True))
        pieces.finish()
        for result, values in zip(results, received, strict=False):
            result.copy_(values)
            self.scratch.give_back(values)
