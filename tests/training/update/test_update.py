"""The numeric heart in real processes: the same bits for every number of workers."""

import os
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edt_sdk.training.exchange import group_exchange as exchange
from edt_sdk.training.exchange import shared_exchange
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group, connect_store
from edt_sdk.training.exchange.tree import ShardNode, finish
from edt_sdk.training.sampling.order import Order
from edt_sdk.training.sampling.seeds import derive, set_states
from edt_sdk.training.update.update import TestStep
from tests.training.numeric_job import CPU, Job, alone, digest, essence, on_hosts, steps_of, train, without_windows


@pytest.mark.parametrize("unseen", [(), (0, 1, 2, 3)], ids=["read", "sent"])
@pytest.mark.parametrize("kind", ["cnn", "transformer"])
@pytest.mark.parametrize("world", [pytest.param(2, marks=pytest.mark.long), 3, 4])
def test_same_bits_for_any_number_of_workers(processes, kind, world, unseen):
    expected, log = alone(kind)
    results = processes(world, train, kind, [(0, world)], {}, unseen)
    assert {result for result, _ in results} == {expected}
    for _, theirs in results:
        assert essence(theirs) == essence(log)
        assert [committed.pending for committed in theirs] == list(range(len(log)))
    # Every member computed shards, and everybody knows whose they are.
    assert len({stats.pid for stats in results[0][1][0].stats}) == world


@pytest.mark.parametrize(("world", "unseen"), [(1, ()), (3, ()), (3, (0, 1, 2))])
def test_same_bits_without_overlap(processes, world, unseen):
    expected, _ = alone("transformer")
    results = processes(world, train, "transformer", [(0, world)], {"overlap": False}, unseen)
    assert {result for result, _ in results} == {expected}


def test_one_that_cannot_be_seen_is_enough_to_send_to_all(processes):
    expected, _ = alone("cnn")
    results = processes(3, train, "cnn", [(0, 3)], {}, (1,))
    assert {result for result, _ in results} == {expected}


def how_it_went(rank, port, unseen):
    without_windows(rank, unseen)
    sent = []
    exchange.Exchange.follow = lambda self, move: sent.append(move)
    train(rank, port, "cnn", [(0, 2)], {"epochs": 1})
    return bool(sent)


def test_gradients_are_sent_only_where_they_cannot_be_read(processes):
    assert processes(2, how_it_went, ()) == [False, False]
    assert processes(2, how_it_went, (1,)) == [True, True]


def plain_sum(shards, batch):
    """An update with the brackets of the tree written out: gradients of each shard alone, times its samples."""
    job = Job("cnn", shards=shards, batch=batch, samples=shards * batch - 1, epochs=1)
    model = job.model
    counts = job.order.samples_of(0, 0)
    parts = {}
    for key in job.order.keys(steps_of(job.order)[0], range(shards)):
        start = {name: value.clone() for name, value in model.state_dict().items()}
        x, y = job.loader.take(key).data
        set_states(derive(11, "train-shard", 0, key.shard))
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        parts[ShardNode(key.shard, key.shard + 1)] = Sum(
            [p.grad * float(counts[key.shard]) for p in model.parameters()]
        )
        model.load_state_dict(start)
    total = finish(parts, shards)
    for parameter, gradient in zip(model.parameters(), total.values, strict=True):
        parameter.grad = gradient / float(sum(counts))
    job.optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


class Sum:
    def __init__(self, values):
        self.values = values

    def __iadd__(self, other):
        self.values = [a + b for a, b in zip(self.values, other.values, strict=True)]
        return self


@pytest.mark.parametrize(("shards", "batch"), [(4, 4), (6, 3), (7, 6)])
def test_the_bits_are_those_of_the_tree_written_out(shards, batch):
    job = Job("cnn", shards=shards, batch=batch, samples=shards * batch - 1, epochs=1)
    group = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=1)
    job.updates(group, range(shards), 0, 1)
    expected = plain_sum(shards, batch)
    assert all(torch.equal(a, b) for a, b in zip(job.model.parameters(), expected, strict=True))


def train_fast(rank, port, world, unseen, hosts):
    exchange.PIECE = 64 * 8
    without_windows(rank, unseen)
    if hosts:
        on_hosts(rank, hosts)
    job = Job("cnn", mode="fast")
    job.train(rank, port, [(0, world)])
    return {name: value.numpy() for name, value in job.model.state_dict().items()}, essence(job.log)


@pytest.mark.parametrize(
    ("world", "unseen", "hosts"),
    [(1, (), ()), (2, (), ()), (4, (), ()), (2, (0, 1), ()), (4, (0, 1, 2, 3), ()), (4, (), (1, 3)), (3, (), (2, 1))],
)
def test_fast_computes_the_same_but_for_rounding(processes, world, unseen, hosts):
    job = Job("cnn")
    job.train(0, 0, [(0, 1)])
    results = processes(world, train_fast, world, unseen, hosts)
    for state, log in results:
        for name, value in job.model.state_dict().items():  # whole numbers are shard 0's in both modes
            np.testing.assert_allclose(state[name], value.numpy(), rtol=1e-3, atol=1e-4)
        assert [[shard[5] for shard in step] for step in log] == [[s[5] for s in step] for step in essence(job.log)]
        # All ranks hold the same model, bit for bit.
        assert all(np.array_equal(state[name], results[0][0][name]) for name in state)


@pytest.mark.parametrize("kind", ["cnn", "transformer", "noisy"])
def test_a_rehearsal_leaves_no_trace(kind):
    job = Job(kind)
    before = digest(job.model, job.optimizer), torch.get_rng_state(), random.getstate()
    job.engine.rehearse(job.loader)
    assert digest(job.model, job.optimizer) == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert random.getstate() == before[2]
    assert job.train(0, 0, [(0, 1)])[0] == alone(kind)[0]


def test_same_bits_with_an_optimizer_that_draws_noise(processes):
    expected, _ = alone("noisy", epochs=1)
    assert [result for result, _ in processes(2, train, "noisy", [(0, 2)], {"epochs": 1})] == [expected] * 2


@pytest.mark.parametrize("world", [1, 3])
def test_same_bits_with_loader_processes(processes, world):
    expected, _ = alone("cnn")
    results = processes(world, train, "cnn", [(0, world)], {"loader_workers": 2})
    assert {result for result, _ in results} == {expected}


@pytest.mark.parametrize(("kind", "loader_workers"), [("cnn", 2), ("transformer", 0)])
def test_same_bits_while_workers_come_and_go(processes, kind, loader_workers):
    expected, log = alone(kind)
    schedule = [(0, 1), (1, 3), (4, 2), (5, 4)]
    results = processes(4, train, kind, schedule, {"loader_workers": loader_workers})
    assert {result for result, _ in results} == {expected}
    assert essence(results[0][1]) == essence(log)


def what_shard_0_saw(rank, port, kind):
    job = Job(kind, epochs=1)
    job.train(rank, port, [(0, 2)])
    return job.model.body[1].num_batches_tracked.item() if kind == "cnn" else job.model.seen.sum().item()


def test_whole_numbers_are_those_of_shard_0_on_every_rank(processes):
    order = Order(59, (3,) * 6, 3, 11, 1)
    updates = order.updates_per_epoch
    assert processes(2, what_shard_0_saw, "cnn") == [updates] * 2  # small, in the header
    tokens = 8 * sum(order.samples_of(0, update)[0] for update in range(updates))
    assert processes(2, what_shard_0_saw, "transformer") == [tokens] * 2  # large, sent only when it changed


def many_shards(rank, port, unseen, hosts):
    """Every V from 1 to 8 with every N up to 4, in pieces of 64 bytes a slice; one hash per (V, N)."""
    exchange.PIECE = shared_exchange.CHUNK = 64 * 8
    without_windows(rank, unseen)
    if hosts:
        on_hosts(rank, hosts)
    store = connect_store("127.0.0.1", port)
    found = {}
    for shards in range(1, 9):
        for world in range(1, min(shards, 4) + 1):
            if rank >= world:
                continue
            job = Job("cnn", shards=shards, batch=2, samples=2 * shards + 3, epochs=1)
            group = Group(store, rank, world, device=CPU, interface="127.0.0.1", generation=100 * shards + world)
            job.updates(group, blocks(shards, world)[rank], 0, len(steps_of(job.order)))
            found[shards, world] = digest(job.model, job.optimizer)
    return found


@pytest.mark.parametrize(
    ("unseen", "hosts"),
    [((), ()), ((0, 1, 2, 3), ()), ((), (2, 2)), ((), (1, 3)), ((), (3, 1)), ((), (1, 2, 1))],
    ids=["read", "sent", "two by two", "one and three", "three and one", "three hosts"],
)
def test_same_bits_for_any_number_of_shards(processes, unseen, hosts):
    results = processes(4, many_shards, unseen, hosts)
    for shards in range(1, 9):
        hashes = {found[key] for found in results for key in found if key[0] == shards}
        assert len(hashes) == 1
    assert len({results[0][shards, 1] for shards in range(1, 9)}) == 8


def test_the_seed_is_part_of_the_bits():
    assert alone("cnn", epochs=1)[0] != alone("cnn", epochs=1, seed=12)[0]


def test_every_sample_once_an_epoch_and_loss_falls():
    _, log = alone("transformer", epochs=4)
    per_epoch = len(log) // 4
    losses = []
    for epoch in range(4):
        stats = [s for committed in log[epoch * per_epoch : (epoch + 1) * per_epoch] for s in committed.stats]
        assert sorted(index for s in stats for index in s.indices) == list(range(59))
        assert all(s.pid == os.getpid() for s in stats)
        assert all(set(s.metrics) == {"mean_score"} for s in stats)
        losses.append(sum(s.loss * s.samples for s in stats) / 59)
    assert losses[-1] < losses[0]


def validate(rank, port, world):
    job = Job("cnn", epochs=1)
    group = Group(
        connect_store("127.0.0.1", port) if port else None, rank, world, device=CPU, interface="127.0.0.1", generation=1
    )
    block = blocks(job.shards, world)[rank]
    job.model.body[1].eval()  # a part the user keeps in evaluation mode
    job.updates(group, block, 0, 1)
    before, states = digest(job.model, job.optimizer), torch.get_rng_state()
    log = [
        job.engine.evaluate(TestStep(0, index), block, job.loader, group, pending=7 + rank)
        for index in range(job.test_order.steps)
    ]
    assert digest(job.model, job.optimizer) == before
    assert torch.equal(torch.get_rng_state(), states)
    assert [module.training for module in job.model.body] == [True, False, True, True, True, True]
    assert all(committed.pending == 7 for committed in log)
    return log


def test_validation_is_the_same_for_any_number_of_workers_and_changes_nothing(processes):
    expected = essence(validate(0, 0, 1))
    assert sorted(index for step in expected for shard in step for index in shard[5]) == list(range(23))
    assert all(0 <= shard[3] <= shard[1] for step in expected for shard in step)
    for log in processes(3, validate, 3):
        assert essence(log) == expected
