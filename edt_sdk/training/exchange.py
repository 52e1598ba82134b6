"""The tree-ordered sum over a group: all-to-all of slices, owners finish the tree, all-gather.

Every section of the flat vector is cut into as many equal slices as there are ranks. Each rank sends its subtrees'
share of slice r to rank r; rank r adds them in the order of the fixed tree, divides by the number of samples, and
everybody gathers the finished slices. Which elements lie in which slice depends on the number of ranks, how each single
element is added up does
not: the bits are the same for every N. As many bytes as a ring all-reduce when each block is one subtree. The library
moves bytes only; no collective adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from edt_sdk.training.blocks import blocks, subtrees
from edt_sdk.training.group import Group
from edt_sdk.training.layout import Flat, Layout
from edt_sdk.training.tree import Node, finish

T = TypeVar("T")


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
    for number, section in enumerate(out.sections):
        length = layout.slice_length(number, group.world)
        covered = section[: length * group.world]
        slices = _scatter(group, [part.sections[number] for part in mine], counts, covered)
        finished = _some(finish(slices, len(counts)))
        group.all_gather(covered, finished.div_(samples)).wait()


def _scatter(group: Group, parts: list[Tensor], counts: Sequence[int], covered: Tensor) -> dict[Node, Tensor | None]:
    """Send each rank its slice of each part; get our slice of all subtrees, None for empty ones."""
    length = len(covered) // group.world
    nodes = [subtrees(block, len(counts)) for block in blocks(len(counts), group.world)]
    filled = [[any(counts[node.start : node.stop]) for node in of_rank] for of_rank in nodes]
    packed = [part[: len(covered)].view(group.world, length) for part in parts]
    if len(packed) == 1:
        outgoing = packed[0].view(-1)  # already in the order of the receivers
    else:
        outgoing = torch.stack(packed, dim=1).view(-1) if packed else covered.new_empty(0)
    incoming = covered.new_empty(length * sum(map(sum, filled)))
    group.all_to_all(
        incoming, outgoing, [length * sum(of_rank) for of_rank in filled], [length * len(parts)] * group.world
    ).wait()
    slices = iter(torch.split(incoming, length))
    return {
        node: next(slices) if is_filled else None
        for of_rank, filled_of_rank in zip(nodes, filled, strict=True)
        for node, is_filled in zip(of_rank, filled_of_rank, strict=True)
    }


def _some(value: T | None) -> T:
    if value is None:
        raise ValueError("a step needs at least one sample")
    return value
