"""Random states follow from the arguments, and nothing is left behind."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.training.sampling.seeds import derive, preserved, set_states


def draw():
    return random.random(), np.random.rand(), float(torch.rand(()))


def test_derive_is_stable_and_tells_arguments_apart():
    assert derive(0, "train-sample", 3, 5) == 5857134664179531227
    different = {
        derive(0, "a"), derive(1, "a"), derive(0, "b"), derive(0, "a", 0), derive(0, "a", 0, 0), derive(0, "a", 1, 0),
        derive(0, "a", 0, 1),
    }  # fmt: skip
    assert len(different) == 7


@given(st.integers(0, 2**64 - 1))
def test_another_seed_gives_other_numbers(seed):
    with preserved():
        set_states(seed)
        first = draw()
        set_states(seed)
        assert draw() == first
        set_states(seed ^ 1)
        assert all(a != b for a, b in zip(first, draw(), strict=True))
        set_states(seed ^ (1 << 63))
        assert all(a != b for a, b in zip(first[:2], draw()[:2], strict=True))


def fail_after_drawing():
    set_states(99)
    draw()
    raise ZeroDivisionError


def test_states_are_put_back_also_after_an_error():
    set_states(1)
    expected = draw()
    set_states(1)
    with pytest.raises(ZeroDivisionError), preserved():
        fail_after_drawing()
    assert draw() == expected
