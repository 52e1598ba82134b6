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

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import iadd

import torch
from torch import Tensor

from edt_sdk.training.exchange.blocks import blocks, subtrees
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.group_exchange import PIECE
from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.memory_window import IN_PLACE, TELLS_HOSTS, Address, View, Window
from edt_sdk.training.exchange.reduction_plan import Move
from edt_sdk.training.exchange.tree import ShardNode, finish

CHUNK = 128 << 10
"""Bytes of a slice that are summed at once. Together with the summands they should fit the cache of a core."""

LEAST_PIECE = 1 << 20
"""Bytes of the smallest piece that travels between hosts."""

LEAST_IN_PLACE = 32 << 20
"""Bytes of a vector from which finished slices lie in it, and not apart: another barrier costs less than the memory."""

Spans = Sequence[tuple[int, slice]]
# Words of the notice board. Word 0 is the token of the window.
_RESULT, _SUMS = 1, 2


class Result:
    """Allocates memory in this member's window for its finished slices, without gaps.

    For small vectors, and for groups with a member of a version that reads them there. Until it is written it costs
    nothing.
    """

    def __init__(self, layout: Layout, window: Window) -> None:
        self._layout = layout
        # Where one member adds up for its whole host, its slice is everything.
        self.start, self._memory = window.allocate(layout.nbytes)

    def slices(self, spans: Spans, count: int) -> tuple[Tensor, ...]:
        """Return this member's slices of these spans, each of which is cut into `count`."""
        return self._layout.slices(self._memory, spans, count)


class Neighbour:
    """Reads the window of another member, and caches the mappings."""

    def __init__(self, view: View, layout: Layout) -> None:
        self._view = view
        self._layout = layout
        self._vectors: dict[int, tuple[Tensor, ...]] = {}

    def sums(self, count: int) -> list[tuple[Tensor, ...]]:
        """Return the sections of the member's sums at their announced addresses."""
        return [self._vector(start) for start in self._view.board[_SUMS : _SUMS + count].tolist()]

    def total(self) -> tuple[Tensor, ...]:
        """Return the sections of the vector with the member's finished slices, at its announced address."""
        return self._vector(int(self._view.board[_RESULT]))

    def slices(self, spans: Spans, count: int) -> tuple[Tensor, ...]:
        """Return the finished slices of a member that leaves them apart. See `Result.slices`."""
        memory = self._view.memory(int(self._view.board[_RESULT]), self._layout.nbytes)
        return self._layout.slices(memory, spans, count)

    def _vector(self, start: int) -> tuple[Tensor, ...]:
        if start not in self._vectors:
            self._vectors[start] = self._layout.sections(self._view.memory(start, self._layout.nbytes))
        return self._vectors[start]


class Neighbours:
    """Connects the members of a group that share a host, and so can read each other's windows. Created by `meet`.

    Attributes:
        known: these members by address, in rank order. The next group reuses the mappings of members it keeps.
        hosts: the ranks of each host. With several hosts the sums of each travel to the others (`hosts_exchange.py`).
        here: the ranks of this one.
        lanes: how many of the members here add up. Each has an equal slice of every span.
        spans: the pieces of a vector.

    `apart` is memory in this member's window for its finished slices, None where they lie in its vector itself.
    """

    def __init__(
        self,
        group: Group,
        hosts: tuple[range, ...],
        layout: Layout,
        window: Window,
        members: Mapping[Address, Neighbour],
        apart: Result | None,
    ) -> None:
        self.group = group
        self.known = members
        self.hosts = hosts
        self.here = next(ranks for ranks in hosts if group.rank in ranks)
        # On the host with the fewest members each of them has a lane.
        self.lanes = min(map(len, hosts))
        # Between hosts several pieces are under way at once. Within a host nothing travels.
        limit = layout.nbytes if len(hosts) == 1 else min(PIECE, max(LEAST_PIECE, layout.nbytes // 4))
        self.spans = layout.spans(self.lanes * len(hosts), limit)
        self._own = group.rank - self.here.start
        self._apart = apart
        self._board = window.board
        self._members = tuple(members.values())

    def announce(self, sums: Sequence[Flat], total: Flat) -> None:
        """Write the addresses of this member's sums and finished slices on the notice board."""
        # Written before the records travel. Their all-gather orders these writes before any read by another member.
        for word, vector in ((_RESULT, self._apart or total), *enumerate(sums, _SUMS)):
            if vector.start is None:
                raise ValueError("a vector outside the window cannot be read by others")
            self._board[word] = vector.start

    def results(self, total: Flat) -> tuple[Tensor, ...]:
        """Return the memory for this member's finished slices, one for each span.

        In its vector no other member reads them before: each adds up its own slice alone.
        """
        if self._apart is not None:
            return self._apart.slices(self.spans, self.lanes)
        return tuple(total.sections[section][self.lane(span, self._own)] for section, span in self.spans)

    def sums(self, rank: int, count: int) -> list[tuple[Tensor, ...]]:
        """Return the sections of a member's sums at their announced addresses."""
        return self._members[rank - self.here.start].sums(count)

    def lane(self, span: slice, number: int) -> slice:
        """Return the slice of a span that the member with this number on its host adds up."""
        length = (span.stop - span.start) // self.lanes
        return slice(span.start + number * length, span.start + (number + 1) * length)

    def collect(self, total: Flat) -> None:
        """Copy the finished slices of all members here into `total`. All members must call it."""
        # Without this barrier a member could copy a slice that its owner is still summing. The next collective, in
        # which all copies are complete, lets each member overwrite its window. Flags in shared memory were rejected:
        # 0.1 ms faster, but a wait on them would never notice a death (decision 012).
        self.group.barrier()
        for number, member in enumerate(self._members[: self.lanes]):
            if self._apart is not None:
                theirs = member.slices(self.spans, self.lanes)
            elif number == self._own:
                continue
            else:
                vector = member.total()
                theirs = tuple(vector[section][self.lane(span, number)] for section, span in self.spans)
            for (section, span), values in zip(self.spans, theirs, strict=True):
                total.sections[section][self.lane(span, number)].copy_(values)
        if self._apart is None:
            # The next update begins to overwrite the vector at once.
            self.group.barrier()


def hosts_of(seen: Sequence[Sequence[int]]) -> tuple[range, ...] | None:
    """Return the ranks of each host from which member (a row) can read whose window. Pure.

    None where a member cannot even read its own, or where the members of a host do not follow each other.
    """
    hosts: list[range] = []
    start = 0
    while start < len(seen):
        ranks = range(start, start + sum(map(bool, seen[start])))
        expected = [rank in ranks for rank in range(len(seen))]
        if not ranks or ranks.stop > len(seen) or any([*map(bool, seen[rank])] != expected for rank in ranks):
            return None
        hosts.append(ranks)
        start = ranks.stop
    return tuple(hosts)


def meet(
    group: Group, layout: Layout, window: Window | None, result: Result | None, known: Mapping[Address, Neighbour]
) -> Neighbours | None:
    """Open each other's windows. None on all members where no two of them share a host. Every member must call it.

    `result` is memory in this member's window, and `known` are the members of the previous group.
    """
    ours = torch.zeros(3, dtype=torch.int64)
    if window is not None:
        address = window.address
        ours = torch.tensor([address.pid, address.descriptor, address.token])
    # Zeros stand for a member without a window. They match no address, so opening fails and all members use transfers.
    addresses = ours.new_empty(3 * group.world)
    group.all_gather(addresses, ours).wait()
    tells_hosts = all(token & TELLS_HOSTS for token in addresses[2::3].tolist())
    members: dict[Address, Neighbour] = {}
    seen = torch.zeros(group.world, dtype=torch.uint8)
    for rank, (pid, descriptor, token) in enumerate(addresses.view(-1, 3).tolist()):
        address = Address(pid, descriptor, token)
        # On another host, of another user, or gone: the next transfer shows which.
        with contextlib.suppress(OSError):
            members[address] = known.get(address) or Neighbour(View(address), layout)
            seen[rank] = 1
    # All members must use the same method, or a transfer would wait for a member that reads memory. So agree on it.
    all_seen = seen.new_empty(group.world)
    group.all_gather(all_seen, seen.min(0, keepdim=True).values).wait()
    hosts: tuple[range, ...] | None = (range(group.world),)
    if not bool(all_seen.all()):
        if not tells_hosts:  # one member is of a version that would not take part in what follows
            return None
        by_all = seen.new_empty(group.world**2)
        group.all_gather(by_all, seen).wait()
        hosts = hosts_of(by_all.view(group.world, group.world).tolist())
    if window is None or result is None or hosts is None or len(hosts) == group.world:
        return None
    # Also for the barrier after the copies, which all members of the group enter.
    in_place = layout.nbytes >= LEAST_IN_PLACE and all(token & IN_PLACE for token in addresses[2::3].tolist())
    return Neighbours(group, hosts, layout, window, members, None if in_place else result)


class Summands:
    """The sums of the subtrees of all members on a host, which are added up slice by slice."""

    def __init__(self, neighbours: Neighbours, counts: Sequence[int], *, fast: bool) -> None:
        self._shards = len(counts)
        self._fast = fast
        self._nodes: list[tuple[ShardNode, bool]] = []
        self._vectors: list[tuple[Tensor, ...]] = []
        shares = blocks(len(counts), neighbours.group.world)
        for rank in neighbours.here:
            of_rank = [(node, any(counts[node.start : node.stop])) for node in subtrees(shares[rank], len(counts))]
            self._nodes += of_rank
            filled = sum(filled for _, filled in of_rank)
            # In mode `fast` a rank has one vector for its whole block, whatever number of subtrees that is.
            self._vectors += neighbours.sums(rank, min(1, filled) if fast else filled)

    def add(self, section: int, part: slice, out: Tensor, divisor: float = 1.0, root: ShardNode | None = None) -> None:
        """Write into `out` the sum of a part of a section, over all shards or those of `root`, by the divisor."""
        length = CHUNK // out.element_size()
        # For intermediate sums. Each sum begins with a leaf of its own, so there are fewer sums than leaves.
        memory = [out.new_empty(length) for _ in self._vectors]
        # Chunk by chunk over all summands: each chunk of each vector is read once and stays in the cache.
        for start in range(part.start, part.stop, length):
            chunk = slice(start, min(start + length, part.stop))
            scratch = [each[: chunk.stop - chunk.start] for each in memory]
            leaves = [_Summand(vector[section][chunk], scratch) for vector in self._vectors]
            if self._fast:
                total = reduce(iadd, leaves)
            else:
                found = iter(leaves)
                parts = {node: next(found) if filled else None for node, filled in self._nodes}
                some = finish(parts, self._shards, root)
                assert some is not None, "a step has at least one sample"
                total = some
            torch.div(total.value, divisor, out=out[chunk.start - part.start : chunk.stop - part.start])


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
        self.neighbours.announce(self.sums, self.total)

    def finish(self) -> Flat:
        """Return the total. Call it only after a collective that all members entered after their `start_all`.

        RuntimeError when a member is gone: the total is undefined then.
        """
        self._add_up()
        self.neighbours.collect(self.total)
        return self.total

    def _add_up(self) -> None:
        """Sum this rank's slices of all vectors into the memory that the other members will read."""
        neighbours = self.neighbours
        summands = Summands(neighbours, self.counts, fast=self.fast)
        for (section, span), result in zip(neighbours.spans, neighbours.results(self.total), strict=True):
            summands.add(section, neighbours.lane(span, neighbours.group.rank), result, self.divisor)


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
