"""Pictures in a terminal: the figures of the server's, in characters, never wider than what they are given."""

from datetime import UTC

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edt_sdk.display import text_pictures as text
from edt_sdk.display.readings import Metrics, Timeline
from edt_sdk.formatting.text_chart import bar, blocks, chart, levels, over_time
from edt_sdk.schemas.job import JobProgress

LOSSES = st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), max_size=60)


def metrics(losses, test=(), speeds=()):
    train = [{"update": at, "loss": loss} for at, loss in enumerate(losses)]
    return Metrics(train, [{"update": at, "loss": loss} for at, loss in test], list(speeds))


def test_a_curve_that_falls():
    assert chart([(1, 4.0), (2, 2.0), (3, 0.0)], [(3, 1.0)], width=16, height=5, x_name="x") == [
        "4 ┤⠑⠤⡀",
        "3 ┤  ⠈⠒⢄",
        "2 ┤     ⠉⠢⡀",
        "1 ┤       ⠈⠑⠤⡀ ●",
        "0 ┤          ⠈⠢⢄",
        "  └┬─────┬─────┬",
        "   1     2     x",
    ]


def test_a_value_that_is_no_number_breaks_the_line_and_is_marked():
    lines = chart([(1, 4.0), (2, None), (3, 0.0), (4, 1.0)], [], width=20, height=5, x_name="updates")
    assert lines[0] == "4 ┤⠁    ✕"
    assert lines[3:5] == ["1 ┤               ⣀⠤", "0 ┤           ⣀⠤⠒⠉"]


@given(LOSSES, LOSSES, st.integers(20, 120), st.integers(2, 20))
@example([5e-324], [], 40, 5)
@example([0.0, 5e-324], [], 40, 5)
def test_a_chart_of_anything_fits(curve, spots, width, height):
    lines = chart(list(enumerate(curve)), list(enumerate(spots)), width=width, height=height, x_name="updates")
    assert len(lines) in (0, height + 2)
    assert all(len(line) <= width for line in lines)


@given(LOSSES)
def test_blocks_and_bars_of_anything(values):
    assert len(blocks(values, 0.0, 1.0)) == len(values)
    known = [value for value in values if value is not None and value == value]
    assert len(levels(known)) == len(known)
    assert all(len(bar(value, 7)) == 7 for value in known)


def test_the_loss_says_what_its_signs_mean():
    shown = text.loss_text(metrics([1.0, None, 0.5], [(2, 0.6)]), width=60)
    assert shown.splitlines()[-1] == "⠉⠒⠤⣀ training  ● validation  ✕ not a number"
    assert "not a number" not in text.loss_text(metrics([1.0, 0.5]), width=60)
    assert text.loss_text(metrics([]), width=60) == text.loss_text(metrics([None]), width=60) == ""


def test_slots_over_time_are_means_of_equal_stretches():
    rows = [(0.0, {"a": 2}), (5.0, {"a": 4, "b": 1}), (7.5, {"b": 3})]
    assert over_time(rows, 10.0, 4) == {"a": (2.0, 2.0, 4.0, 0.0), "b": (0.0, 0.0, 1.0, 3.0)}
    assert over_time(rows, 10.0, 2)["a"] == (2.0, 2.0)
    assert over_time([], 10.0, 4) == {}


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 9)), min_size=1, max_size=20), st.integers(1, 50))
def test_no_slot_is_lost_between_the_columns(rows, columns):
    rows = sorted(rows)
    until = rows[-1][0] + 10.0
    held = over_time([(time, {"a": slots}) for time, slots in rows], until, columns)["a"]
    ends = [time for time, _ in rows[1:]] + [until]
    area = sum(slots * (end - time) for (time, slots), end in zip(rows, ends, strict=True))
    assert sum(held) * (until - rows[0][0]) / columns == pytest.approx(area, rel=1e-6, abs=1e-6)


def timeline(jobs=2):
    names = {f"edt-{at}": f"job {at}" for at in range(jobs)}
    rows = [
        {"time": 0.0, "slots": dict.fromkeys(names, 1), "free": 4 - min(jobs, 4)},
        {"time": 30.0, "slots": {"edt-0": 4}, "free": 0},
    ]
    return Timeline(4, rows, names, until=60.0)


def test_a_row_for_each_job_and_ones_own_comes_first():
    shown = text.slots_over_time(timeline(), width=52, zone=UTC, mine="edt-1")
    assert shown.splitlines() == [
        "slots",
        f"{'▸ job 1':<20} ▕{'▂' * 10}{' ' * 10}▏ 0",
        f"{'  job 0':<20} ▕{'▂' * 10}{'█' * 10}▏ 4",
        f"{'  free':<20} ▕{'▄' * 10}{' ' * 10}▏ 0",
        f"{'':<20}  00:00:00{'00:01:00 UTC':>13}",
    ]


def test_of_a_crowd_the_largest_are_named():
    lines = text.slots_over_time(timeline(40), width=80, zone=UTC).splitlines()
    assert len(lines) == 1 + text._MOST_JOBS + 3
    assert f"{40 - text._MOST_JOBS} more jobs" in lines[-3]


def test_a_glance_at_a_job(make_view):
    view = make_view(slots=2, max_workers=4, progress=JobProgress(update=50, total_updates=100))
    lines = text.spark_text(view, metrics([4.0, 3.0, 2.0, 1.0]), width=42).splitlines()
    assert lines == [
        f"loss   {'█▆▃▁':<12} 1",
        f"done   ▕{'█████':<10}▏ 50 of 100 updates",
        f"slots  ▕{'█████':<10}▏ 2 of 4",
    ]


def test_what_more_workers_bring():
    speeds = [{"workers": w, "samples": s, "seconds": 10.0} for w, s in ((1, 1000), (2, 1900))]
    lines = text.efficiency_text(metrics([], speeds=speeds), width=72).splitlines()
    assert [line.split()[-6:] for line in lines[1:]] == [
        ["1", "█████▎", "100", "100", "%", "10", "s"][-6:],
        ["2", "██████████", "190", "95", "%", "10", "s"][-6:],
    ]
    assert text.efficiency_text(metrics([]), width=72) == ""


def test_losses_side_by_side_are_on_one_scale(make_view):
    jobs = [(make_view(name="a"), metrics([4.0, 2.0])), (make_view(name="b"), metrics([3.0, None], [(1, 2.5)]))]
    lines = text.comparison_text(jobs, width=80).splitlines()
    assert [line.split() for line in lines[1:3]] == [["a", "█▁", "2", "2", "-"], ["b", "▅·", "-", "3", "2.5"]]
    assert lines[3] == "▁ is 2, █ is 4; from the first update to the last of each."
    assert text.comparison_text([(make_view(), metrics([]))], width=80) == ""


def test_shares_are_bars_of_their_resource_group():
    group = {"resource_group": "default", "own": 0, "lenders": {}, "lent": 0}
    groups = [
        {**group, "name": "a", "held": 4, "entitled": 2, "lenders": {"b": 2}},
        {**group, "name": "b", "held": 1, "entitled": 4, "lent": 2},
        {**group, "name": "idle", "held": 0, "entitled": 0},
    ]
    cluster = {"groups": groups, "resource_groups": [{"name": "default", "slots": 8}]}
    lines = text.shares_text(cluster, width=70).splitlines()
    assert lines[1:] == [
        f"a      ▕{'█████':<10}▏  4 of 8  2    2 borrowed",
        f"b      ▕{'█▎':<10}▏  1 of 8  4    2 lent",
    ]
