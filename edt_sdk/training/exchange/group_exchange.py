"""One update's sum over a group, in pieces that leave as soon as they are final.

The flat vector is cut into pieces of a few MiB, from its end to its start, which is about the order in which a backward
pass finishes gradients. Mode `exact`: a piece is cut into as many equal slices as there are ranks; each rank sends its
subtrees' share of slice r to rank r, which adds them in the order of the fixed tree, divides by the number of samples,
and everybody gathers the finished slices. Which elements lie in which slice depends on the number of ranks, how each
single element is added up does not: the bits are the same for every N. As many bytes as a ring all-reduce when each
block is one subtree. Mode `fast`: the library's all-reduce.

Transfers are called in one order that follows from the number of pieces alone, so all ranks agree on it, however their
backward passes run. Vectors are summed in place: the result lies in the first of the rank's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from edt_sdk.training.exchange.blocks import blocks, subtrees
from edt_sdk.training.exchange.group import Group, Handle
from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.reduction_plan import Move
from edt_sdk.training.exchange.tree import finish

T = TypeVar("T")

PIECE = 8 << 20
"""Bytes of a vector that travel at once."""

# Pieces under way: so many are scattered before the first of them is added up, and so many more are being gathered.
_SCATTERED = 2
_GATHERED = 2


class _Piece(Protocol):
    """A piece on its way."""

    def finish(self) -> None:
        """Do what comes after the first transfer has arrived."""

    def wait(self) -> None:
        """Until the piece holds everybody's result."""


class Exchange:
    """The sum of all shards' vectors of one update, divided by `divisor`.

    Args:
        group: the members.
        layout: of the vectors.
        counts: samples of all V shards.
        divisor: of the sum.
        vectors: all of this rank's; they must not be touched by anyone else until `finish`.
        sums: which of them hold the sums of the rank's subtrees, left to right.
        fast: all-reduce in whatever order the library adds.
        scratch: memory to use, and use again in the next exchange.

    Attributes:
        total: holds the result after `finish`.
    """

    def __init__(
        self,
        group: Group,
        layout: Layout,
        counts: Sequence[int],
        divisor: float,
        vectors: Sequence[Flat],
        sums: Sequence[int],
        *,
        fast: bool,
        scratch: Scratch,
    ) -> None:
        self._group = group
        self._layout = layout
        self._counts = counts
        self._divisor = divisor
        self._vectors = vectors
        self._sums = [vectors[number] for number in sums]
        self._fast = fast
        self._scratch = scratch
        self.total = self._sums[0] if self._sums else vectors[0]
        self._spans = layout.spans(group.world, PIECE)
        self._under_way: list[_Piece] = []
        self._last: Move | None = None

    @property
    def started(self) -> int:
        """How many pieces are on their way or there."""
        return len(self._under_way)

    def follow(self, move: Move) -> Callable[[int], None]:
        """Send pieces while the backward pass of the rank's last shard settles them; what to tell of each entry.

        The merges of that move are done here, piece by piece.
        """
        self._last = move
        return Overlap(self, self._layout, self._group.world).settled

    def start(self) -> None:
        """The next piece is final in all vectors but for the merges of the last move: do these and send it."""
        number, span = self._spans[len(self._under_way)]
        if self._last is not None:
            for target, other in self._last.merges:
                self._vectors[target].sections[number][span].add_(self._vectors[other].sections[number][span])
        out = self.total.sections[number][span]
        ours = [part.sections[number][span] for part in self._sums]
        piece: _Piece
        if self._group.world == 1:
            piece = _Alone(out, self._divisor)
        elif self._fast:
            piece = _Reduced(self._group, out, self._divisor)
        else:
            piece = _InTree(self._group, ours, self._counts, out, self._divisor, self._scratch)
        self._under_way.append(piece)
        count = len(self._under_way)
        if count > _SCATTERED:
            self._under_way[count - 1 - _SCATTERED].finish()
        if count > _SCATTERED + _GATHERED:
            self._under_way[count - 1 - _SCATTERED - _GATHERED].wait()

    def start_all(self) -> None:
        """Send all pieces that have not been sent."""
        while len(self._under_way) < len(self._spans):
            self.start()

    def finish(self) -> Flat:
        """Wait for everything; the total.

        Raises:
            RuntimeError: a member is gone; the total is undefined then.
        """
        for piece in self._under_way[max(0, len(self._under_way) - _SCATTERED) :]:
            piece.finish()
        for piece in self._under_way[max(0, len(self._under_way) - _SCATTERED - _GATHERED) :]:
            piece.wait()
        return self.total


class Overlap:
    """Starts the pieces of an exchange during the last shard, each when the last entry in it is settled.

    Args:
        exchange: nothing of it started yet.
        layout: of its vectors.
        world: number of ranks.
    """

    def __init__(self, exchange: Exchange, layout: Layout, world: int) -> None:
        self._exchange = exchange
        self._pieces_of, waiting = layout.pieces_of_entries(world, PIECE)
        self._waiting = list(waiting)

    def settled(self, entry: int) -> None:
        """The entry of that number will not change any more."""
        for piece in self._pieces_of[entry]:
            self._waiting[piece] -= 1
        while (next_one := self._exchange.started) < len(self._waiting) and not self._waiting[next_one]:
            self._exchange.start()


class Scratch:
    """Memory for what arrives, kept from piece to piece: fresh memory costs more than the transfer."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, torch.dtype, torch.device], list[Tensor]] = {}

    def take(self, like: Tensor, length: int) -> Tensor:
        """A vector of that length, not initialised."""
        waiting = self._free.get((length, like.dtype, like.device))
        return waiting.pop() if waiting else like.new_empty(length)

    def give_back(self, vector: Tensor) -> None:
        """Nothing reads or writes it any more."""
        self._free.setdefault((len(vector), vector.dtype, vector.device), []).append(vector)

    def clear(self) -> None:
        """Forget everything: another number of ranks needs other lengths."""
        self._free.clear()


class _Alone:
    def __init__(self, out: Tensor, divisor: float) -> None:
        if divisor != 1:
            out.div_(divisor)

    def finish(self) -> None:
        pass

    def wait(self) -> None:
        pass


class _Reduced:
    def __init__(self, group: Group, out: Tensor, divisor: float) -> None:
        self._out = out
        self._divisor = divisor
        self._handle: Handle | None = group.all_reduce(out)

    def finish(self) -> None:
        pass

    def wait(self) -> None:
        if self._handle is not None:
            self._handle.wait()
            self._out.div_(self._divisor)
            self._handle = None


class _InTree:
    """Scattered when made, gathered by `finish`; holds the tensors meanwhile."""

    def __init__(
        self, group: Group, parts: list[Tensor], counts: Sequence[int], out: Tensor, divisor: float, scratch: Scratch
    ) -> None:
        self._group = group
        self._out = out
        self._divisor = divisor
        self._scratch = scratch
        self._shards = len(counts)
        world, length = group.world, len(out) // group.world
        nodes = [subtrees(block, len(counts)) for block in blocks(len(counts), world)]
        self._filled = [{node: any(counts[node.start : node.stop]) for node in of_rank} for of_rank in nodes]
        self._borrowed: list[Tensor] = []
        if len(parts) == 1:
            outgoing = parts[0]  # already in the order of the receivers
        elif parts:
            outgoing = self._borrow(length * world * len(parts))
            torch.stack([p.view(world, length) for p in parts], dim=1, out=outgoing.view(world, len(parts), length))
        else:
            outgoing = out.new_empty(0)
        expected = [length * sum(of_rank.values()) for of_rank in self._filled]
        self._length = length
        self._incoming = self._borrow(sum(expected))
        self._outgoing = outgoing
        self._handle: Handle | None = group.all_to_all(
            self._incoming, outgoing, expected, [length * len(parts)] * world
        )

    def finish(self) -> None:
        """Add up our slice and start giving it to everybody."""
        assert self._handle is not None
        self._handle.wait()
        slices = iter(torch.split(self._incoming, self._length))
        found = {node: next(slices) if filled else None for of_rank in self._filled for node, filled in of_rank.items()}
        finished = _some(finish(found, self._shards)).div_(self._divisor)
        self._handle = self._group.all_gather(self._out, finished)

    def wait(self) -> None:
        """Until `out` holds everybody's slices."""
        if self._handle is not None:
            self._handle.wait()
            self._handle = None
            for vector in self._borrowed:
                self._scratch.give_back(vector)

    def _borrow(self, length: int) -> Tensor:
        vector = self._scratch.take(self._out, length)
        self._borrowed.append(vector)
        return vector


def _some(value: T | None) -> T:
    if value is None:
        raise ValueError("a step needs at least one sample")
    return value
