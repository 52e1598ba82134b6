"""Small models with everything that could make bits depend on the number of workers, and trainings of them."""

import hashlib
import os
import pickle
import random
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from edt_sdk.training.exchange import shared_exchange
from edt_sdk.training.exchange import strategy as exchanges
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group, connect_store
from edt_sdk.training.exchange.memory_window import Address, View, open_window
from edt_sdk.training.sampling.order import Order, TestOrder, TrainStep
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.update import UpdateEngine

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
        ends = [start for start, _ in schedule[1:]] + [len(steps_of(self.order))]
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
        # The self-check accuses no right program.
        assert self.engine.inexact == "", self.engine.inexact
        return digest(self.model, self.optimizer), self.log

    def receive(self, group):
        state = (self.model.state_dict(), self.optimizer.state_dict())
        model, optimizer = pickle.loads(group.broadcast_bytes(pickle.dumps(state) if group.rank == 0 else None, 0))
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)

    def updates(self, group, block, start, end):
        steps = steps_of(self.order)[start:]
        self.loader.plan(key for step in steps for key in self.order.keys(step, block))
        for step in steps[: end - start]:
            self.engine.compute(step, block, self.loader, group if self.overlap else None)
            self.log.append(self.engine.commit(group, pending=step.update + group.rank))


def steps_of(order):
    """Return all updates of a training."""
    return [
        TrainStep(epoch, number, epoch * order.updates_per_epoch + number)
        for epoch in range(order.epochs)
        for number in range(order.updates_per_epoch)
    ]


def mean_score(outputs, labels):
    return outputs.mean()


def without_windows(rank, ranks):
    """As on a system without such memory, or as if these ranks could not be seen by the others."""
    if rank in ranks:
        exchanges.open_window = lambda: None


def on_hosts(rank, sizes):
    """As if the ranks were on hosts of these sizes, one after the other: only those of a host see each other."""
    host = [number for number, size in enumerate(sizes) for _ in range(size)][rank]

    def marked():
        window = open_window()
        pid, descriptor, token = window.address.pid, window.address.descriptor, window.address.token >> 3 << 3 | host
        window.address = Address(pid, descriptor, token)
        window.board[0] = token
        return window

    def view(address):
        if address.token & 7 != host:
            raise OSError("on another host")
        return View(address)

    exchanges.open_window, shared_exchange.View, shared_exchange.LEAST_PIECE = marked, view, 64 * 8


def train(rank, port, kind, schedule, options, unseen=(), hosts=()):
    without_windows(rank, unseen)
    if hosts:
        on_hosts(rank, hosts)
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


def one_update(model, optimizer, loss=F.mse_loss, dataset=None, order=None, rehearse=False, block=range(2), **options):
    order = order or Order(4, (2, 2), 2, 0, 1)
    engine = UpdateEngine(model, optimizer, loss, order=order, seed=0, device=CPU, **options)
    group = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=1)
    loader = ShardLoader(dataset or [(torch.ones(3) * i, torch.ones(1)) for i in range(4)])
    if rehearse:
        engine.rehearse(loader)
    for step in steps_of(order):
        engine.compute(step, block, loader, group)
        committed = engine.commit(group, pending=0)
    return committed
