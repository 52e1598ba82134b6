"""Whatever the data: well-formed, finite, inside the frame, few points. Nothing a user does may break a picture."""

from __future__ import annotations

import math
import re
from datetime import timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edt_sdk.pictures.allocation import AllocationChart, Band, draw_allocation
from edt_sdk.pictures.comparison import Compared, Comparison, draw_comparison
from edt_sdk.pictures.curves import Loss
from edt_sdk.pictures.efficiency import Efficiency, MeasuredSpeed, draw_efficiency
from edt_sdk.pictures.history import AXES, ValueHistory, draw_history
from edt_sdk.pictures.losses import Losses, draw_losses
from edt_sdk.pictures.parallel import ParallelTrials, ValueAxis, draw_parallel
from edt_sdk.pictures.parts.card_pictures import curve, progress_bar
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.marks import KINDS, Mark
from edt_sdk.pictures.parts.trials import FATES, MOST_DOTS, TrialDot
from edt_sdk.pictures.rungs import RungChart, RungRow, draw_rungs
from edt_sdk.pictures.shares import GroupShare, Shares, draw_shares
from edt_sdk.pictures.slots_map import STATES, SlotCell, SlotsMap, draw_slots
from edt_sdk.pictures.spark import Spark, draw_spark
from tests.sdk.pictures.drawn import check

numbers = st.floats(allow_nan=True, allow_infinity=True)
near = st.one_of(numbers, st.integers(-5, 5).map(float), st.sampled_from([1e308, -1e308, 5e-324, 1.7e9]))
names = st.text(max_size=120)
counts = st.integers(0, 12)
looks = st.builds(
    Look,
    st.sampled_from(["auto", "light", "dark"]),
    st.integers(200, 1300),
    st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours))),
)
marks = st.lists(st.builds(Mark, near, st.sampled_from(list(KINDS)), names), max_size=8).map(tuple)
losses = st.lists(st.builds(Loss, near, near), max_size=30).map(tuple)


@settings(max_examples=150, deadline=None)
@given(
    st.builds(
        Losses,
        names,
        losses,
        losses,
        st.lists(st.tuples(near, st.integers(0, 64)), max_size=8).map(tuple),
        marks,
        st.sampled_from(["samples", "updates", "time"]),
    ),
    looks,
    st.floats(0, 1),
    st.booleans(),
)
def test_losses(data, look, smooth, log):
    check(draw_losses(data, look, smooth=smooth, log=log), look.width)


trials = st.lists(
    st.builds(TrialDot, near, near, st.sampled_from(list(FATES)), st.integers(0, 10**6), names), max_size=30
).map(tuple)
rows = st.builds(RungRow, counts, st.integers(0, 10**6), counts, counts, counts, trials)


@settings(max_examples=100, deadline=None)
@given(st.builds(ValueHistory, names, names, st.booleans(), trials, st.sampled_from(AXES)), looks)
def test_history(data, look):
    check(draw_history(data, look), look.width)


@settings(max_examples=100, deadline=None)
@given(st.builds(RungChart, names, names, st.booleans(), st.lists(rows, max_size=6).map(tuple)), looks)
def test_rungs(data, look):
    check(draw_rungs(data, look), look.width)


axes = st.builds(ValueAxis, names, near, near, st.booleans(), st.lists(names, max_size=4).map(tuple))


EXTREMES = ((math.nan, 0.0), (0.0, 5e-324), (-1e308, 8e307), (-math.inf, math.inf), (3.0, 3.0), (2.0, 1.0))


@pytest.mark.parametrize("ends", EXTREMES)
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_with_whatever_ends(ends, log):
    trial = TrialDot(0.0, 0.0, "pruned", 1, "t"), (1.0,)
    check(draw_parallel(ParallelTrials("s", "m", False, (ValueAxis("lr", *ends, log),), (trial,)), Look()), 720)


@settings(max_examples=100, deadline=None)
@given(st.lists(axes, max_size=9).map(tuple), trials, st.booleans(), st.data(), looks)
def test_parallel(given_axes, dots, maximize, data, look):
    places = st.tuples(*(near for _ in given_axes))
    lines = tuple((dot, data.draw(places)) for dot in dots)
    check(draw_parallel(ParallelTrials("s", "m", maximize, given_axes, lines), look), look.width)


def test_of_many_trials_the_extremes_are_drawn():
    dots = tuple(TrialDot(at, float(at % 97), "pruned", 1, "t") for at in range(10_000))
    dots = (*dots[:5000], TrialDot(5000.0, 120.0, "held", 1, "highest"), *dots[5001:])
    for drawn in (
        draw_history(ValueHistory("s", "m", True, dots)),
        draw_rungs(RungChart("s", "m", True, (RungRow(0, 1, 10_000, 10_000, 0, dots),))),
    ):
        assert 100 < drawn.count('transform="translate') <= MOST_DOTS + 8
        assert drawn.count("fill-opacity") >= 2  # the legend's and the highest


@st.composite
def allocations(draw):
    edges = draw(st.one_of(st.lists(near, max_size=8), st.lists(st.floats(1.7e9, 1.8e9), max_size=8).map(sorted)))
    columns = max(0, len(edges) - 1)

    def row(values):
        return tuple(draw(st.lists(values, min_size=columns, max_size=columns)))

    bands = tuple(
        Band(draw(names), draw(names), row(near), row(near) if draw(st.booleans()) else ())
        for _ in range(draw(st.integers(0, 4)))
    )
    return AllocationChart(
        tuple(edges), bands, row(st.integers(0, 100)), draw(marks), draw(names), draw(st.booleans()), draw(names)
    )


@settings(max_examples=150, deadline=None)
@given(allocations(), looks)
def test_allocation(data, look):
    check(draw_allocation(data, look), look.width)


cells = st.builds(SlotCell, st.none() | counts, names, st.sampled_from(list(STATES)), names, names).map(
    lambda cell: cell if (cell.state in ("held", "leaving")) == bool(cell.job) else SlotCell(cell.slot, "cpu", "idle")
)


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        SlotsMap, st.lists(st.tuples(names, st.lists(cells, max_size=40).map(tuple)), max_size=5).map(tuple), names
    ),
    looks,
)
def test_slots(data, look):
    check(draw_slots(data, look), look.width)


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        Efficiency, names, st.lists(st.builds(MeasuredSpeed, st.integers(-1, 600), near, st.floats(0, 1e9))).map(tuple)
    ),
    looks,
)
def test_efficiency(data, look):
    check(draw_efficiency(data, look), look.width)


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        Shares,
        st.lists(
            st.builds(GroupShare, names, st.integers(0, 4), counts, counts, counts, counts, counts, counts, counts),
            max_size=12,
        ).map(tuple),
    ),
    looks,
)
def test_shares(data, look):
    check(draw_shares(data, look), look.width)


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        Comparison,
        st.lists(st.builds(Compared, names, names, losses, losses), max_size=7).map(tuple),
        st.sampled_from(["samples", "updates", "time"]),
    ),
    looks,
    st.floats(0, 1),
    st.booleans(),
)
@example(
    Comparison((Compared("", "", (), (Loss(8e307, math.inf), Loss(-1e308, math.inf), Loss(math.nan, 1.0))),)),
    Look(),
    0.0,
    False,
)
def test_comparison(data, look, smooth, log):
    check(draw_comparison(data, look, smooth=smooth, log=log), look.width)


@settings(max_examples=100, deadline=None)
@given(
    st.builds(Spark, names, names, numbers, st.integers(0, 5000), st.integers(0, 5000), st.lists(near).map(tuple)),
    looks,
)
def test_spark(data, look):
    check(draw_spark(data, look), look.width)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(near, near)), numbers, st.integers(0, 99), st.integers(0, 99))
def test_the_cards_little_pictures(points, done, slots, most):
    for svg in (curve(points), progress_bar(done, slots, most)):
        assert "nan" not in svg
        assert "inf" not in svg


def huge(count: int) -> tuple[Loss, ...]:
    return tuple(Loss(float(at), math.sin(at / 500) + (50.0 if at == 77_777 else 0.0)) for at in range(count))


def test_a_hundred_thousand_points_are_a_few_hundred_and_the_spike_is_among_them():
    svg = draw_losses(Losses("long", huge(100_000)))
    check(svg, 720)
    assert len(svg) < 20_000
    ys = sorted(float(y) for y in re.findall(r"[\d.]+,([\d.]+)", svg))
    assert ys[1] - ys[0] > 100, "the largest loss is drawn, far above all others"


def test_many_columns_bands_and_slots_stay_few():
    bands = tuple(Band(f"j{n}", f"job {n}", tuple(float((at + n) % 3) for at in range(5000))) for n in range(300))
    check(draw_allocation(AllocationChart(tuple(map(float, range(5001))), bands, (900,) * 5000)), 720)
    hosts = tuple(
        (f"host-{h}", tuple(SlotCell(s, "cpu", "held", f"j{s % 9}", "x") for s in range(64))) for h in range(200)
    )
    check(draw_slots(SlotsMap(hosts)), 720)
    check(draw_efficiency(Efficiency("x", tuple(MeasuredSpeed(n, n * 10.0, 5) for n in range(1, 900)))), 720)
    check(draw_shares(Shares(tuple(GroupShare(f"g{n}", n % 5, 9, 1, 1, 0, 0, 1, 0, 0) for n in range(500)))), 720)


@pytest.mark.parametrize("name", ["a<b>&\"'", "\x00\x1b[31m", "\ud800", "]]>", "日本語" * 40, "\u202e reversed"])
def test_names_of_any_letters(name):
    for svg in (
        draw_losses(Losses(name, ())),
        draw_allocation(AllocationChart((0.0, 60.0), (Band("j", name, (2.0,)),), (4,))),
        draw_slots(SlotsMap(((name, (SlotCell(1, name, "held", "j", name),)),))),
        draw_spark(Spark(name, "RUNNING", 0.5, 1, 2), Look(width=720)),
    ):
        check(svg, 720)
