"""Which rank holds which shards, and which nodes of the fixed tree these are. Pure.

Blocks are contiguous and in rank order, so that a rank's shards are a few whole subtrees (one when V / N is a power of
two, at most about 2·log2 V): that is all it has to send. Rank 0 always holds shard 0.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from edt_sdk.training.exchange.tree import Node


@lru_cache(maxsize=256)  # asked for several times an update
def blocks(shards: int, world: int) -> tuple[range, ...]:
    """The shards of each rank: contiguous, sizes differ by at most one, larger ones first; 1 ≤ world ≤ shards."""
    if not 1 <= world <= shards:
        raise ValueError(f"{world} ranks cannot share {shards} shards")
    size, larger = divmod(shards, world)
    starts = [rank * size + min(rank, larger) for rank in range(world + 1)]
    return tuple(range(start, stop) for start, stop in pairwise(starts))


@lru_cache(maxsize=1024)
def subtrees(block: range, shards: int) -> tuple[Node, ...]:
    """The largest nodes of the tree over [0, shards) inside the block, left to right; together they are the block."""
    found: list[Node] = []

    def visit(node: Node) -> None:
        if node.stop <= block.start or block.stop <= node.start:
            return
        if block.start <= node.start and node.stop <= block.stop:
            found.append(node)
            return
        for child in node.children():
            visit(child)

    if block:
        visit(Node(0, shards))
    return tuple(found)
