"""The tree-ordered sum over a group: all-to-all of slices, owners finish the tree, all-gather.

The flat vector is cut into as many equal slices as there are ranks. Each rank sends its subtrees' share of slice r to
rank r; rank r adds them in the order of the fixed tree, divides by the number of samples, and everybody gathers the
finished slices. Which elements lie in which slice depends on the number of ranks, how each single element is added up
does not: the bits are the same for every N. As many bytes as a ring all-reduce when each block is one subtree. Long
vectors go in pieces, so that one is added up while the next is on its way. The library moves bytes only; no collective
adds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from edt_sdk.training.blocks import blocks, subtrees
from edt_sdk.training.group import Group
from edt_sdk.training.layout import Flat, Layout
from edt_sdk.training.tree import Node, finish

T = TypeVar("T")

PIECE = 8 << 20
"""Bytes of a vector that travel at once."""


def mean(group: Group, layout: Layout, parts: Mapping[Node, Flat | None], counts: Sequence[int], out: Flat) -> None:
    """The sum of all shards' vectors divided by all samples, in `out`, the same bits on every rank.

    Args:
        group: the members.
        layout: of the vectors.
        parts: the sums of this rank's subtrees, from `Fold.nodes`; consumed.
        counts: samples of all V shards; the subtrees of empty shards are None.
        out: overwritten.

    Raises:
        RuntimeError: a member is gone; `out` is undefined then.
    """
    samples = float(sum(counts))
    if group.world == 1:
        total = _some(finish(parts, len(counts)))
        for summed, section in zip(total.sections, out.sections, strict=True):
            torch.div(summed, samples, out=section)
        return
    mine = [part for part in parts.values() if part is not None]
    scattered: deque[_Piece] = deque()
    gathered: list[_Piece] = []
    for number, section in enumerate(out.sections):
        for start, length in layout.pieces(number, group.world, PIECE):
            span = slice(start, start + length * group.world)
            ours = [part.sections[number][span] for part in mine]
            scattered.append(_Piece(group, ours, counts, section[span]))
            if len(scattered) > 1:  # the next one is on its way while this one is added up
                gathered.append(scattered.popleft().finish(samples))
    gathered.extend(piece.finish(samples) for piece in scattered)
    for piece in gathered:
        piece.wait()


class _Piece:
    """One piece of the vector on its way: scattered when made, gathered by `finish`; holds the tensors meanwhile."""

    def __init__(self, group: Group, parts: list[Tensor], counts: Sequence[int], out: Tensor) -> None:
        self._group = group
        self._out = out
        self._shards = len(counts)
        world, length = group.world, len(out) // group.world
        nodes = [subtrees(block, len(counts)) for block in blocks(len(counts), world)]
        self._filled = [{node: any(counts[node.start : node.stop]) for node in of_rank} for of_rank in nodes]
        if len(parts) == 1:
            self._outgoing = parts[0]  # already in the order of the receivers
        elif parts:
            self._outgoing = torch.stack([part.view(world, length) for part in parts], dim=1).view(-1)
        else:
            self._outgoing = out.new_empty(0)
        expected = [length * sum(of_rank.values()) for of_rank in self._filled]
        self._length = length
        self._incoming = out.new_empty(sum(expected))
        self._handle = group.all_to_all(self._incoming, self._outgoing, expected, [length * len(parts)] * world)

    def finish(self, samples: float) -> _Piece:
        """Add up our slice and start giving it to everybody."""
        self._handle.wait()
        slices = iter(torch.split(self._incoming, self._length))
        found = {node: next(slices) if filled else None for of_rank in self._filled for node, filled in of_rank.items()}
        self._finished = _some(finish(found, self._shards)).div_(samples)
        self._handle = self._group.all_gather(self._out, self._finished)
        return self

    def wait(self) -> None:
        """Until `out` holds everybody's slices."""
        self._handle.wait()


def _some(value: T | None) -> T:
    if value is None:
        raise ValueError("a step needs at least one sample")
    return value
