"""Trainings that go on from the state of another one with other settings, in real worker processes."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from edt_sdk.callbacks import Callback
from edt_sdk.schemas.wire import link as wire
from edt_sdk.training.user.payload import Training
from tests.training.member.test_loop import EPOCHS, HERE, Net, hash_of, job, lines, training
from tests.training.stand_in import StandIn

__all__ = ["job"]
UPDATES = 5  # of an epoch
AT = 2  # epochs of the other training
# Powers of two, so that a rate scaled by hand has the same bits.
BEFORE, AFTER = {"lr": 0.125, "weight_decay": 0.0}, {"lr": 0.03125, "weight_decay": 0.015625}


def halved(epoch: int) -> float:
    return 0.5**epoch


def make(settings: dict[str, float], callbacks: list[Callback], model: nn.Module | None = None) -> Training:
    made = training(Path(), callbacks=callbacks, model=model)
    optimizer = torch.optim.SGD(made.model.parameters(), momentum=0.9, **settings)
    return replace(made, optimizer=optimizer, lr_scheduler=LambdaLR(optimizer, halved))


class ByHand(Callback):
    """Changes the settings in the middle of a training."""

    def on_epoch_begin(self, epoch: int) -> None:
        if epoch == AT:
            for group in self.params["optimizer"].param_groups:
                group |= {**AFTER, "lr": AFTER["lr"] * halved(AT), "initial_lr": AFTER["lr"]}
            schedule = next(thing for thing in gc.get_objects() if isinstance(thing, LambdaLR))
            schedule.base_lrs = [AFTER["lr"]]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a training after its first two epochs."""
    kept: Path = tmp_path_factory.mktemp("parent") / "state.ckpt"
    with StandIn() as parent:
        parent.pack(make(BEFORE, []), HERE)
        parent.prepare(0)
        parent.generation(1, 0, budget=AT)
        parent.expect("w0", wire.Held)
        shutil.copy(parent.paths.checkpoints(0) / f"epoch-{AT}.ckpt", kept)
    return kept


def branch(job: StandIn, state: Path, made: Training, *workers: int) -> None:
    job.job = msgspec.structs.replace(job.job, warm_start=str(state))
    job.pack(made, HERE)
    job.prepare(*workers)
    job.generation(1, *workers)


def test_a_branch_goes_on_as_its_parent_would_with_the_new_settings(job: StandIn, state: Path) -> None:
    with StandIn() as other:
        other.pack(make(BEFORE, [ByHand()]), HERE)
        other.prepare(0)
        other.generation(1, 0)
        other.expect("w0", wire.Trained)
        by_hand = hash_of(other.paths.train_dir / "model_epoch_final.pth")
    branch(job, state, make(AFTER, []), 0, 1)
    job.expect("w0", wire.Trained)
    assert hash_of(job.paths.train_dir / "model_epoch_final.pth") == by_hand
    trained = list(range(AT * UPDATES, EPOCHS * UPDATES))
    assert [line["update"] for line in lines(job.paths.commits(0))] == trained, "none of its parent is trained again"
    assert [line["epoch"] for line in lines(job.paths.metrics(0)) if line["kind"] == "test"] == [3, 5]


def test_a_branch_resumes_from_its_own_state_and_not_from_its_parents(job: StandIn, state: Path) -> None:
    branch(job, state, make(AFTER, []), 0)
    job.expect("w0", wire.Trained)
    whole = hash_of(job.paths.train_dir / "model_epoch_final.pth")
    with StandIn() as held:
        held.job = msgspec.structs.replace(held.job, warm_start=str(state))
        held.pack(make(AFTER, []), HERE)
        held.prepare(0)
        held.generation(1, 0, budget=AT + 2)
        held.expect("w0", wire.Held)
        held.generation(2)
        held.expect("w0", wire.Left)
        held.prepare(1)
        held.generation(3, 1)
        held.expect("w1", wire.Trained)
        assert hash_of(held.paths.train_dir / "model_epoch_final.pth") == whole
        assert len(lines(held.paths.commits(0))) == (EPOCHS - AT) * UPDATES


def test_the_batch_may_have_another_size(job: StandIn, state: Path) -> None:
    made = make(AFTER, [])
    branch(job, state, replace(made, options=replace(made.options, micro_batch=6, shards=(6,) * 4)), 0)
    assert job.expect("w0", wire.Trained).updates == EPOCHS * 3
    assert [line["update"] for line in lines(job.paths.commits(0))] == list(range(AT * 3, EPOCHS * 3))


class Wider(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head: Any = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))


def test_a_model_of_another_shape_cannot_go_on(job: StandIn, state: Path) -> None:
    branch(job, state, make(AFTER, [], model=Wider()), 0)
    failed = job.expect("w0", wire.Failed)
    assert "cannot go on from the state of another one" in failed.message
    assert "cannot change while it trains" in failed.message


def test_a_damaged_state_is_refused(job: StandIn, tmp_path: Path, state: Path) -> None:
    torn = tmp_path / "torn.ckpt"
    torn.write_bytes(state.read_bytes()[:-1])
    branch(job, torn, make(AFTER, []), 0)
    assert "bytes are there" in job.expect("w0", wire.Failed).message
