"""The order of samples: every one exactly once an epoch, whatever the numbers are."""

import hashlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.training.sampling import permutation as sampling
from edt_sdk.training.sampling.order import Order, TestOrder, TestStep, TrainStep, shard_sizes
from edt_sdk.training.sampling.permutation import Permutation


def check_epoch(order, epoch, samples, micro_batch, sizes):
    seen = []
    for update in range(order.updates_per_epoch):
        shards = order.shards(epoch, update)
        counts = order.samples_of(epoch, update)
        assert len(shards) == len(sizes)
        assert counts == tuple(len(shard) for shard in shards)
        assert counts[0] > 0
        assert all(shard.dtype == np.int64 for shard in shards)
        if micro_batch > 1 and samples > 1 and sizes != (1,):
            assert 1 not in counts
        # A last sample is no update of its own: a part of the update before takes it.
        assert all(count <= max(sizes) + 1 for count in counts)
        if update < order.updates_per_epoch - 1:
            assert counts == sizes
        # Empty shards are the last ones.
        assert list(counts) == sorted(counts, key=lambda count: count == 0)
        seen.extend(np.concatenate(shards).tolist())
    assert sorted(seen) == list(range(samples))
    return seen


@given(samples=st.integers(1, 400), shards=st.integers(1, 9), batch=st.integers(1, 20), seed=st.integers(0, 2**63 - 1))
def test_every_sample_exactly_once_an_epoch(samples, shards, batch, seed):
    sizes = (batch,) * shards
    order = Order(samples, sizes, batch, seed, 3)
    epochs = [check_epoch(order, epoch, samples, batch, sizes) for epoch in (2, 0, 1, 0)]
    assert epochs[1] == epochs[3]
    if samples > 20:
        assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("shards", range(1, 7))
@pytest.mark.parametrize("batch", range(1, 7))
def test_every_length_of_the_remainder(shards, batch):
    sizes = (batch,) * shards
    full = shards * batch
    for samples in range(full + 1, 2 * full + 1):
        order = Order(samples, sizes, batch, 0, 1)
        check_epoch(order, 0, samples, batch, sizes)
        remainder = samples - full
        if remainder == full:
            assert order.updates_per_epoch == 2
            assert order.samples_of(0, 1) == sizes
        elif remainder == 1 and batch > 1:
            assert order.updates_per_epoch == 1
            assert order.samples_of(0, 0) == (*sizes[:-1], batch + 1)
        else:
            assert order.updates_per_epoch == 2
            counts = [count for count in order.samples_of(0, 1) if count]
            assert sum(counts) == remainder
            if batch > 1 and remainder % batch == 1:
                assert counts == [batch] * (remainder // batch - 1) + [batch + 1]
            else:
                assert counts == [batch] * (remainder // batch) + [remainder % batch] * (remainder % batch > 0)


@given(effective=st.integers(1, 200), batch=st.integers(1, 40), samples=st.integers(1, 500))
@example(effective=3, batch=2, samples=211)  # its last sample joins a part of three
def test_an_effective_batch_size_is_kept_to_the_sample(effective, batch, samples):
    sizes = shard_sizes(batch, effective_batch_size=effective)
    assert sum(sizes) == effective
    assert all(size == batch for size in sizes[:-1])
    if batch > 1 and effective > 1:
        assert 1 not in sizes
    check_epoch(Order(samples, sizes, batch, 5, 1), 0, samples, batch, sizes)


def test_shard_sizes():
    assert shard_sizes(64) == (64,) * 8
    assert shard_sizes(64, engines_number=3) == (64,) * 3
    assert shard_sizes(np.int64(4), engines_number=np.int32(2)) == (4, 4)
    assert shard_sizes(16, effective_batch_size=40) == (16, 16, 8)
    assert shard_sizes(16, effective_batch_size=33) == (16, 17)
    assert shard_sizes(1, effective_batch_size=3) == (1, 1, 1)
    assert shard_sizes(64, effective_batch_size=10) == (10,)


@pytest.mark.parametrize("bad", [0, -3])
def test_values_below_one_are_refused_with_a_hint(bad):
    for call in (
        lambda: shard_sizes(bad),
        lambda: shard_sizes(8, engines_number=bad),
        lambda: shard_sizes(8, effective_batch_size=bad),
        lambda: Order(10, (2,), 2, 0, bad),
    ):
        with pytest.raises(Unprocessable) as caught:
            call()
        assert caught.value.hint


def test_contradictions_and_nonsense_are_refused():
    with pytest.raises(InvalidRequest, match="exclude each other"):
        shard_sizes(8, engines_number=2, effective_batch_size=16)
    with pytest.raises(InvalidRequest, match="batch_size must be a whole number"):
        shard_sizes("8")
    with pytest.raises(InvalidRequest, match="engines_number"):
        shard_sizes(8, engines_number=2.5)
    with pytest.raises(Unprocessable, match="empty") as caught:
        Order(0, (2,), 2, 0, 1)
    assert "len(train)" in caught.value.hint


def test_one_sample_is_one_shard_of_one():
    order = Order(1, (4, 4), 4, 0, 2)
    assert order.updates_per_epoch == 1
    assert order.samples_of(1, 0) == (1, 0)
    assert [shard.tolist() for shard in order.shards(1, 0)] == [[0], []]


def test_the_order_is_the_same_on_every_machine_and_numpy():
    """Golden values: a change here changes the weights of every job that is resumed."""
    assert Permutation(10, 0, 0).part(0, 10).tolist() == [5, 4, 8, 2, 0, 9, 7, 3, 6, 1]
    digest = hashlib.sha256(Permutation(10_000, 2**63 - 1, 7).part(0, 10_000).astype("<i8").tobytes()).hexdigest()
    assert digest == "3bc4319abf754a014bd8ea5eeca717f8c51ad78ea03245096baf0a4bbf26b615"


def test_different_seeds_and_epochs_give_different_orders():
    orders = {tuple(Permutation(50, seed, epoch).part(0, 50)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_the_order_is_shuffled_evenly():
    """Each position of each sample about equally often: 6 samples, 6000 epochs, five standard deviations."""
    counts = np.zeros((6, 6))
    for epoch in range(6000):
        counts[np.arange(6), Permutation(6, 1, epoch).part(0, 6)] += 1
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(6000 * (1 / 6) * (5 / 6))


def test_steps_out_of_range_raise():
    order = Order(20, (4, 4), 4, 0, 2)
    for epoch, update in ((2, 0), (-1, 0), (0, order.updates_per_epoch), (0, -1)):
        with pytest.raises(IndexError):
            order.shards(epoch, update)
        with pytest.raises(IndexError):
            order.samples_of(epoch, update)


def test_keys_name_the_batches_of_a_block_and_leave_empty_shards_out():
    order = Order(21, (4,) * 4, 4, 3, 1)  # 16, then 5: one shard of five
    keys = list(order.keys(TrainStep(0, 1, 1), range(0, 4)))
    assert [(key.kind, key.epoch, key.step, key.shard, len(key.indices)) for key in keys] == [("train", 0, 1, 0, 5)]
    assert keys[0].indices == tuple(order.shards(0, 1)[0].tolist())
    assert list(order.keys(TrainStep(0, 1, 1), range(2, 4))) == []
    assert [key.shard for key in order.keys(TrainStep(0, 0, 0), range(1, 3))] == [1, 2]


@settings(max_examples=50)
@given(samples=st.integers(0, 300), shards=st.integers(1, 8), batch=st.integers(1, 9))
def test_validation_takes_every_sample_once_in_order(samples, shards, batch):
    order = TestOrder(samples, (batch,) * shards, batch)
    seen = []
    for index in range(order.steps):
        parts = order.shards(index)
        assert order.samples_of(index) == tuple(len(part) for part in parts)
        if batch > 1 and samples > 1:
            assert 1 not in order.samples_of(index)
        for key in order.keys(TestStep(5, index), range(shards)):
            assert (key.kind, key.epoch, key.step) == ("test", 5, index)
            seen.extend(key.indices)
    assert seen == list(range(samples))


def sorted_at_once(samples, seed, epoch):
    return np.argsort(sampling._keys(samples, seed, epoch), kind="stable")


@pytest.mark.parametrize("samples", [1, 1 << 16, (1 << 16) + 1, 200_001])
def test_parts_of_an_order_are_those_of_the_whole(samples):
    """Whether they are asked for in order, from the middle as by a joiner, or across what was sorted before."""
    whole = sorted_at_once(samples, 3, 2)
    order = Permutation(samples, 3, 2)
    draw = np.random.default_rng(samples)
    for start in [samples // 2, 0, *draw.integers(0, samples, 60), *range(0, samples, 9_999)]:
        stop = min(samples, int(start) + int(draw.integers(1, 20_000)))
        assert np.array_equal(order.part(start, stop), whole[start:stop])
    assert np.array_equal(order.part(0, samples), whole)


def test_equal_keys_keep_the_order_of_their_samples(monkeypatch):
    """As the stable sort of all of them has it: hardly ever, but then the same everywhere."""
    keys = np.random.default_rng(0).integers(0, 1 << 11, 100_000, dtype=np.uint64) << np.uint64(52)
    monkeypatch.setattr("edt_sdk.training.sampling.permutation._keys", lambda *_: keys)
    order, whole = Permutation(len(keys), 0, 0), sorted_at_once(len(keys), 0, 0)
    for start in range(0, len(keys), 777):
        assert np.array_equal(order.part(start, start + 777), whole[start : start + 777])
