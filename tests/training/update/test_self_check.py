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
    "linear": dict,
    "a counter that nothing depends on": lambda: {"model": CountsOnly()},
    "batch norm and dropout": lambda: {"model": with_batch_norm()},
    "spectral norm": lambda: {"model": spectral()},
    "a recurrent network": lambda: {"model": Recurrent()},
    "augmentation": lambda: {"dataset": Augmented()},
    "a step of one's own": lambda: {"fn_step_train": own_step},
    "mixup": lambda: {"fn_batch_collate": mixup},
    "a loss with weights": lambda: {"loss_function": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))},
    "label smoothing": lambda: {"loss_function": nn.CrossEntropyLoss(label_smoothing=0.1)},
}


def train_all(rank: int, port: int, world: int) -> dict[str, str]:
    """Return what the self-check of this rank has found in each program."""
    store = connect_store("127.0.0.1", port) if port else None
    programs = {name: program for name, (program, _) in WRONG.items()} | RIGHT
    return {
        name: train(Group(store, rank, world, device=CPU, interface="127.0.0.1", generation=number), program)
        for number, (name, program) in enumerate(programs.items(), start=1)
    }


def train(group: Group, make: Callable[[], Program]) -> str:
    torch.manual_seed(0)  # the first weights are the same in every rank
    program = make()
    model, loss = program.get("model") or linear(), program.get("loss_function", F.cross_entropy)
    dataset, own_step = program.get("dataset") or Points(), program.get("fn_step_train")
    order = Order(96, (4, 4, 4, 4), 4, 7, -(-UPDATES // 6))
    own = OwnState(model, loss_function=loss, fn_step_train=own_step, **{"the training set": dataset})
    engine = UpdateEngine(
        model, torch.optim.SGD(model.parameters(), lr=0.05), loss, order=order, seed=7, device=CPU, worker=group.rank,
        fn_step_train=own_step, fingerprints=own.fingerprints,
    )  # fmt: skip
    loader = ShardLoader(dataset, program.get("fn_batch_collate"), 7)
    for step in steps_of(order)[:UPDATES]:
        engine.compute(step, blocks(4, group.world)[group.rank], loader, group)
        engine.commit(group, pending=0)
    group.close()
    return engine.inexact


@pytest.fixture(scope="module", params=[1, 3], ids=["one worker", "three workers"])
def found(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    """What each rank has found, by program; all programs in the same processes, which take long to start."""
    return Processes()(request.param, train_all, request.param)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_found_within_fifty_updates_and_its_cause_is_named(
    found: list[dict[str, str]], name: str
) -> None:
    assert "so the weights depend on the number of workers" in found[0][name]
    assert WRONG[name][1] in found[0][name]
    # Rank 0 checks, the others do not wait for it longer than for its own part.
    assert [rank[name] for rank in found[1:]] == [""] * (len(found) - 1)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_not_accused(found: list[dict[str, str]], name: str) -> None:
    assert [rank[name] for rank in found] == [""] * len(found)


def test_checks_become_ever_less_frequent() -> None:
    check = SelfCheck(dict)
    assert [update for update in range(2000) if check.due(update)] == [1, 3, 7, 15, 31, 63, 127, 255, 511, 1023]
