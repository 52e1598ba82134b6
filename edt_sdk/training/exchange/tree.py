"""Define the fixed binary tree over the shards [0, V), and sum in its order.

Floating-point addition is not associative. A sum has the same bits for every number of workers only if its brackets
never move. Here they are the nodes of a tree that depends on V alone: a node [a, b) splits at a + the largest power of
two below b − a. A worker folds its shards into the largest nodes it can (`Fold`), and the owner of a slice finishes the
tree from the nodes of all workers (`finish`). A node without any sample is None, and a sum with None is the other
summand. All members know which shards are empty, independent of N, so the bits do not depend on N either. The sum
accepts any type with in-place addition. Pure, never imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class ShardNode:
    """Represents the shards start … stop − 1 as one summand of the tree."""

    start: int
    stop: int

    @property
    def leaf(self) -> bool:
        """Return True for a single shard."""
        return self.stop - self.start == 1

    def children(self) -> tuple[ShardNode, ShardNode]:
        """Return the two summands of an inner node."""
        # Split at a power of two. With halves, 6 shards on 3 ranks would give rank 1 a block that is no node.
        middle = self.start + (1 << (self.stop - self.start - 1).bit_length() - 1)
        return ShardNode(self.start, middle), ShardNode(middle, self.stop)


@lru_cache(maxsize=32)
def _parents(shards: int) -> dict[tuple[ShardNode, ShardNode], ShardNode]:
    """Return the parent of every pair of siblings."""
    found: dict[tuple[ShardNode, ShardNode], ShardNode] = {}
    waiting = [ShardNode(0, shards)]
    while waiting:
        node = waiting.pop()
        if not node.leaf:
            found[node.children()] = node
            waiting.extend(node.children())
    return found


class Fold(Generic[T]):
    """Adds the shards of a block in tree order, each pair of siblings as soon as both are present.

    At most about log2(V) vectors per aligned part of the block are alive at once. The fold owns the pushed vectors and
    adds in place.

    The shards of the block will be pushed in increasing order.
    """

    def __init__(self, shards: int, block: range) -> None:
        self._parents = _parents(shards)
        self._block = block
        self._next = block.start
        self._stack: list[tuple[ShardNode, T | None]] = []

    def push(self, shard: int, vector: T | None) -> None:
        """Take the next shard of the block, None for an empty shard."""
        if shard != self._next or shard not in self._block:
            raise ValueError(f"shard {shard} pushed, {self._next} of {self._block} expected")
        self._next += 1
        self._stack.append((ShardNode(shard, shard + 1), vector))
        # Collapse siblings immediately: waiting for the whole block would keep one vector per shard alive.
        while len(self._stack) > 1:
            (left, a), (right, b) = self._stack[-2:]
            parent = self._parents.get((left, right))
            if parent is None:
                break
            self._stack[-2:] = [(parent, _add(a, b))]

    def nodes(self) -> dict[ShardNode, T | None]:
        """Return the sums of the block's subtrees (`blocks.subtrees`), left to right, after all shards were pushed."""
        if self._next != self._block.stop:
            raise ValueError(f"shard {self._next} of {self._block} is missing")
        return dict(self._stack)


def finish(parts: Mapping[ShardNode, T | None], shards: int, root: ShardNode | None = None) -> T | None:
    """Return the sum over all V shards from sums of subtrees that cover them. Adds in place. None if all are None.

    With a `root` it is the sum of that subtree.
    """

    def total(node: ShardNode) -> T | None:
        if node in parts:
            return parts[node]
        if node.leaf:
            raise ValueError(f"no part holds shard {node.start}")
        left, right = node.children()
        return _add(total(left), total(right))

    return total(root or ShardNode(0, shards))


def _add(left: T | None, right: T | None) -> T | None:
    # Skip an empty node instead of adding zeros, which would turn −0.0 into 0.0.
    if left is None or right is None:
        return right if left is None else left
    # In place: a new tensor per addition would cost more than the addition.
    left += right  # type: ignore[operator]  # T supports in-place addition
    return left
