"""The self-check finds programs with weights that depend on the number of workers, names the cause."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group, connect_store
from edt_sdk.training.sampling.order import Order
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.self_check import SelfCheck
from edt_sdk.training.update.update import UpdateEngine
from edt_sdk.training.user.own_state import OwnState
from tests.training.conftest import Processes
from tests.training.numeric_job import CPU, steps_of

UPDATES = 50
# Less for right programs, which are many: the first four checks.
FEWER = 18


class Points:
    """Features and a class, from a list."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.sin(torch.arange(4.0) * (index + 1)), index % 3


class Blurred(Points):
    """Adds noise from a generator of its own, as people do who came from numpy."""

    def __init__(self) -> None:
        self.noise = np.random.default_rng()

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x, y = super().__getitem__(index)
        return x + torch.from_numpy(self.noise.normal(size=4)).float(), y


class Surprising(Points):
    """A new generator for each sample, seeded by the system."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x, y = super().__getitem__(index)
        return x * float(np.random.default_rng().normal()), y


class Annealed(nn.Linear):
    """A weight of a part of the loss grows with a counter in Python, as for the KL term of a VAE."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * min(1.0, self.calls / 1000)


class CountsOnly(nn.Linear):
    """Counts its calls for the user's own interest."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


class CentreLoss(nn.Module):
    """Keeps a mean in a buffer of the loss, which is no part of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(3))

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        self.centre.lerp_(outputs.detach().mean(0), 0.1)
        return F.cross_entropy(outputs - self.centre, labels)


def adversarial() -> Callable[..., Any]:
    discriminator = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    own = torch.optim.SGD(discriminator.parameters(), lr=0.5)

    def step(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> tuple[Any, Any]:
        x, y = data
        made = model(x)
        own.zero_grad()
        discriminator(made.detach()).square().mean().backward()
        own.step()
        loss = F.cross_entropy(made, y) + discriminator(made).mean()
        loss.backward()
        return eva(made, y), loss

    return step


calls = itertools.count(1)


def tired(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels) / next(calls)


def linear() -> nn.Module:
    return nn.Linear(4, 3)


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 3))


def spectral() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8)), nn.RReLU(), nn.Linear(8, 3))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, 5, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x.unsqueeze(-1))[0][:, -1])


class Tied(nn.Module):
    """An embedding that is the last layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.last.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.inner(x)))[:, :3]


class LowRank(nn.Module):
    """LoRA: a frozen layer, and two small ones that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(4, 3), nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)
        self.base.requires_grad_(False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Words(Points):
    """Tokens, and how many of them count."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.arange(index, index + 6) % 11, index % 3


class SparseWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(11, 4, sparse=True), nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.words(tokens))


class PackedLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(11, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        lengths = tokens[:, 0] % 5 + 1
        packed = nn.utils.rnn.pack_padded_sequence(self.words(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.lstm(packed)[1][0][-1])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.words(tokens)).mean(1))


class Variational(nn.Module):
    """Draws in its forward pass, and counts updates in a buffer to weigh a part of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, 6), nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = self.into(x).chunk(2, 1)
        self.calls += 1
        return self.out(mean + torch.randn_like(mean) * spread.exp()) * (0.5 + self.calls / 100).clamp(max=1)


class SentencesWithPadding(Points):
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        tokens = torch.arange(index, index + 6) % 11
        return tokens, torch.where(torch.arange(6) < index % 5 + 1, (tokens + 1) % 11, -100)


def next_word() -> nn.Module:
    return nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 11))


def summed_over_words(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="sum") / (6 * len(labels))


class Both(torch.optim.Optimizer):
    """Two optimizers in one: momentum for matrices, and AdamW for the rest."""

    def __init__(self, model: nn.Module) -> None:
        parameters = list(model.parameters())
        self.parts = [
            torch.optim.SGD([p for p in parameters if p.dim() > 1], lr=0.05, momentum=0.9, nesterov=True),
            torch.optim.AdamW([p for p in parameters if p.dim() < 2], lr=0.01),
        ]
        super().__init__(parameters, {})

    def step(self, closure: None = None) -> None:
        for part in self.parts:
            part.step()


def groups(model: nn.Module) -> torch.optim.Optimizer:
    first, *others = model.parameters()
    return torch.optim.SGD([{"params": [first], "lr": 0.01}, {"params": others, "weight_decay": 0.1}], lr=0.1)


def fused(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)


def trainable(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)


def frozen_part() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model[:2].requires_grad_(False).eval()
    return model


def synchronised() -> nn.Module:
    return nn.SyncBatchNorm.convert_sync_batchnorm(with_batch_norm())


def grouped() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.ReLU(), nn.Linear(8, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)
    )


def compiled() -> nn.Module:
    return torch.compile(linear(), backend="eager")


def decaying(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 0.95**update)


class Uneven(Points):
    def __len__(self) -> int:
        return 91


class Rounds(Points):
    """Indices of the rounds of a game; the model plays each of them."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.eye(4)[index % 4], index


def reinforce(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> tuple[Any, Any]:
    x, rounds = data
    chances = torch.distributions.Categorical(logits=model(x))
    played = chances.sample()
    reward = (played == rounds % 3).float()
    loss = -(chances.log_prob(played) * (reward - 0.33)).mean()
    loss.backward()
    return reward.sum(), loss


class Augmented(Points):
    """Noise from the generators that are seeded for each batch."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x, y = super().__getitem__(index)
        return x + 0.1 * torch.randn(4) + float(np.random.normal()), y


def own_step(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> tuple[Any, Any]:
    x, y = data
    outputs = model(x)
    loss = model.get_loss_function()(outputs, y)
    loss.backward()
    return eva(outputs, y), loss


def mixup(items: list[Any]) -> tuple[Tensor, Tensor]:
    x, y = torch.stack([x for x, _ in items]), F.one_hot(torch.tensor([y for _, y in items]), 3).float()
    share = float(torch.rand(()))
    return share * x + (1 - share) * x.flip(0), share * y + (1 - share) * y.flip(0)


Program = dict[str, Any]
# Name of the program → its parts, made anew in each process, and what the message must name ("" for none of these).
WRONG: dict[str, tuple[Callable[[], Program], str]] = {
    "a discriminator in a closure": (lambda: {"fn_step_train": adversarial()}, "discriminator (used by fn_step_train)"),
    "a counter in the model": (lambda: {"model": Annealed()}, "model.calls"),
    "a counter at the top of the module": (lambda: {"loss_function": tired}, "calls (used by loss_function)"),
    "a buffer in the loss": (lambda: {"loss_function": CentreLoss()}, "loss_function.centre"),
    "a generator without a seed": (lambda: {"dataset": Blurred()}, "the training set.noise"),
    "a new generator each time": (lambda: {"dataset": Surprising()}, "Nothing that your objects hold has changed"),
}
RIGHT: dict[str, Callable[[], Program]] = {
    "a linear layer": dict,
    "a convolution": lambda: {"model": convolutional()},
    "tied weights": lambda: {"model": Tied()},
    "LoRA": lambda: {"model": LowRank(), "optimizer": trainable},
    "frozen layers": lambda: {"model": frozen_part(), "optimizer": trainable},
    "parameter groups": lambda: {"optimizer": groups},
    "sparse embeddings with SGD": lambda: {"model": SparseWords(), "dataset": Words()},
    "a packed LSTM": lambda: {"model": PackedLstm(), "dataset": Words()},
    "a GRU with dropout": lambda: {"model": Recurrent()},
    "a transformer": lambda: {"model": Encoder(), "dataset": Words(), "optimizer": fused},
    "a language model with padding, its loss summed": lambda: {
        "model": next_word(),
        "dataset": SentencesWithPadding(),
        "loss_function": summed_over_words,
    },
    "draws in the forward pass, a counter in a buffer": lambda: {"model": Variational()},
    "BatchNorm and dropout": lambda: {"model": with_batch_norm()},
    "SyncBatchNorm": lambda: {"model": synchronised()},
    "GroupNorm": lambda: {"model": grouped()},
    "spectral norm": lambda: {"model": spectral()},
    "torch.compile(model)": lambda: {"model": compiled()},
    "fused AdamW": lambda: {"optimizer": fused},
    "an optimizer around two others": lambda: {"optimizer": Both},
    "a learning rate by a lambda": lambda: {"scheduler": decaying},
    "clip_grad_norm": lambda: {"clip_grad_norm": 0.1},
    "an uneven last batch": lambda: {"dataset": Uneven()},
    "augmentation in __getitem__": lambda: {"dataset": Augmented()},
    "mixup in fn_batch_collate": lambda: {"fn_batch_collate": mixup},
    "a step of your own": lambda: {"fn_step_train": own_step},
    "REINFORCE over a set of indices": lambda: {"fn_step_train": reinforce, "dataset": Rounds()},
    "a loss with class weights": lambda: {"loss_function": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))},
    "label smoothing": lambda: {"loss_function": nn.CrossEntropyLoss(label_smoothing=0.1)},
    "a counter that nothing depends on": lambda: {"model": CountsOnly()},
}
# Programs in which each sample counts alike and nothing is drawn: one batch on one process gives the same weights.
PLAIN = (
    "a linear layer",
    "a convolution",
    "tied weights",
    "LoRA",
    "frozen layers",
    "parameter groups",
    "sparse embeddings with SGD",
    "a packed LSTM",
    "a language model with padding, its loss summed",
    "GroupNorm",
    "torch.compile(model)",
    "fused AdamW",
    "an optimizer around two others",
    "a learning rate by a lambda",
    "clip_grad_norm",
    "an uneven last batch",
    "label smoothing",
)


Results = list[dict[str, tuple[str, bytes]]]


def train_all(rank: int, port: int, world: int) -> dict[str, tuple[str, bytes]]:
    """Return what the self-check of this rank has found in each program, and the bits of the weights."""
    store = connect_store("127.0.0.1", port) if port else None
    programs = {name: (program, UPDATES) for name, (program, _) in WRONG.items()}
    programs |= {name: (program, FEWER) for name, program in RIGHT.items()}
    return {
        name: train(Group(store, rank, world, device=CPU, interface="127.0.0.1", generation=number), program, updates)
        for number, (name, (program, updates)) in enumerate(programs.items(), start=1)
    }


class Parts:
    """The objects of a program, made anew with the same first weights."""

    def __init__(self, make: Callable[[], Program]) -> None:
        torch.manual_seed(0)
        given = make()
        self.model: nn.Module = given["model"] if "model" in given else linear()
        self.loss = given.get("loss_function", F.cross_entropy)
        self.dataset = given.get("dataset") or Points()
        self.own_step = given.get("fn_step_train")
        self.collate = given.get("fn_batch_collate")
        self.clip = given.get("clip_grad_norm")
        self.optimizer = given.get("optimizer", sgd)(self.model)
        self.scheduler = given["scheduler"](self.optimizer) if "scheduler" in given else None
        self.order = Order(len(self.dataset), (4, 4, 4, 4), 4, 7, -(-UPDATES // 6))

    @property
    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05)


def train(group: Group, make: Callable[[], Program], updates: int = FEWER) -> tuple[str, bytes]:
    parts = Parts(make)
    own = OwnState(
        parts.model, loss_function=parts.loss, fn_step_train=parts.own_step, **{"the training set": parts.dataset}
    )
    engine = UpdateEngine(
        parts.model, parts.optimizer, parts.loss, order=parts.order, seed=7, device=CPU, worker=group.rank,
        fn_step_train=parts.own_step, fingerprints=own.fingerprints, clip_grad_norm=parts.clip,
    )  # fmt: skip
    loader = ShardLoader(parts.dataset, parts.collate, 7)
    for step in steps_of(parts.order)[:updates]:
        engine.compute(step, blocks(4, group.world)[group.rank], loader, group)
        engine.commit(group, pending=0)
        if parts.scheduler is not None:
            parts.scheduler.step()
    group.close()
    return engine.inexact, parts.weights.numpy().tobytes()


def train_plainly(make: Callable[[], Program]) -> tuple[Tensor, Tensor]:
    """Return the weights before and after the usual loop over the same batches."""
    parts = Parts(make)
    before = parts.weights
    for step in steps_of(parts.order)[:FEWER]:
        indices = [index for key in parts.order.keys(step, range(4)) for index in key.indices]
        x, y = torch.utils.data.default_collate([parts.dataset[index] for index in indices])
        parts.optimizer.zero_grad()
        parts.loss(parts.model(x), y).backward()
        if parts.clip is not None:
            nn.utils.clip_grad_norm_(parts.model.parameters(), parts.clip)
        parts.optimizer.step()
        if parts.scheduler is not None:
            parts.scheduler.step()
    return before, parts.weights


@pytest.fixture(scope="module")
def results() -> dict[int, Results]:
    """What each rank has found, by workers; all programs in the same processes, which take long to start."""
    return {world: Processes()(world, train_all, world) for world in (1, 3)}


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_found_within_fifty_updates_and_its_cause_is_named(
    results: dict[int, Results], name: str, world: int
) -> None:
    first, *others = [found for found, _ in (rank[name] for rank in results[world])]
    assert "so the weights depend on the number of workers" in first
    assert WRONG[name][1] in first
    # Rank 0 checks, the others do not wait for it longer than for its own part.
    assert others == [""] * (world - 1)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_not_accused_and_has_equal_bits(results: dict[int, Results], name: str) -> None:
    ranks = [rank[name] for world in (1, 3) for rank in results[world]]
    assert [found for found, _ in ranks] == [""] * 4
    assert len({weights for _, weights in ranks}) == 1


@pytest.mark.parametrize("name", PLAIN)
def test_a_right_program_trains_as_the_usual_loop_does(results: dict[int, Results], name: str) -> None:
    before, after = train_plainly(RIGHT[name])
    here = torch.frombuffer(bytearray(results[3][0][name][1]), dtype=torch.float32)
    assert (here - after).norm() < 1e-3 * (after - before).norm()


def test_checks_become_ever_less_frequent() -> None:
    check = SelfCheck(dict)
    assert [update for update in range(2000) if check.due(update)] == [1, 3, 7, 15, 31, 127, 511]
