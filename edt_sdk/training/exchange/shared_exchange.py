"""Sum the vectors of an update over members that share a host: each reads the others' vectors in place.

The members send each other only signals (decision 012). Each rank writes the addresses of its subtree sums on its
notice board. When all records have arrived, rank r adds up the r-th slice of all ranks in the order of the fixed tree,
divides it, and leaves it in its window. After a barrier every rank copies all slices. The additions are those of
`group_exchange.py`, element by element, so the bits do not depend on the method. A slice is summed in chunks that stay
in the cache of a core, so memory is read once and written once.

A member writes only into its own window, and only after all others have finished with the old content. They signal this
by reaching the next collective. Other members may therefore read a member that has lost the group and computes again,
but what they read is never committed, because a commit needs another collective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import iadd

import torch
from torch import Tensor

from edt_sdk.training.exchange.blocks import blocks, subtrees
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.memory_window import Address, View, Window, touch
from edt_sdk.training.exchange.reduction_plan import Move
from edt_sdk.training.exchange.tree import ShardNode, finish

CHUNK = 128 << 10
"""Bytes of a slice that are summed at once. Together with the summands they should fit the cache of a core."""

# Words of the notice board. Word 0 is the token of the window.
_RESULT, _SUMS = 1, 2


class Result:
    """Allocates memory in this member's window for its finished slices, without gaps."""

    def __init__(self, layout: Layout, window: Window) -> None:
        self._layout = layout
        # With two ranks the slices are largest. Memory that is never written costs nothing.
        self.start, self._memory = window.allocate(layout.slices_nbytes(2))

    def slices(self, world: int) -> tuple[Tensor, ...]:
        """Return the slices for `world` ranks, in the order of the layout's spans."""
        return self._layout.slices(self._memory, world)

    def touch(self, world: int) -> None:
        """Make the kernel provide the pages that `world` ranks need. Thread-safe."""
        touch(self._memory[: self._layout.slices_nbytes(world)])


class Neighbour:
    """Reads the window of another member, and caches the mappings."""

    def __init__(self, view: View, layout: Layout) -> None:
        self._view = view
        self._layout = layout
        self._vectors: dict[int, tuple[Tensor, ...]] = {}
        self._results: dict[int, Tensor] = {}

    def sums(self, count: int) -> list[tuple[Tensor, ...]]:
        """Return the sections of the member's sums at their announced addresses."""
        starts = self._view.board[_SUMS : _SUMS + count].tolist()
        for start in starts:
            if start not in self._vectors:
                self._vectors[start] = self._layout.sections(self._view.memory(start, self._layout.nbytes))
        return [self._vectors[start] for start in starts]

    def slices(self, world: int) -> tuple[Tensor, ...]:
        """Return the member's finished slices at their announced address."""
        start = int(self._view.board[_RESULT])
        if start not in self._results:
            self._results[start] = self._view.memory(start, self._layout.slices_nbytes(2))
        return self._layout.slices(self._results[start], world)


class Neighbours:
    """Connects the members of a group that can all read each other's windows. Created by `meet`.

    `known` are the members by address, in rank order. The next group reuses the mappings of members it keeps.
    """

    def __init__(
        self, group: Group, layout: Layout, window: Window, members: Mapping[Address, Neighbour], result: Result
    ) -> None:
        self.group = group
        self.known = members
        self.spans = layout.spans(group.world, layout.nbytes)
        self.result = result.slices(group.world)
        self._start = result.start
        self._board = window.board
        self._members = tuple(members.values())

    def announce(self, sums: Sequence[Flat]) -> None:
        """Write the addresses of this member's sums and finished slices on the notice board."""
        # Written before the records travel. Their all-gather orders these writes before any read by another member.
        self._board[_RESULT] = self._start
        for word, vector in enumerate(sums, _SUMS):
            if vector.start is None:
                raise ValueError("a vector outside the window cannot be read by others")
            self._board[word] = vector.start

    def sums(self, rank: int, count: int) -> list[tuple[Tensor, ...]]:
        """Return the sections of a member's sums at their announced addresses."""
        return self._members[rank].sums(count)

    def results(self, rank: int) -> tuple[Tensor, ...]:
        """Return a member's finished slices, one per span."""
        return self._members[rank].slices(self.group.world)


def meet(
    group: Group, layout: Layout, window: Window | None, result: Result | None, known: Mapping[Address, Neighbour]
) -> Neighbours | None:
    """Open each other's windows. None on all members when any cannot read another. Every member must call it.

    `result` is memory in this member's window, and `known` are the members of the previous group.
    """
    ours = torch.zeros(3, dtype=torch.int64)
    if window is not None:
        address = window.address
        ours = torch.tensor([address.pid, address.descriptor, address.token])
    # Zeros stand for a member without a window. They match no address, so opening fails and all members use transfers.
    addresses = ours.new_empty(3 * group.world)
    group.all_gather(addresses, ours).wait()
    members: dict[Address, Neighbour] = {}
    for pid, descriptor, token in addresses.view(-1, 3).tolist():
        address = Address(pid, descriptor, token)
        try:
            members[address] = known.get(address) or Neighbour(View(address), layout)
        except OSError:  # on another host, of another user, or gone: the next transfer shows which
            break
    # All members must use the same method, or a transfer would wait for a member that reads memory. So agree on it.
    all_seen = torch.empty(group.world, dtype=torch.uint8)
    group.all_gather(all_seen, torch.tensor([len(members) == group.world], dtype=torch.uint8)).wait()
    if window is None or result is None or not bool(all_seen.all()):
        return None
    return Neighbours(group, layout, window, members, result)


@dataclass(frozen=True, slots=True, eq=False)
class SharedExchange:
    """Sums all shards' vectors of an update and divides the sum by `divisor`.

    Attributes:
        counts: samples of all V shards.
        sums: this rank's vectors with the sums of its subtrees, left to right. All additions to them are complete when
            `start_all` is called.
        total: takes the result. May be one of the sums.
        fast: add the vectors in rank order, one from each rank.
    """

    neighbours: Neighbours
    counts: Sequence[int]
    divisor: float
    sums: Sequence[Flat]
    total: Flat
    fast: bool

    def follow(self, move: Move) -> None:
        """Do nothing: without transfers there is no time to save before the last shard is done."""

    def start_all(self) -> None:
        """Let the other members read this member's sums."""
        self.neighbours.announce(self.sums)

    def finish(self) -> Flat:
        """Return the total. Call it only after a collective that all members entered after their `start_all`.

        RuntimeError when a member is gone: the total is undefined then.
        """
        group = self.neighbours.group
        self._add_up()
        # Without this barrier a member could copy a slice that its owner is still summing. The next collective, in
        # which all copies are complete, lets each member overwrite its window. Flags in shared memory were rejected:
        # 0.1 ms faster, but a wait on them would never notice a death (decision 012).
        group.barrier()
        for rank in range(group.world):
            theirs = self.neighbours.results(rank)
            for (section, span), values in zip(self.neighbours.spans, theirs, strict=True):
                self.total.sections[section][_slice_of(span, rank, group.world)].copy_(values)
        return self.total

    def _add_up(self) -> None:
        """Sum this rank's slices of all vectors into the memory that the other members will read."""
        neighbours, group = self.neighbours, self.neighbours.group
        nodes, vectors = self._summands()
        for (section, span), result in zip(neighbours.spans, neighbours.result, strict=True):
            ours = _slice_of(span, group.rank, group.world)
            length = CHUNK // result.element_size()
            # For intermediate sums. Each sum begins with a leaf of its own, so there are fewer sums than leaves.
            memory = [result.new_empty(length) for _ in vectors]
            # Chunk by chunk over all summands: each chunk of each vector is read once and stays in the cache.
            for start in range(ours.start, ours.stop, length):
                chunk = slice(start, min(start + length, ours.stop))
                scratch = [each[: chunk.stop - chunk.start] for each in memory]
                leaves = [_Summand(vector[section][chunk], scratch) for vector in vectors]
                if self.fast:
                    total = reduce(iadd, leaves)
                else:
                    found = iter(leaves)
                    parts = {node: next(found) if filled else None for node, filled in nodes}
                    some = finish(parts, len(self.counts))
                    assert some is not None, "a step has at least one sample"
                    total = some
                torch.div(total.value, self.divisor, out=result[chunk.start - ours.start : chunk.stop - ours.start])

    def _summands(self) -> tuple[list[tuple[ShardNode, bool]], list[tuple[Tensor, ...]]]:
        """Return all ranks' subtrees with a flag for samples, and the vectors of the subtrees that have samples."""
        world, shards = self.neighbours.group.world, len(self.counts)
        nodes: list[tuple[ShardNode, bool]] = []
        vectors: list[tuple[Tensor, ...]] = []
        for rank, block in enumerate(blocks(shards, world)):
            of_rank = [(node, any(self.counts[node.start : node.stop])) for node in subtrees(block, shards)]
            nodes += of_rank
            filled = sum(filled for _, filled in of_rank)
            # In mode `fast` a rank has one vector for its whole block, whatever number of subtrees that is.
            vectors += self.neighbours.sums(rank, min(1, filled) if self.fast else filled)
        return nodes, vectors


class _Summand:
    """Wraps a leaf, which must not change, or an intermediate sum, which may be added to."""

    __slots__ = ("_ours", "_scratch", "value")

    def __init__(self, value: Tensor, scratch: list[Tensor], *, ours: bool = False) -> None:
        self.value = value
        self._scratch = scratch
        self._ours = ours

    def __iadd__(self, other: _Summand) -> _Summand:
        # A leaf is another member's memory. The first addition therefore goes to scratch, later ones are in place.
        if self._ours:
            self.value.add_(other.value)
            return self
        return _Summand(torch.add(self.value, other.value, out=self._scratch.pop()), self._scratch, ours=True)


def _slice_of(span: slice, rank: int, world: int) -> slice:
    length = (span.stop - span.start) // world
    return slice(span.start + rank * length, span.start + (rank + 1) * length)
