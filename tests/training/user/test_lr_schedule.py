"""A scheduler stepped by the engine is one stepped in a plain loop, also where another member goes on with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from edt_sdk.training.user.lr_schedule import LearningRate

SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=20),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.1, 3), lr_scheduler.ExponentialLR(o, 0.8)], [3]
    ),
}


def rate(optimizer: torch.optim.Optimizer) -> Any:
    return optimizer.param_groups[0]["lr"]


def parts(name: str) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.4)
    return optimizer, SCHEDULERS[name](optimizer)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_rates_are_those_of_a_plain_loop_and_a_joiner_goes_on(name: str) -> None:
    optimizer, scheduler = parts(name)
    plain, plain_scheduler = cloudpickle.loads(cloudpickle.dumps((optimizer, scheduler)))
    # As in a worker: unpickled, so that torch's wrapper around optimizer.step() is gone. Warnings are errors here.
    ours, our_scheduler = cloudpickle.loads(cloudpickle.dumps((optimizer, scheduler)))
    schedule = LearningRate(our_scheduler, "update")
    for n in range(8):
        if n == 4:
            joined, joined_scheduler = parts(name)
            state = schedule.state()
            joined.param_groups[0].update({k: v for k, v in ours.param_groups[0].items() if k != "params"})
            ours, schedule = joined, LearningRate(joined_scheduler, "update")
            schedule.restore(state)
        ours.step()
        schedule.step("update", 1.0, None)
        schedule.step("epoch", 5.0, None)
        plain.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the wrapper that is gone
            plain_scheduler.step(*([1.0] if name == "plateau" else []))
        assert rate(ours) == rate(plain)


def test_a_plateau_is_seen_in_the_validation_where_there_is_one() -> None:
    optimizer, scheduler = parts("plateau")
    schedule = LearningRate(scheduler, "epoch")
    for loss in (4.0, 3.0, 2.0, 1.0):
        schedule.step("update", loss, 7.0)
        schedule.step("epoch", loss, 7.0)
    assert rate(optimizer) < 0.4


def test_without_a_scheduler_nothing_happens() -> None:
    schedule = LearningRate(None, "epoch")
    schedule.step("epoch", 1.0, None)
    assert schedule.state() is None
    schedule.restore(None)
