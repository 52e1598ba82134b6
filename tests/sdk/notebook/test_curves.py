"""The numbers of the live figure: steps, losses, speeds, and what becomes of many points."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.notebook.curves import Curves, MetricsStep, Stretch


def train(update: int, time: float, *, loss: float | None = 1.0, world: int = 1, training: int = 0) -> dict[str, Any]:
    return {"training": training, "kind": "train", "update": update, "loss": loss, "world": world, "time": time}


def test(update: int, loss: float | None) -> dict[str, Any]:
    return {"training": 0, "kind": "test", "epoch": 0, "update": update, "loss": loss, "time": 0.0}


test.__test__ = False


def told(*points: dict[str, Any], **options: int) -> Curves:
    curves = Curves(**options)
    for point in points:
        curves.add(point)
    return curves


def test_before_the_first_point_there_is_nothing_to_say() -> None:
    curves = Curves()
    assert (curves.steps, curves.workers, curves.loss, curves.test_loss) == (0, 0, None, None)
    assert (curves.losses(), curves.smooth(), curves.stretches(), curves.average()) == ([], [], [], None)


def test_steps_count_from_one_and_the_newest_values_are_the_current_ones() -> None:
    curves = told(train(0, 10.0, loss=2.0), train(1, 10.5, loss=None, world=3), test(1, 0.5), test(1, 0.25))
    assert (curves.steps, curves.workers, curves.loss, curves.test_loss) == (2, 3, None, 0.25)
    assert curves.losses() == [(1, 2.0)]
    assert curves.test == [(2, 0.25)]


def test_an_update_that_was_lost_is_told_again_and_counts_once() -> None:
    curves = told(
        *(train(u, u) for u in range(6)), test(5, 9.0), train(3, 20.0, loss=7.0), train(4, 21.0), test(3, 1.0)
    )
    assert [point.step for point in curves.train] == [1, 2, 3, 4, 5]
    assert curves.train[3] == MetricsStep(4, 7.0, 1, 20.0)
    assert curves.test == [(4, 1.0)]


def test_a_later_training_begins_anew() -> None:
    curves = told(train(0, 1.0), test(0, 1.0), train(0, 2.0, loss=4.0, training=1))
    assert (curves.losses(), curves.test) == ([(1, 4.0)], [])


def test_no_stretch_spans_a_change_of_the_number_of_workers() -> None:
    first = [train(u, u * 0.5) for u in range(5)]
    then = [train(u, 2.0 + (u - 4) * 0.25, world=2) for u in range(5, 10)]
    assert told(*first, *then).stretches(most=2) == [Stretch(1, 5, 2.0, 1), Stretch(5, 10, 4.0, 2)]


def test_speed_is_drawn_in_a_bounded_number_of_pieces() -> None:
    curves = told(*(train(u, u * 0.01) for u in range(3000)))
    stretches = curves.stretches(most=50)
    assert len(stretches) <= 60
    assert [s.first for s in stretches[1:]] == [s.last for s in stretches[:-1]]
    assert all(s.rate == pytest.approx(100) for s in stretches)
    assert curves.average() == pytest.approx(100)


def test_clocks_that_stand_still_or_go_back_are_not_divided_by() -> None:
    curves = told(train(0, 5.0), train(1, 5.0), train(2, 4.0))
    assert curves.stretches() == []
    assert curves.average() is None


def test_however_many_points_the_extremes_stay() -> None:
    losses = {123: 50.0, 7777: -3.0}
    curves = told(*(train(u, float(u), loss=losses.get(u, 1.0 + u % 3)) for u in range(10_000)), most=100)
    assert len(curves.train) <= 100
    assert (124, 50.0) in curves.losses()
    assert (7778, -3.0) in curves.losses()
    assert curves.steps == 10_000


def test_what_happened_at_the_beginning_is_kept_as_finely_as_what_happens_now() -> None:
    curves = told(*(train(u, float(u), loss=1.0 + u % 7) for u in range(100_000)), most=400)
    steps = [point.step for point in curves.train]
    assert len(steps) <= 400
    apart = max(after - before for before, after in pairwise(steps))
    assert apart <= 4 * 100_000 / len(steps)
    assert sum(step <= 50_000 for step in steps) == pytest.approx(len(steps) / 2, abs=8)


@given(st.lists(st.tuples(st.integers(0, 40), st.one_of(st.none(), st.floats(-9, 9))), max_size=60))
def test_whatever_is_lost_and_told_again(told_points: list[tuple[int, float | None]]) -> None:
    curves = told(*(train(u, float(u), loss=loss) for u, loss in told_points), most=4000)
    expected: dict[int, float | None] = {}
    for update, loss in told_points:
        expected = {step: kept for step, kept in expected.items() if step <= update}
        expected[update + 1] = loss
    assert [(point.step, point.loss) for point in curves.train] == list(expected.items())


def test_of_a_stretch_that_was_partly_lost_the_rest_stays() -> None:
    curves = told(*(train(u, float(u), loss=float(u)) for u in range(64)), most=31)
    curves.add(train(33, 99.0, loss=-5.0))
    steps = [point.step for point in curves.train]
    assert (steps[-1], curves.loss, max(steps[:-1])) == (34, -5.0, 32)
    assert all(step <= 33 for step in steps[:-1])


def test_a_mean_goes_through_the_middle_of_many_points() -> None:
    curves = told(*(train(u, float(u), loss=float(u % 2)) for u in range(400)))
    smooth = curves.smooth()
    assert [step for step, _ in smooth] == list(range(1, 401))
    assert all(0.4 < mean < 0.6 for _, mean in smooth)
    assert told(*(train(u, float(u)) for u in range(79))).smooth() == []


def test_of_several_evaluations_one_is_drawn() -> None:
    curves = told(train(0, 10.0), test(0, 0.5), {**test(0, 7.0), "drawn": False})
    assert (curves.test, curves.test_loss) == ([(1, 0.5)], 0.5)
