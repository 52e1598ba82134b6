"""The fixed tree: whatever the blocks are, the sum has the same bits."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.training.exchange.blocks import blocks, subtrees
from edt_sdk.training.exchange.tree import Fold, ShardNode, finish


def folded(vectors, block):
    fold = Fold(len(vectors), block)
    for shard in block:
        vector = vectors[shard]
        fold.push(shard, None if vector is None else (vector.clone() if hasattr(vector, "clone") else vector.copy()))
    return fold.nodes()


def total(vectors, partition):
    parts = {}
    for block in partition:
        nodes = folded(vectors, block)
        assert tuple(nodes) == subtrees(block, len(vectors))
        parts.update(nodes)
    return finish(parts, len(vectors))


def random_vectors(shards, seed, empty=()):
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.integers(-6, 6, size=(shards, 1))
    values = (generator.standard_normal((shards, 64)) * scale).astype(np.float32)
    return [None if shard in empty else values[shard] for shard in range(shards)]


@settings(max_examples=200)
@given(data=st.data(), shards=st.integers(1, 24), seed=st.integers(0, 2**32 - 1))
def test_same_bits_for_any_partition_into_blocks(data, shards, seed):
    cuts = sorted(data.draw(st.sets(st.integers(1, shards - 1)) if shards > 1 else st.just(set())))
    empty = data.draw(st.sets(st.integers(0, shards - 1), max_size=shards - 1))
    bounds = [0, *cuts, shards]
    partition = [range(a, b) for a, b in pairwise(bounds)]
    vectors = random_vectors(shards, seed, empty)
    expected = total(vectors, [range(shards)])
    assert total(vectors, partition).tobytes() == expected.tobytes()
    tensors = [None if v is None else torch.from_numpy(v) for v in vectors]
    assert total(tensors, partition).numpy().tobytes() == expected.tobytes()


def test_the_order_of_addition_matters_at_all():
    """Were it not so, the tests above could not fail."""
    vectors = random_vectors(8, 0)
    plain = vectors[0].copy()
    for vector in vectors[1:]:
        plain += vector
    assert plain.tobytes() != total(vectors, [range(8)]).tobytes()


def test_the_shape_of_the_tree():
    assert ShardNode(0, 8).children() == (ShardNode(0, 4), ShardNode(4, 8))
    assert ShardNode(0, 6).children() == (ShardNode(0, 4), ShardNode(4, 6))
    assert ShardNode(0, 5).children() == (ShardNode(0, 4), ShardNode(4, 5))
    assert ShardNode(4, 7).children() == (ShardNode(4, 6), ShardNode(6, 7))
    # Brackets written out by hand, for six shards with one empty.
    a, b, c, d, e, f = random_vectors(6, 1)
    assert (total([a, b, None, d, e, f], [range(6)])).tobytes() == (((a + b) + d) + (e + f)).tobytes()
    assert (total([a, b, c, d, e, f], [range(6)])).tobytes() == (((a + b) + (c + d)) + (e + f)).tobytes()


def test_a_node_without_samples_is_none():
    vectors = [np.ones(2, np.float32), None, None, None]
    assert folded(vectors, range(2, 4)) == {ShardNode(2, 4): None}
    assert total([None] * 4, [range(0, 3), range(3, 4)]) is None


@pytest.mark.parametrize("shards", range(1, 65))
def test_a_fold_keeps_few_vectors(shards):
    released = []

    class Vector:
        def __init__(self):
            self.sum = 1

        def __iadd__(self, other):
            self.sum += other.sum
            released.append(other)
            return self

    fold = Fold(shards, range(shards))
    for shard in range(shards):
        fold.push(shard, Vector())
        assert shard + 1 - len(released) <= shards.bit_length()
    (node,) = fold.nodes()
    assert node == ShardNode(0, shards)
    assert fold.nodes()[node].sum == shards


def test_wrong_use_raises():
    fold = Fold(4, range(1, 3))
    with pytest.raises(ValueError, match="1 of"):
        fold.push(2, None)
    fold.push(1, None)
    with pytest.raises(ValueError, match=r"shard 2 .* is missing"):
        fold.nodes()
    fold.push(2, None)
    with pytest.raises(ValueError, match="pushed"):
        fold.push(3, None)
    with pytest.raises(ValueError, match="no part holds shard 1"):
        finish({ShardNode(0, 1): None}, 2)


@given(shards=st.integers(1, 64), data=st.data())
def test_blocks_are_even_and_cover_all_shards(shards, data):
    world = data.draw(st.integers(1, shards + 3))
    found = blocks(shards, world)
    assert len(found) == world
    assert [shard for block in found for shard in block] == list(range(shards))
    sizes = [len(block) for block in found]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
    for block in found:
        nodes = subtrees(block, shards)
        assert [shard for node in nodes for shard in range(node.start, node.stop)] == list(block)
        assert len(nodes) <= max(1, 2 * shards.bit_length())


def test_blocks_of_powers_of_two_are_whole_subtrees():
    for world in (1, 2, 4, 8):
        assert all(len(subtrees(block, 8)) == 1 for block in blocks(8, world))


@pytest.mark.parametrize(("shards", "world"), [(4, 0), (0, 1), (4, -1)])
def test_impossible_worlds_raise(shards, world):
    with pytest.raises(ValueError, match="cannot share"):
        blocks(shards, world)
