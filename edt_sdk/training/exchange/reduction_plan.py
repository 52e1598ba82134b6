"""Plan which vector takes each shard's gradient, and which vectors are merged afterwards. Pure.

A rank needs only a few vectors for all its shards. The first of two siblings is written into a vector, and the second
is added to that vector without one of its own. Finished subtrees are added to their neighbours. The order is that of
the fixed tree (`tree.py`), so it is known before any computation. Pieces of a vector can follow the plan at different
times without a change in the bits. Mode `fast` adds everything to one vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from edt_sdk.training.exchange.tree import Fold


@dataclass(frozen=True, slots=True)
class Move:
    """Describes what happens to one shard's gradient.

    Attributes:
        shard: its number. It has samples.
        into: number of the vector that takes the gradient.
        add: True to add to the vector, False to overwrite it.
        merges: (target, other) pairs of vectors to add to each other afterwards, in this order.
    """

    shard: int
    into: int
    add: bool
    merges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """Lists all moves of a rank in an update, one for each shard with samples, in shard order.

    Attributes:
        vectors: how many are needed.
        sums: the vectors that hold the sums of the rank's subtrees, left to right, without empty subtrees.
    """

    moves: tuple[Move, ...]
    vectors: int
    sums: tuple[int, ...]


class _Summand:
    """Stands for a vector and logs each addition to it."""

    def __init__(self, log: list[tuple[_Summand, _Summand]]) -> None:
        self.log = log
        self.vector = -1

    def __iadd__(self, other: _Summand) -> _Summand:
        self.log.append((self, other))
        return self


@lru_cache(maxsize=256)
def in_tree(block: range, filled: tuple[bool, ...]) -> ReductionPlan:
    """Return the moves of mode `exact`. `filled` flags which of all V shards have samples."""
    free: list[int] = []
    vectors = 0
    moves: list[Move] = []
    log: list[tuple[_Summand, _Summand]] = []
    # Run the real fold on placeholders and record its additions, so that the plan can never differ from `tree.Fold`.
    fold: Fold[_Summand] = Fold(len(filled), block)
    for shard in block:
        log.clear()
        leaf = _Summand(log) if filled[shard] else None
        fold.push(shard, leaf)
        merges = list(log)
        if leaf is not None:
            # The fold adds this leaf to its sibling at once, so the gradient can be added into the sibling's vector
            # directly.
            add = bool(merges) and merges[0][1] is leaf
            if add:
                leaf.vector = merges.pop(0)[0].vector
            elif free:
                leaf.vector = free.pop()
            else:
                leaf.vector, vectors = vectors, vectors + 1
            moves.append(Move(shard, leaf.vector, add))
        if merges:  # also after an empty shard, which may complete a subtree
            numbers = tuple((target.vector, other.vector) for target, other in merges)
            # A merged vector is free for a later shard, which bounds the number of vectors to about log2(V).
            free.extend(other for _, other in numbers)
            last = moves[-1]
            moves[-1] = Move(last.shard, last.into, last.add, last.merges + numbers)
    return ReductionPlan(tuple(moves), vectors, tuple(s.vector for s in fold.nodes().values() if s is not None))


@lru_cache(maxsize=256)
def in_one(block: range, filled: tuple[bool, ...]) -> ReductionPlan:
    """Return the moves of mode `fast`: one after another into a single vector."""
    shards = [shard for shard in block if filled[shard]]
    moves = tuple(Move(shard, 0, number > 0) for number, shard in enumerate(shards))
    return ReductionPlan(moves, min(1, len(moves)), (0,) if moves else ())
