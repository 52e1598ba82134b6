"""Sum the vectors of an update over a group in pieces, each sent as soon as it is final.

The flat vector is cut into pieces of a few MiB, from its end to its start, which is about the order in which a backward
pass finishes gradients. In mode `exact` a piece is cut into as many equal slices as there are ranks. Each rank sends
its subtrees' share of slice r to rank r. Rank r adds them in the order of the fixed tree and divides by the number of
samples, and then all ranks gather the finished slices. The number of ranks decides which elements lie in which slice,
but not how an element is summed, so the bits are the same for every N. The traffic equals that of a ring all-reduce
when each block is one subtree. Mode `fast` uses the library's all-reduce.

Transfers are called in an order that depends on the number of pieces alone. So all ranks agree on it even when their
backward passes finish gradients in different orders. Vectors are summed in place, and the result lies in the rank's
first vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from edt_sdk.training.exchange.blocks import blocks, subtrees
from edt_sdk.training.exchange.group import Group, Handle
from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.reduction_plan import Move
from edt_sdk.training.exchange.tree import finish

PIECE = 8 << 20
"""Bytes of a vector that travel at once."""

# Limits on the pieces in progress: _SCATTERED pieces are sent before the first is summed, then _GATHERED more are
# gathered. They bound the scratch memory, and transfers still overlap with additions.
_SCATTERED = 2
_GATHERED = 2


class _Peers(Protocol):
    """The members between which pieces travel. See `Group`."""

    @property
    def world(self) -> int: ...
    def all_to_all(
        self, output: Tensor, input: Tensor, out_splits: Sequence[int], in_splits: Sequence[int]
    ) -> Handle: ...
    def all_gather(self, output: Tensor, input: Tensor) -> Handle: ...


class Piece:
    """Represents a piece in transfer. The base class is the piece of a single member, which is final at once."""

    def finish(self) -> None:
        """Run the second stage after the first transfer has arrived."""

    def wait(self) -> None:
        """Block until the piece holds the result of all ranks."""


class Pieces:
    """Holds the pieces of a vector that travel, in the order in which they were started."""

    def __init__(self) -> None:
        self._started: list[Piece] = []

    def __len__(self) -> int:
        return len(self._started)

    def add(self, piece: Piece) -> None:
        """Take a piece that was just started."""
        self._started.append(piece)
        # Finish older pieces here, not at the end: the addition of each piece overlaps with the transfer of the next.
        count = len(self._started)
        if count > _SCATTERED:
            self._started[count - 1 - _SCATTERED].finish()
        if count > _SCATTERED + _GATHERED:
            self._started[count - 1 - _SCATTERED - _GATHERED].wait()

    def finish(self) -> None:
        """Wait for all pieces."""
        for piece in self._started[max(0, len(self) - _SCATTERED) :]:
            piece.finish()
        for piece in self._started[max(0, len(self) - _SCATTERED - _GATHERED) :]:
            piece.wait()


class Exchange:
    """Sums all shards' vectors of an update and divides the sum by `divisor`.

    `counts` are the samples of all V shards. `sums` are the numbers of those among this rank's `vectors` with the sums
    of its subtrees, left to right. No other code may touch the vectors until `finish`. With `fast` the library chooses
    the order of the sum. `total` holds the result after `finish`.
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
        self._under_way = Pieces()
        self._last: Move | None = None

    def follow(self, move: Move) -> Callable[[int], None]:
        """Send pieces while the backward pass of the last shard settles them. Return the callback to call per entry.

        The merges of that move happen here, piece by piece.
        """
        # The last shard's merges would otherwise run after its backward pass, when no transfer is left to overlap with.
        self._last = move
        self._pieces_of, self._waiting = self._layout.pieces_of_entries(self._group.world, PIECE)
        return self._settled

    def _settled(self, entry: int) -> None:
        """Record that the entry with this number will not change any more, and send the pieces that are final."""
        for piece in self._pieces_of[entry]:
            self._waiting[piece] -= 1
        # Only in the order of the pieces: ranks settle entries in different orders, but must call the transfers in the
        # same one.
        while (next_one := len(self._under_way)) < len(self._waiting) and not self._waiting[next_one]:
            self.start()

    def start(self) -> None:
        """Send the next piece, which is final in all vectors except for the merges of the last move. Merge it first."""
        number, span = self._spans[len(self._under_way)]
        if self._last is not None:
            for target, other in self._last.merges:
                self._vectors[target].sections[number][span].add_(self._vectors[other].sections[number][span])
        out = self.total.sections[number][span]
        ours = [part.sections[number][span] for part in self._sums]
        piece = Piece()
        if self._group.world == 1:
            if self._divisor != 1:
                out.div_(self._divisor)
        elif self._fast:
            piece = _Reduced(self._group, out, self._divisor)
        else:
            shares = blocks(len(self._counts), self._group.world)
            piece = PieceInTree(self._group, shares, ours, self._counts, out, self._divisor, self._scratch)
        self._under_way.add(piece)

    def start_all(self) -> None:
        """Send all pieces that have not been sent."""
        while len(self._under_way) < len(self._spans):
            self.start()

    def finish(self) -> Flat:
        """Wait for all pieces and return the total. RuntimeError when a member is gone: the total is undefined then."""
        self._under_way.finish()
        return self.total


class Scratch:
    """Keeps receive memory between pieces, because new memory costs more than the transfer."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, torch.dtype, torch.device], list[Tensor]] = {}

    def take(self, like: Tensor, length: int) -> Tensor:
        """Return a vector of that length, not initialised."""
        waiting = self._free.get((length, like.dtype, like.device))
        return waiting.pop() if waiting else like.new_empty(length)

    def give_back(self, vector: Tensor) -> None:
        """Take back a vector that no transfer reads or writes any more."""
        self._free.setdefault((len(vector), vector.dtype, vector.device), []).append(vector)

    def clear(self) -> None:
        """Drop all memory. Another number of ranks needs other lengths."""
        self._free.clear()


class _Reduced(Piece):
    def __init__(self, group: Group, out: Tensor, divisor: float) -> None:
        self._out = out
        self._divisor = divisor
        self._handle: Handle | None = group.all_reduce(out)

    def wait(self) -> None:
        if self._handle is not None:
            self._handle.wait()
            self._out.div_(self._divisor)
            self._handle = None


class PieceInTree(Piece):
    """Sums a piece in the tree: scattered on creation, gathered by `finish`. Holds its tensors until then.

    `shares` are the shards of each member of the group, and `parts` the sums of this member's subtrees. They may be of
    the `scratch`, to which they return if they are `lent`.
    """

    def __init__(
        self,
        group: _Peers,
        shares: Sequence[range],
        parts: list[Tensor],
        counts: Sequence[int],
        out: Tensor,
        divisor: float,
        scratch: Scratch,
        *,
        lent: bool = False,
    ) -> None:
        self._group = group
        self._out = out
        self._divisor = divisor
        self._scratch = scratch
        self._shards = len(counts)
        world, length = group.world, len(out) // group.world
        nodes = [subtrees(block, len(counts)) for block in shares]
        self._filled = [{node: any(counts[node.start : node.stop]) for node in of_rank} for of_rank in nodes]
        self._borrowed = list(parts) if lent else []
        if len(parts) == 1:
            # Without a copy where the rank has a single subtree, which is the common case.
            outgoing = parts[0]  # already in the order of the receivers
        elif parts:
            outgoing = self._borrow(length * world * len(parts))
            torch.stack([p.view(world, length) for p in parts], dim=1, out=outgoing.view(world, len(parts), length))
        else:
            outgoing = out.new_empty(0)
        # Empty subtrees are not sent. All ranks know which subtrees are empty, so the splits agree without a message.
        expected = [length * sum(of_rank.values()) for of_rank in self._filled]
        self._length = length
        self._incoming = self._borrow(sum(expected))
        self._outgoing = outgoing
        self._handle: Handle | None = group.all_to_all(
            self._incoming, outgoing, expected, [length * len(parts)] * world
        )

    def finish(self) -> None:
        """Sum this rank's slice and start to send it to all ranks."""
        assert self._handle is not None
        self._handle.wait()
        slices = iter(torch.split(self._incoming, self._length))
        found = {node: next(slices) if filled else None for of_rank in self._filled for node, filled in of_rank.items()}
        # Divide here, once per element: a division before the sum would round every shard separately.
        total = finish(found, self._shards)
        assert total is not None, "a step has at least one sample"
        self._handle = self._group.all_gather(self._out, total.div_(self._divisor))

    def wait(self) -> None:
        """Block until `out` holds the slices of all ranks."""
        if self._handle is not None:
            self._handle.wait()
            self._handle = None
            for vector in self._borrowed:
                self._scratch.give_back(vector)

    def _borrow(self, length: int) -> Tensor:
        vector = self._scratch.take(self._out, length)
        self._borrowed.append(vector)
        return vector
