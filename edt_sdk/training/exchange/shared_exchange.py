"""One update's sum over members that share a host: each reads the others' vectors where they lie.

Nothing is sent but word that something is ready. Each rank writes on its notice board where the sums of its subtrees
are; when all have come, rank r adds up the r-th slice of everybody's, in the order of the fixed tree, divides it, and
leaves it in its window; when all are done, everybody copies the slices together. The additions are those of
`exchange.py`, element by element, so the bits are the same whichever of the two is used. A slice is added up in chunks
that stay in the cache of a core: the memory is read once and written once.

Every member writes only into its own window, and only after all others have finished with what was there: they tell so
by coming to the next meeting. A member that lost the others can therefore be read while it computes again, and what is
read then is never committed: that would take another meeting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import iadd

import torch
from torch import Tensor

from edt_sdk.training.exchange.blocks import blocks, subtrees
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.memory_window import Address, View, Window, touch
from edt_sdk.training.exchange.reduction_plan import Move
from edt_sdk.training.exchange.tree import Node, finish

CHUNK = 128 << 10
"""Bytes of a slice that are added up at once; with the summands' they should fit the cache of a core."""

# Words of the notice board: 0 is the window's token.
_RESULT, _SUMS = 1, 2


class Result:
    """Where one member's finished slices lie: memory of its window, one slice behind the other.

    Args:
        layout: of the vectors.
        window: this member's.
    """

    def __init__(self, layout: Layout, window: Window) -> None:
        self._layout = layout
        # Of two ranks each has the largest slices; memory that is never written costs nothing.
        self.start, self._memory = window.allocate(layout.slices_nbytes(2))

    def slices(self, world: int) -> tuple[Tensor, ...]:
        """Its slices when there are `world` ranks, in the order of the layout's spans."""
        return self._layout.slices(self._memory, world)

    def touch(self, world: int) -> None:
        """Let the system provide what `world` ranks need. From any thread."""
        touch(self._memory[: self._layout.slices_nbytes(world)])


class Neighbour:
    """One member's window, and what has been looked at in it.

    Args:
        view: of the window.
        layout: of everybody's vectors.
    """

    def __init__(self, view: View, layout: Layout) -> None:
        self._view = view
        self._layout = layout
        self._vectors: dict[int, tuple[Tensor, ...]] = {}
        self._results: dict[int, Tensor] = {}

    def sums(self, count: int) -> list[tuple[Tensor, ...]]:
        """The sections of its sums, as it announced them."""
        return [self._vector(int(start)) for start in self._view.board[_SUMS : _SUMS + count]]

    def slices(self, world: int) -> tuple[Tensor, ...]:
        """Its finished slices, where it announced them."""
        start = int(self._view.board[_RESULT])
        if start not in self._results:
            self._results[start] = self._view.memory(start, self._layout.slices_nbytes(2))
        return self._layout.slices(self._results[start], world)

    def _vector(self, start: int) -> tuple[Tensor, ...]:
        found = self._vectors.get(start)
        if found is None:
            memory = self._view.memory(start, self._layout.nbytes)
            found = self._vectors[start] = self._layout.sections(memory)
        return found


class Neighbours:
    """The members of a group that all see each other's windows; made by `meet`.

    Args:
        group: the members.
        layout: of everybody's vectors.
        window: this member's.
        members: of the group, by rank, with the addresses of their windows.
        result: takes this member's finished slices.

    Attributes:
        known: the members by address; who is in the next group too need not be looked at anew.
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
        """Write on the notice board where this member's sums and finished slices are."""
        self._board[_RESULT] = self._start
        for word, vector in enumerate(sums, _SUMS):
            if vector.start is None:
                raise ValueError("a vector outside the window cannot be read by others")
            self._board[word] = vector.start

    def sums(self, rank: int, count: int) -> list[tuple[Tensor, ...]]:
        """The sections of a member's sums, as it announced them."""
        return self._members[rank].sums(count)

    def results(self, rank: int) -> tuple[Tensor, ...]:
        """A member's finished slices, one for each of the spans."""
        return self._members[rank].slices(self.group.world)


def meet(
    group: Group, layout: Layout, window: Window | None, result: Result | None, known: Mapping[Address, Neighbour]
) -> Neighbours | None:
    """Look at each other's windows; None, for all, when somebody cannot see somebody. Every member must call it.

    Args:
        group: the members.
        layout: of everybody's vectors.
        layout: of everybody's vectors.
        window: this member's; None for none.
        result: in it.
        known: members of the group before.

    Raises:
        RuntimeError: a member is gone.
    """
    ours = torch.zeros(3, dtype=torch.int64)
    if window is not None:
        address = window.address
        ours = torch.tensor([address.pid, address.descriptor, address.token])
    addresses = ours.new_empty(3 * group.world)
    group.all_gather(addresses, ours).wait()
    members: dict[Address, Neighbour] = {}
    for pid, descriptor, token in addresses.view(-1, 3).tolist():
        address = Address(pid, descriptor, token)
        try:
            members[address] = known.get(address) or Neighbour(View(address), layout)
        except OSError:  # on another host, of another user, or gone: that will be seen at the next transfer
            break
    all_seen = torch.empty(group.world, dtype=torch.uint8)
    group.all_gather(all_seen, torch.tensor([len(members) == group.world], dtype=torch.uint8)).wait()
    if window is None or result is None or not bool(all_seen.all()):
        return None
    return Neighbours(group, layout, window, members, result)


class SharedExchange:
    """The sum of all shards' vectors of one update, divided by `divisor`.

    Args:
        neighbours: the members.
        counts: samples of all V shards.
        divisor: of the sum.
        sums: this rank's vectors that hold the sums of its subtrees, left to right; all additions to them are done
            when `start_all` is called.
        total: becomes the result; may be one of the sums.
        fast: add the vectors in the order of the ranks, one from each.

    Attributes:
        total: holds the result after `finish`.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        counts: Sequence[int],
        divisor: float,
        sums: Sequence[Flat],
        total: Flat,
        *,
        fast: bool,
    ) -> None:
        self.total = total
        self._neighbours = neighbours
        self._counts = counts
        self._divisor = divisor
        self._sums = sums
        self._fast = fast

    def follow(self, move: Move) -> None:
        """Nothing leaves before the last shard is done: there is no transfer whose time could be saved."""

    def start_all(self) -> None:
        """Let the others read."""
        self._neighbours.announce(self._sums)

    def finish(self) -> Flat:
        """The total. Only after all members have met behind their `start_all`.

        Raises:
            RuntimeError: a member is gone; the total is undefined then.
        """
        group = self._neighbours.group
        self._add_up()
        group.barrier()
        for rank in range(group.world):
            theirs = self._neighbours.results(rank)
            for (section, span), values in zip(self._neighbours.spans, theirs, strict=True):
                self.total.sections[section][_slice_of(span, rank, group.world)].copy_(values)
        return self.total

    def _add_up(self) -> None:
        """Our slices of everybody's sums, into the vector that the others will look at."""
        neighbours, group = self._neighbours, self._neighbours.group
        nodes, vectors = self._summands()
        for (section, span), result in zip(neighbours.spans, neighbours.result, strict=True):
            ours = _slice_of(span, group.rank, group.world)
            scratch = _Scratch(result)
            for start in range(ours.start, ours.stop, scratch.length):
                chunk = slice(start, min(start + scratch.length, ours.stop))
                scratch.rewind(chunk.stop - chunk.start)
                leaves = [_Summand(vector[section][chunk], scratch) for vector in vectors]
                if self._fast:
                    total = reduce(iadd, leaves)
                else:
                    found = iter(leaves)
                    parts = {node: next(found) if filled else None for node, filled in nodes}
                    some = finish(parts, len(self._counts))
                    assert some is not None, "a step has at least one sample"
                    total = some
                torch.div(total.value, self._divisor, out=result[chunk.start - ours.start : chunk.stop - ours.start])

    def _summands(self) -> tuple[list[tuple[Node, bool]], list[tuple[Tensor, ...]]]:
        """The subtrees of all ranks with whether they have samples, and the vectors of those that have."""
        world, shards = self._neighbours.group.world, len(self._counts)
        nodes: list[tuple[Node, bool]] = []
        vectors: list[tuple[Tensor, ...]] = []
        for rank, block in enumerate(blocks(shards, world)):
            of_rank = [(node, any(self._counts[node.start : node.stop])) for node in subtrees(block, shards)]
            nodes += of_rank
            filled = sum(filled for _, filled in of_rank)
            vectors += self._neighbours.sums(rank, min(1, filled) if self._fast else filled)
        return nodes, vectors


class _Scratch:
    """A few chunks of memory for sums on their way."""

    def __init__(self, like: Tensor) -> None:
        self.length = CHUNK // like.element_size()
        self._like = like
        self._chunks: list[Tensor] = []
        self._used = 0
        self._wanted = self.length

    def rewind(self, length: int) -> None:
        """All may be used again, for chunks of that length."""
        self._used = 0
        self._wanted = length

    def take(self) -> Tensor:
        if self._used == len(self._chunks):
            self._chunks.append(self._like.new_empty(self.length))
        self._used += 1
        return self._chunks[self._used - 1][: self._wanted]


class _Summand:
    """A leaf of a sum that must stay as it is, or a sum that may be added to."""

    __slots__ = ("_ours", "_scratch", "value")

    def __init__(self, value: Tensor, scratch: _Scratch, *, ours: bool = False) -> None:
        self.value = value
        self._scratch = scratch
        self._ours = ours

    def __iadd__(self, other: _Summand) -> _Summand:
        if self._ours:
            self.value.add_(other.value)
            return self
        return _Summand(torch.add(self.value, other.value, out=self._scratch.take()), self._scratch, ours=True)


def _slice_of(span: slice, rank: int, world: int) -> slice:
    length = (span.stop - span.start) // world
    return slice(span.start + rank * length, span.start + (rank + 1) * length)
