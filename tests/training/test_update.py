"""The numeric heart in real processes: the same bits for every number of workers."""

import hashlib
import os
import pickle
import random
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training import exchange, exchanges, shared_exchange
from edt_sdk.training.blocks import blocks
from edt_sdk.training.group import Group, connect_store
from edt_sdk.training.loader import ShardLoader
from edt_sdk.training.lost import is_lost_peer
from edt_sdk.training.order import Order, TestOrder
from edt_sdk.training.seeds import derive, set_states
from edt_sdk.training.tree import Node, finish
from edt_sdk.training.update import TestStep, UpdateEngine

CPU = torch.device("cpu")


class Images:
    """8×8 images, augmented by all three random generators."""

    def __init__(self, samples):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(samples, 1, 8, 8, generator=generator)
        self.y = torch.randint(0, 5, (samples,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index].roll(random.randrange(3), -1) + float(np.random.normal()) * 0.1
        return x + 0.1 * torch.randn(1, 8, 8), self.y[index]


class Sentences:
    """Eight tokens; the features are a dictionary, as from a tokenizer."""

    def __init__(self, samples):
        generator = torch.Generator().manual_seed(2)
        self.x = torch.randint(0, 40, (samples, 8), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"tokens": self.x[index], "noise": torch.rand(8)}, self.x[index].sum() % 3


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(6 * 36, 5)
        )

    def forward(self, x):
        return self.body(x)


class Transformer(nn.Module):
    """Embedding with sparse gradients, attention, an unused layer, one used now and then, a large integer buffer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 16, sparse=True)
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.sometimes = nn.Linear(16, 16)
        self.unused = nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)
        self.register_buffer("seen", torch.zeros(40, 30, dtype=torch.int64))
        self.register_buffer("smooth", torch.zeros(16))
        self.register_buffer("constant", torch.linspace(0.1, 1, 7))

    def forward(self, batch):
        x = self.embedding(batch["tokens"]) + batch["noise"].unsqueeze(-1)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        if self.training:
            tokens = batch["tokens"].view(-1)
            self.seen.view(-1).index_add_(0, tokens, torch.ones_like(tokens))
            self.smooth = 0.9 * self.smooth + 0.1 * x.mean((0, 1))  # keeps the graph, and is another object
            if torch.rand(()) < 0.2:
                x = x + self.sometimes(x)
        return self.head(x.mean(1))


class Langevin(torch.optim.SGD):
    """Draws noise in its step."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(torch.randn_like(parameter), alpha=0.01)


def make(kind):
    torch.manual_seed(0)
    if kind == "cnn":
        model = Cnn()
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), Images, {}
    if kind == "noisy":
        model = Cnn()
        return model, Langevin(model.parameters(), lr=0.1), Images, {}
    model = Transformer()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), Sentences, {"clip_grad_norm": 0.5}


def digest(model, optimizer):
    tensors = list(model.state_dict().values())
    for state in optimizer.state_dict()["state"].values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()


class Job:
    """One rank of one training. `schedule`: (first update, number of workers) of each generation."""

    def __init__(
        self, kind, *, shards=6, batch=3, samples=59, epochs=2, loader_workers=0, seed=11, mode="exact", overlap=True
    ):
        sizes = (batch,) * shards
        self.shards = shards
        self.overlap = overlap
        self.model, self.optimizer, dataset, extra = make(kind)
        self.order = Order(samples, sizes, batch, seed, epochs)
        self.test_order = TestOrder(23, sizes, batch)
        self.engine = UpdateEngine(
            self.model, self.optimizer, F.cross_entropy, order=self.order, test_order=self.test_order, seed=seed,
            device=CPU, metrics=[mean_score], worker=os.getpid() % 1000, mode=mode, **extra,
        )  # fmt: skip
        self.loader = ShardLoader(dataset(samples), None, seed, loader_workers, test_dataset=dataset(23))
        self.log = []

    def train(self, rank, port, schedule):
        store = connect_store("127.0.0.1", port) if port else None
        ends = [start for start, _ in schedule[1:]] + [self.order.total_updates]
        before = schedule[0][1]
        for generation, ((start, world), end) in enumerate(zip(schedule, ends, strict=True)):
            if rank < world:
                group = Group(store, rank, world, device=CPU, interface="127.0.0.1", generation=generation)
                if world > before:
                    self.receive(group)
                self.updates(group, blocks(self.shards, world)[rank], start, end)
                group.close()
            before = world
        self.loader.close()
        return digest(self.model, self.optimizer), self.log

    def receive(self, group):
        state = (self.model.state_dict(), self.optimizer.state_dict())
        model, optimizer = pickle.loads(group.broadcast_bytes(pickle.dumps(state) if group.rank == 0 else None, 0))
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)

    def updates(self, group, block, start, end):
        steps = [self.order.step(update) for update in range(start, self.order.total_updates)]
        self.loader.plan(key for step in steps for key in self.order.keys(step, block))
        for step in steps[: end - start]:
            self.engine.compute(step, block, self.loader, group if self.overlap else None)
            self.log.append(self.engine.commit(group, pending=step.update + group.rank))


def mean_score(outputs, labels):
    return outputs.mean()


def without_windows(rank, ranks):
    """As on a system without such memory, or as if these ranks could not be seen by the others."""
    if rank in ranks:
        exchanges.open_window = lambda: None


def train(rank, port, kind, schedule, options, unseen=()):
    without_windows(rank, unseen)
    return Job(kind, **options).train(rank, port, schedule)


@lru_cache
def alone(kind, **options):
    return train(0, 0, kind, [(0, 1)], options)


def essence(log):
    """What must not depend on the number of workers; who computed it may."""
    return [
        [(s.shard, s.samples, s.loss, s.correct, s.metrics, s.indices.tolist()) for s in committed.stats]
        for committed in log
    ]


@pytest.mark.parametrize("unseen", [(), (0, 1, 2, 3)], ids=["read", "sent"])
@pytest.mark.parametrize("kind", ["cnn", "transformer"])
@pytest.mark.parametrize("world", [2, 3, 4])
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
    for key in job.order.keys(job.order.step(0), range(shards)):
        start = {name: value.clone() for name, value in model.state_dict().items()}
        x, y = job.loader.take(key).data
        set_states(derive(11, "train-shard", 0, key.shard))
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        parts[Node(key.shard, key.shard + 1)] = Sum([p.grad * float(counts[key.shard]) for p in model.parameters()])
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


def train_fast(rank, port, world, unseen):
    exchange.PIECE = 64 * 8
    without_windows(rank, unseen)
    job = Job("cnn", mode="fast")
    job.train(rank, port, [(0, world)])
    return {name: value.numpy() for name, value in job.model.state_dict().items()}, essence(job.log)


@pytest.mark.parametrize(("world", "unseen"), [(1, ()), (2, ()), (4, ()), (2, (0, 1)), (4, (0, 1, 2, 3))])
def test_fast_computes_the_same_but_for_rounding(processes, world, unseen):
    job = Job("cnn")
    job.train(0, 0, [(0, 1)])
    results = processes(world, train_fast, world, unseen)
    for state, log in results:
        for name, value in job.model.state_dict().items():  # whole numbers are shard 0's in both modes
            np.testing.assert_allclose(state[name], value.numpy(), rtol=1e-3, atol=1e-4)
        assert [[shard[5] for shard in step] for step in log] == [[s[5] for s in step] for step in essence(job.log)]
        # All ranks hold the same model, bit for bit.
        assert all(np.array_equal(state[name], results[0][0][name]) for name in state)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_before_the_model_changes(bad):
    model = nn.Linear(3, 1)
    before = [p.detach().clone() for p in model.parameters()]
    data = [(torch.ones(3) * (bad if i == 2 else 1), torch.ones(1)) for i in range(4)]
    with pytest.raises(Unprocessable, match=r"update 0 \(epoch 0\).*in shard \d") as caught:
        one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data, nan_loss="stop")
    assert "learning rate" in caught.value.hint
    assert len(caught.value.ids["shards"]) == 1
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_a_loss_that_is_no_number_is_said_five_times_and_then_now_and_then(caplog):
    model = nn.Linear(3, 1)
    data = [(torch.full((3,), float("nan")), torch.ones(1))] * 4
    with caplog.at_level("WARNING"):
        one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data, order=Order(4, (2, 2), 2, 0, 100))
    lines = [record.message for record in caplog.records if "not a finite number" in record.message]
    assert [line.split(" (")[0].rsplit(" ", 1)[1] for line in lines] == ["0", "1", "2", "3", "4", "99"]


def test_a_gradient_that_somebody_keeps_is_not_overwritten():
    class Keeping(torch.optim.SGD):
        kept: ClassVar = []

        def step(self, closure=None):
            gradient = self.param_groups[0]["params"][0].grad
            self.kept.append((gradient, gradient.clone()))
            super().step()

    model = nn.Linear(3, 1)
    data = [(torch.randn(3), torch.randn(1)) for _ in range(4)]
    one_update(model, Keeping(model.parameters(), lr=0.1), dataset=data, order=Order(4, (2, 2), 2, 0, 3))
    assert all(torch.equal(gradient, then) for gradient, then in Keeping.kept)
    assert len({gradient.data_ptr() for gradient, _ in Keeping.kept}) == 3


def test_a_gradient_that_is_finished_several_times_is_waited_for():
    """Re-entrant checkpoints run backward within backward: a shared weight gets its gradient in parts."""

    class Shared(nn.Module):
        def __init__(self, *, checkpoints):
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.head = nn.Linear(3, 1)
            self.checkpoints = checkpoints

        def forward(self, x):
            x = x.clone().requires_grad_()
            for _ in range(2):
                x = checkpoint(self.layer, x, use_reentrant=True) if self.checkpoints else self.layer(x)
            return self.head(x)

    torch.manual_seed(3)
    data = [(torch.randn(3), torch.randn(1)) for _ in range(4)]
    plain, special = Shared(checkpoints=False), Shared(checkpoints=True)
    special.load_state_dict(plain.state_dict())
    for model in (plain, special):
        one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data, order=Order(4, (2, 2), 2, 0, 3))
    for ours, theirs in zip(special.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


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


def test_float_buffers_are_the_mean_weighted_by_samples():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    data = [(torch.randn(3), torch.zeros(1)) for _ in range(5)]
    order = Order(5, (3, 2), 3, 0, 1)
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data, order=order)
    first, second = (torch.stack([data[index][0] for index in shard]) for shard in order.shards(0, 0))
    # BatchNorm: 0.9 × old + 0.1 × that of the batch; old is 0 for the mean and 1 for the (unbiased) variance.
    torch.testing.assert_close(model[0].running_mean, 0.1 * (3 * first.mean(0) + 2 * second.mean(0)) / 5)
    torch.testing.assert_close(model[0].running_var, 0.9 + 0.1 * (3 * first.var(0) + 2 * second.var(0)) / 5)


def many_shards(rank, port, unseen):
    """Every V from 1 to 8 with every N up to 4, in pieces of 64 bytes a slice; one hash per (V, N)."""
    exchange.PIECE = shared_exchange.CHUNK = 64 * 8
    without_windows(rank, unseen)
    store = connect_store("127.0.0.1", port)
    found = {}
    for shards in range(1, 9):
        for world in range(1, min(shards, 4) + 1):
            if rank >= world:
                continue
            job = Job("cnn", shards=shards, batch=2, samples=2 * shards + 3, epochs=1)
            group = Group(store, rank, world, device=CPU, interface="127.0.0.1", generation=100 * shards + world)
            job.updates(group, blocks(shards, world)[rank], 0, job.order.total_updates)
            found[shards, world] = digest(job.model, job.optimizer)
    return found


@pytest.mark.parametrize("unseen", [(), (0, 1, 2, 3)], ids=["read", "sent"])
def test_same_bits_for_any_number_of_shards(processes, unseen):
    results = processes(4, many_shards, unseen)
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


def lose_a_member(rank, port, overlap, unseen):
    exchange.PIECE = 64 * 8
    without_windows(rank, unseen)
    job = Job("transformer", epochs=1)
    group = Group(connect_store("127.0.0.1", port), rank, 2, device=CPU, interface="127.0.0.1", generation=1)
    block = blocks(job.shards, 2)[rank]
    job.updates(group, block, 0, 1)
    before = digest(job.model, job.optimizer)
    if not overlap:
        job.engine.compute(job.order.step(1), block, job.loader)
    if rank == 1:
        os._exit(0)
    lost = False
    try:
        if overlap:  # noticed in the middle of a backward pass
            job.engine.compute(job.order.step(1), block, job.loader, group)
        job.engine.commit(group, pending=1)
    except RuntimeError as error:
        lost = is_lost_peer(error)
    group.close()
    assert lost
    assert digest(job.model, job.optimizer) == before
    last = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=2)
    job.updates(last, range(job.shards), 1, job.order.total_updates)
    return digest(job.model, job.optimizer)


@pytest.mark.parametrize("unseen", [(), (0, 1)], ids=["read", "sent"])
@pytest.mark.parametrize("overlap", [True, False])
def test_a_lost_member_costs_the_update_in_flight_and_no_bit(processes, overlap, unseen):
    expected, _ = alone("transformer", epochs=1)
    assert processes(2, lose_a_member, overlap, unseen, may_die=True) == [expected, None]


def lose_a_member_while_adding(rank, port, when):
    """Rank 1 dies before it has added up its slices, or when it has and nobody has copied them."""
    job = Job("transformer", epochs=1)
    group = Group(connect_store("127.0.0.1", port), rank, 2, device=CPU, interface="127.0.0.1", generation=1)
    job.updates(group, blocks(job.shards, 2)[rank], 0, 1)
    before = digest(job.model, job.optimizer)
    if rank == 1:
        add_up = shared_exchange.SharedExchange._add_up
        shared_exchange.SharedExchange._add_up = lambda self: (when == "after" and add_up(self), os._exit(0))
    with pytest.raises(RuntimeError) as caught:
        job.updates(group, blocks(job.shards, 2)[rank], 1, 2)
    assert is_lost_peer(caught.value)
    group.close()
    assert digest(job.model, job.optimizer) == before
    last = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=2)
    job.updates(last, range(job.shards), 1, job.order.total_updates)
    return digest(job.model, job.optimizer)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_member_lost_while_slices_are_added_costs_no_bit(processes, when):
    expected, _ = alone("transformer", epochs=1)
    assert processes(2, lose_a_member_while_adding, when, may_die=True) == [expected, None]


def one_update(model, optimizer, loss=F.mse_loss, dataset=None, order=None, **options):
    order = order or Order(4, (2, 2), 2, 0, 1)
    engine = UpdateEngine(model, optimizer, loss, order=order, seed=0, device=CPU, **options)
    group = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=1)
    loader = ShardLoader(dataset or [(torch.ones(3) * i, torch.ones(1)) for i in range(4)])
    for number in range(order.total_updates):
        engine.compute(order.step(number), range(2), loader, group)
        committed = engine.commit(group, pending=0)
    return committed


def test_an_update_is_the_gradient_of_the_mean_over_all_samples():
    """Shards of unequal size: 5 samples as 3 + 2, against one plain backward pass in double precision."""
    data = [(torch.randn(3, dtype=torch.float64), torch.randn(1, dtype=torch.float64)) for _ in range(5)]
    model = nn.Linear(3, 1).double()
    plain = nn.Linear(3, 1).double()
    plain.load_state_dict(model.state_dict())
    loss = F.mse_loss(plain(torch.stack([x for x, _ in data])), torch.stack([y for _, y in data]))
    loss.backward()
    order = Order(5, (3, 2), 3, 0, 1)
    committed = one_update(model, torch.optim.SGD(model.parameters(), lr=0.0), dataset=data, order=order)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)
    assert sum(s.loss * s.samples for s in committed.stats) / 5 == pytest.approx(loss.item())
    assert all(stats.correct is None for stats in committed.stats)


def test_gradients_nobody_has_stay_none_and_frozen_parameters_stay_bit_for_bit():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused, self.frozen = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 3)
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.used(self.frozen(x))

    model = Partly()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5))
    assert model.unused.weight.grad is None
    assert model.frozen.weight.grad is None
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"used.weight", "used.bias"}
    assert model.used.weight.grad.data_ptr() % 64 == 0


def test_clipping_acts_on_the_combined_gradient():
    model = nn.Linear(3, 1)
    data = [(torch.full((3,), 100.0), torch.zeros(1))] * 4
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.0), dataset=data, clip_grad_norm=0.25)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    assert float(norm) == pytest.approx(0.25, rel=1e-4)


def test_half_precision_and_complex_parameters_are_combined():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.brain = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
            self.wave = nn.Parameter(torch.ones(3, dtype=torch.complex64))
            self.long = nn.Parameter(torch.ones(3, dtype=torch.float64))

        def forward(self, x):
            return ((x * self.brain.float()) + (x * self.wave).abs() + x * self.long).sum(1, keepdim=True)

    model = Mixed()
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.0), loss=lambda out, y: (out - y).mean())
    # d/dp of the mean over samples i = 0 … 3 of p·i is 1.5 for every element.
    assert model.brain.grad.dtype is torch.bfloat16
    assert model.brain.grad.tolist() == [1.5] * 3
    assert model.wave.grad.dtype is torch.complex64
    assert model.wave.grad.tolist() == [1.5 + 0j] * 3
    assert model.long.grad.tolist() == [1.5] * 3


def test_channels_last_parameters_get_channels_last_gradients():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Flatten()).to(memory_format=torch.channels_last)
    data = [(torch.randn(4, 3, 3), torch.randn(4)) for _ in range(4)]
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data)
    assert model[0].weight.grad.stride() == model[0].weight.stride()


def test_optimizers_that_evaluate_the_model_are_refused():
    model = nn.Linear(3, 1)
    with pytest.raises(Unprocessable, match="LBFGS") as caught:
        one_update(model, torch.optim.LBFGS(model.parameters()))
    assert "SGD" in caught.value.hint


def test_a_model_in_evaluation_mode_is_trained_in_training_mode():
    model = nn.Sequential(nn.Linear(3, 1), nn.Dropout()).eval()
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert model.training


def test_commit_needs_compute_and_the_right_block():
    model = nn.Linear(3, 1)
    order = Order(4, (2, 2), 2, 0, 1)
    engine = UpdateEngine(
        model, torch.optim.SGD(model.parameters(), lr=0.1), F.mse_loss, order=order, seed=0, device=CPU
    )
    group = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=1)
    with pytest.raises(ValueError, match="without compute"):
        engine.commit(group, pending=0)
    engine.compute(order.step(0), range(1), ShardLoader([(torch.ones(3), torch.ones(1))] * 4))
    with pytest.raises(ValueError, match="not the block"):
        engine.commit(group, pending=0)
