"""Assign shards to ranks, and find the nodes of the fixed tree that each rank holds. Pure.

Blocks are contiguous and in rank order. So the shards of a rank are a few whole subtrees: exactly 1 when V / N is a
power of two, at most about 2·log2 V otherwise. A rank sends only the sums of these subtrees. Rank 0 always holds shard
0.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from edt_sdk.training.exchange.tree import ShardNode


@lru_cache(maxsize=256)  # called several times per update
def blocks(shards: int, world: int) -> tuple[range, ...]:
    """Return the shards of each rank: contiguous, sizes differ by at most 1, larger first, the last maybe empty."""
    if world < 1 or shards < 1:
        raise ValueError(f"{world} ranks cannot share {shards} shards")
    size, larger = divmod(shards, world)
    # The larger blocks come first, so rank 0 always has shard 0, which provides the buffers that are not averaged.
    starts = [rank * size + min(rank, larger) for rank in range(world + 1)]
    return tuple(range(start, stop) for start, stop in pairwise(starts))


@lru_cache(maxsize=1024)
def subtrees(block: range, shards: int) -> tuple[ShardNode, ...]:
    """Return the largest tree nodes over [0, shards) inside the block, left to right. Together they cover the block."""
    found: list[ShardNode] = []

    def visit(node: ShardNode) -> None:
        if node.stop <= block.start or block.stop <= node.start:
            return
        if block.start <= node.start and node.stop <= block.stop:
            found.append(node)
            return
        for child in node.children():
            visit(child)

    if block:
        visit(ShardNode(0, shards))
    return tuple(found)
