"""Which vector takes which shard: the sums are those of the tree, with few vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.reduction_plan import in_one, in_tree
from edt_sdk.training.exchange.tree import Fold


def carried_out(plan, values):
    vectors = [None] * plan.vectors
    for move in plan.moves:
        vectors[move.into] = vectors[move.into] + values[move.shard] if move.add else values[move.shard].copy()
        for target, other in move.merges:
            vectors[target] = vectors[target] + vectors[other]
    return [vectors[number] for number in plan.sums]


@given(filled=st.lists(st.booleans(), min_size=1, max_size=20), data=st.data())
def test_the_sums_are_those_of_the_tree(filled, data):
    world = data.draw(st.integers(1, len(filled)))
    values = np.random.default_rng(len(filled)).standard_normal((len(filled), 8)).astype(np.float32)
    for block in blocks(len(filled), world):
        plan = in_tree(block, tuple(filled))
        fold = Fold(len(filled), block)
        for shard in block:
            fold.push(shard, values[shard].copy() if filled[shard] else None)
        expected = [node for node in fold.nodes().values() if node is not None]
        found = carried_out(plan, values)
        assert [f.tobytes() for f in found] == [e.tobytes() for e in expected]
        assert [move.shard for move in plan.moves] == [shard for shard in block if filled[shard]]


@pytest.mark.parametrize("shards", [1, 2, 4, 8, 64])
def test_few_vectors_are_enough(shards):
    assert in_tree(range(shards), (True,) * shards).vectors == max(1, shards.bit_length() - 1)


def test_fast_needs_one_vector():
    plan = in_one(range(1, 4), (True, False, True, True))
    assert plan.vectors == 1
    assert plan.sums == (0,)
    assert [(move.shard, move.into, move.add) for move in plan.moves] == [(2, 0, False), (3, 0, True)]
    assert in_one(range(1, 2), (True, False)).sums == ()
