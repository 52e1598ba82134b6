"""The computed list of steps against the one a person would write down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.training.sampling.order import TestStep, TrainStep
from edt_sdk.training.sampling.schedule import (
    Cursor,
    EpochBegin,
    EpochEnd,
    Final,
    Schedule,
    Step,
    TrainBegin,
    TrainEnd,
    UpdateEnd,
)

schedules = st.builds(
    Schedule,
    epochs=st.integers(1, 7),
    updates_per_epoch=st.integers(1, 5),
    validation_steps=st.integers(0, 3),
    validation_freq=st.integers(0, 4),
    checkpoint_freq=st.integers(0, 4),
    update_hooks=st.booleans(),
)


def written_down(s: Schedule) -> list[Step]:
    steps: list[Step] = [TrainBegin()]
    number = 0
    for epoch in range(s.epochs):
        steps.append(EpochBegin(epoch))
        for k in range(s.updates_per_epoch):
            steps.append(TrainStep(epoch, k, number))
            steps += [UpdateEnd(epoch, number)] * s.update_hooks
            number += 1
        if s.validation_freq and (epoch + 1) % s.validation_freq == 0:
            steps += [TestStep(epoch, i) for i in range(s.validation_steps)]
        steps.append(EpochEnd(epoch, bool(s.checkpoint_freq) and (epoch + 1) % s.checkpoint_freq == 0))
    return [*steps, TrainEnd(), Final()]


@given(schedules)
def test_the_computed_list_is_the_written_one(schedule: Schedule) -> None:
    assert list(schedule) == written_down(schedule)
    assert len(schedule) == len(written_down(schedule))


@given(schedules)
def test_the_cursor_walks_it_and_counts_updates(schedule: Schedule) -> None:
    cursor, updates = Cursor(schedule), 0
    while cursor.step != Final():
        assert cursor.updates == updates
        updates += isinstance(cursor.step, TrainStep)
        cursor = cursor.next
    assert cursor.updates == updates == schedule.total_updates
    with pytest.raises(IndexError):
        _ = cursor.next.step


def test_validation_every_tenth_of_two_epochs_never_happens() -> None:
    schedule = Schedule(epochs=2, updates_per_epoch=3, validation_steps=2, validation_freq=10)
    assert not any(isinstance(step, TestStep) for step in schedule)


def test_a_hundred_thousand_epochs_cost_nothing() -> None:
    schedule = Schedule(epochs=10**9, updates_per_epoch=4, validation_steps=3)
    assert schedule[len(schedule) - 3] == EpochEnd(10**9 - 1, checkpoint=True)
