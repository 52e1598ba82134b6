"""What a user's function says about the number of workers, epoch by epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edt_sdk.training.user.scaleup import ScaleUp


def asked(function: Any, *epochs: int, most: int = 8) -> tuple[list[int | None], list[str]]:
    said: list[str] = []
    scale = ScaleUp(function, most, 5, said.append)
    return [scale.begin(epoch) for epoch in epochs], said


def test_only_changes_are_told_and_each_epoch_asks_once() -> None:
    calls: list[tuple[int, int]] = []

    def doubling(epoch: int, most: int) -> Any:
        calls.append((epoch, most))
        return np.int64(min(most, 2**epoch))

    told, said = asked(doubling, 0, 0, 1, 2, 3, 4, 3, 5)  # there is no epoch 5
    assert told == [1, None, 2, 4, 8, None, None, None]
    assert calls == [(epoch, 8) for epoch in range(5)]
    assert said == []


def test_more_than_the_training_can_use_is_all_it_can_use() -> None:
    assert asked(lambda epoch, most: 100, 0, 1) == ([None, None], [])
    assert asked(lambda epoch, most: 100 if epoch else 3, 0, 1) == ([3, 8], [])


def test_without_a_function_nothing_is_told() -> None:
    assert asked(None, 0, 1) == ([None, None], [])


def raising(epoch: int, most: int) -> int:
    if epoch == 0:
        return 2
    raise KeyError("rates")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (raising, "it raised KeyError: 'rates'"),
        (lambda epoch, most: 2 - epoch * 2, "it returned 0 for epoch 1, not a number of workers from 1 on"),
        (lambda epoch, most: 2 if epoch == 0 else 2.5, "it returned 2.5 for epoch 1, not a number"),
        (lambda epoch, most: 2 if epoch == 0 else True, "it returned True for epoch 1, not a number"),
    ],
)
def test_one_that_fails_is_ignored_from_then_on_and_said_once(function: Any, why: str) -> None:
    told, said = asked(function, 0, 1, 2, 3)
    assert told == [2, 8, None, None]
    assert len(said) == 1
    assert said[0].startswith(f"scaleup_function is ignored: {why}")
