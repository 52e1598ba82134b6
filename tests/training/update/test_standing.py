"""What one member captures, another one is afterwards: place, totals, callbacks, learning rate, model, optimizer."""

from __future__ import annotations

from pathlib import Path

import torch

from edt_sdk.training.member.training_state import TrainingState, beginning
from edt_sdk.training.sampling.schedule import Schedule
from edt_sdk.training.update.totals import Totals
from edt_sdk.training.user.payload import Training
from tests.training.member import test_recovery as recovery

SCHEDULE = Schedule(epochs=3, updates_per_epoch=4)


def standing(folder: Path) -> tuple[Training, TrainingState]:
    training = recovery.training(folder)
    return training, TrainingState(training, SCHEDULE, 3)


def step(training: Training, where: TrainingState) -> None:
    training.model(torch.randn(4, 300, generator=torch.Generator().manual_seed(1))).sum().backward()
    training.optimizer.step()
    where.cursor = where.cursor.next
    where.train = where.epoch = Totals(samples=4, loss_sum=2.0, right=None)
    where.learning_rate.step("epoch", 0.5, None)


def test_another_member_is_where_this_one_is(tmp_path: Path) -> None:
    mine, here = standing(tmp_path)
    step(mine, here)
    theirs, there = standing(tmp_path)
    there.restore(here.capture())
    assert (there.position, there.updates, there.train, there.epoch) == (1, 0, here.train, here.epoch)
    assert there.learning_rate.state() == here.learning_rate.state()
    assert theirs.optimizer.param_groups[0]["lr"] == mine.optimizer.param_groups[0]["lr"] != 0.1
    for own, other in zip(mine.model.state_dict().values(), theirs.model.state_dict().values(), strict=True):
        assert torch.equal(own, other)


def test_and_from_the_beginning_everything_is_as_the_payload_had_it(tmp_path: Path) -> None:
    training, where = standing(tmp_path)
    step(training, where)
    fresh = recovery.training(tmp_path)
    where.restore(beginning(fresh))
    assert (where.position, where.train, where.epoch) == (0, Totals(), Totals())
    assert training.optimizer.param_groups[0]["lr"] == 0.1
    for own, other in zip(training.model.state_dict().values(), fresh.model.state_dict().values(), strict=True):
        assert torch.equal(own, other)
