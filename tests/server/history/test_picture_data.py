"""From rows, points and events to what pictures show: exact where there is little, few where there is much."""

from __future__ import annotations

import math
import re

import msgspec
import pytest

from edt_sdk.pictures.allocation import draw_allocation
from edt_sdk.pictures.parts.look import JOB_COLOURS, job_colour
from edt_sdk.pictures.slots_map import draw_slots
from edt_sdk.pictures.spark import draw_spark
from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobProgress, JobState, JobView
from edt_server.history.picture_data import (
    MOST_BANDS,
    allocation_of,
    compared,
    efficiency_of,
    losses_of,
    marks_of,
    shares_of,
    slots_of,
    spark_of,
)
from edt_server.outputs.results import Checkpoint
from edt_server.outputs.training_curve import Curve, TestPoint, TrainPoint

LEGEND = re.compile(r'rx="\d" fill="(#\w+)"[^>]*/>(?:<rect [^>]*/>)?</g><text [^>]*>(early|late|gone|ended|running)')


def row(time, slots, leaving=None, capacity=4):
    return {
        "time": time, "seq": int(time), "slots": slots, "leaving": leaving or {}, "free": 0, "capacity": capacity,
        "settled": True, "cause": "x", "text": "x",
    }  # fmt: skip


def event(seq, kind, cause=None, text="", **data):
    return Event(seq=seq, time=float(seq), job="a", kind=kind, data=data, cause=cause, text=text or kind)


class TestAllocation:
    def test_each_row_holds_until_the_next_and_the_last_until_now(self):
        held = allocation_of([row(10, {"a": 1}), row(20, {"a": 2, "b": 1}, {"a": 1})], {"a": "A", "b": "B"}, until=30)
        assert held.edges == (10, 20, 30)
        assert [(band.name, band.slots, band.leaving) for band in held.bands] == [
            ("A", (1, 2), (0, 1)),
            ("B", (0, 1), ()),
        ]

    def test_mine_is_the_lowest_and_a_window_begins_where_it_was_asked_for(self):
        held = allocation_of([row(10, {"a": 1, "b": 2})], {}, until=50, start=40, mine="b")
        assert held.edges == (40, 50)
        assert [band.job for band in held.bands] == ["b", "a"]

    def test_a_clock_that_was_set_back_draws_nothing_twice(self):
        held = allocation_of([row(10, {"a": 1}), row(5, {"a": 2}), row(20, {"a": 3})], {}, until=30)
        assert held.edges == (10, 20, 30)
        assert held.bands[0].slots == (2, 3)

    def test_ten_thousand_jobs_are_a_few_bands(self):
        rows = [row(at, {f"j{at}": 1, f"j{at + 1}": 2}) for at in range(1, 10_000)]
        held = allocation_of(rows, {}, until=10_001, mine="j7", total=20_000)
        assert len(held.bands) == MOST_BANDS + 2
        assert held.bands[0].job == "j7"
        assert held.bands[-1].name == "9989 other jobs"
        assert sum(sum(band.slots) for band in held.bands) == 3 * len(rows)
        assert "of 20000 changes" in held.note

    def test_nothing_is_nothing(self):
        assert allocation_of([], {}, until=5).columns == 0
        assert allocation_of([row(10, {})], {}, until=5).columns == 0


class TestMarks:
    def test_slots_of_one_cause_are_one_mark_and_whose_cause_it_was_tells_its_kind(self):
        marks = marks_of(
            [
                event(1, kinds.JOB_ARRIVED),
                event(2, kinds.SLOT_GRANTED, cause=1, text="slot 0 granted", slot=0),
                event(3, kinds.SLOT_GRANTED, cause=1, text="slot 1 granted", slot=1),
                event(5, kinds.SLOT_REVOKED, cause=4, text="asked to give back slot 1: b arrived", slot=1),
                event(6, kinds.JOB_CHANGED, max_workers=1),
                event(7, kinds.SLOT_REVOKED, cause=6, text="asked to give back slot 0", slot=0),
                event(8, kinds.WORKER_LOST, text="worker 1 was ended by signal 9"),
            ]
        )
        assert [(mark.kind, mark.text) for mark in marks] == [
            ("grow", "2 slots: slot 0 granted"),
            ("preempt", "asked to give back slot 1: b arrived"),
            ("shrink", "asked to give back slot 0"),
            ("failure", "worker 1 was ended by signal 9"),
        ]


@pytest.fixture
def curve():
    train = tuple(
        TrainPoint(at, 64 * (at + 1), None if at == 3 else 1 / (at + 1), 1 if at < 5 else 2, 100.0 + at)
        for at in range(10)
    )
    return Curve(
        1, train, (TestPoint(4, 0.5, 105.5),), (train[0], train[5]), 10, {1: (320, 5.0), 2: (640, 5.0), 3: (1, 0.1)}
    )


class TestLosses:
    @pytest.mark.parametrize(
        ("axis", "first", "tested"), [("samples", 64, 320), ("updates", 1, 5), ("time", 100, 105.5)]
    )
    def test_over_each_axis(self, curve, axis, first, tested):
        losses = losses_of(curve, "digits", axis=axis)
        assert losses.train[0].x == first
        assert losses.test[0].x == tested
        assert math.isnan(losses.train[3].loss)
        assert [(mark.kind, mark.text) for mark in losses.marks] == [("grow", "1 to 2 workers from update 6 on")]

    def test_failures_and_checkpoints_of_this_training_lie_at_their_update(self, curve):
        failure = marks_of([event(103, kinds.WORKER_LOST, text="lost"), event(3, kinds.WORKER_LOST, text="before")])
        saved = [
            Checkpoint(name="epoch-1", epoch=1, bytes=1, time=108.0, kind="exact", update=8, training=1),
            Checkpoint(name="epoch-9", epoch=1, bytes=1, time=50.0, kind="exact", update=8, training=0),
            Checkpoint(name="model_epoch_1.pth", epoch=1, bytes=1, time=108.0),
        ]
        losses = losses_of(curve, "digits", axis="samples", marks=failure, checkpoints=saved)
        assert [(mark.kind, mark.at) for mark in losses.marks] == [("failure", 256), ("grow", 384), ("checkpoint", 512)]

    def test_compared_over_time_begins_at_0(self, curve):
        assert compared("j", curve, "digits", "time").train[0].x == 0
        assert compared("j", Curve(0), "digits", "time").train == ()

    def test_speeds_measured_for_a_moment_are_left_out(self, curve):
        assert [(s.workers, s.rate) for s in efficiency_of(curve, "digits").speeds] == [(1, 64.0), (2, 128.0)]


CLUSTER = {
    "slots": [
        {"id": 0, "host": "a", "device": "cuda:0", "resource_group": "g", "job": "j1", "leaving": True},
        {"id": 1, "host": "a", "device": "cuda:1", "resource_group": "g", "job": None, "leaving": False},
        {"id": 2, "host": "c", "device": "cuda:0", "resource_group": "g", "job": "j2", "leaving": False},
    ],
    "names": {"j1": "one"},
    "elsewhere": [{"device": "cuda:1", "data_dir": "/x"}],
    "groups": [
        {"name": n, "parent": p, "slots": 3, "entitled": 1, "held": 1}
        | {"borrowed": 4, "lenders": {"x": 1, "y": 2}, "lent": 0, "jobs": 1, "waiting": ["j", "k"], "wanting": ["j2"]}
        for n, p in (("top", ""), ("other", ""), ("below", "top"))
    ],
}  # fmt: skip


def test_each_slot_has_a_state_and_a_host_without_slots_is_lost():
    made = slots_of(CLUSTER, {"a": 2, "b": 2})
    assert [(host, [cell.state for cell in cells]) for host, cells in made.hosts] == [
        ("a", ["leaving", "fenced"]),
        ("b", ["lost", "lost"]),
        ("c", ["held"]),
    ]
    assert made.hosts[2][1][0].name == "j2", "a job that is not listed any more"


def test_the_map_of_slots_and_the_timeline_beside_it_give_a_job_one_colour():
    alike = [f"job-{n}" for n in range(99) if job_colour(f"job-{n}") == JOB_COLOURS[0]]
    gone, early, late = alike[:3]
    names = {early: "early", late: "late"}  # of those in slots, in order of arrival
    slots = [
        {"id": n, "host": "a", "device": "cpu", "job": job, "leaving": False} for n, job in enumerate([late, early])
    ]
    drawn = draw_slots(slots_of({"names": names, "elsewhere": [], "slots": slots}, {}))
    rows = [row(10, {gone: 4}), row(20, {late: 1, early: 1})]
    told = draw_allocation(allocation_of(rows, {**names, gone: "gone"}, until=30))
    in_slots, in_time = ({name: colour for colour, name in LEGEND.findall(svg)} for svg in (drawn, told))
    assert in_slots == {name: in_time[name] for name in ("early", "late")}
    assert {*in_time.values()} == {JOB_COLOURS[0]}, "also next to an ended job of the same colour"


def test_a_small_picture_names_the_jobs_that_hold_slots_now():
    rows = [row(10, {"a": 2}, leaving={"a": 1}), row(20, {"b": 1})]
    names = {"a": "ended", "b": "running"}
    drawn, small = (
        draw_allocation(allocation_of(rows, names, until=30, total=9, brief=brief)) for brief in (False, True)
    )
    assert [name for _, name in LEGEND.findall(drawn)][:2] == ["ended", "running"]
    assert "2 of 9 changes" in drawn
    assert "being given back" in drawn
    assert [name for _, name in LEGEND.findall(small)] == ["running"]
    assert "changes" not in small
    assert "being given back" not in small
    assert "<title>ended: " in small, "it keeps its title"


def test_groups_stand_behind_the_one_they_are_part_of():
    assert [(g.name, g.depth, g.waiting, g.wanting, g.borrowed) for g in shares_of(CLUSTER).groups] == [
        ("top", 0, 2, 1, 3),
        ("below", 1, 2, 1, 3),
        ("other", 0, 2, 1, 3),
    ]


def test_a_card_and_its_curve_have_one_loss(curve):
    view = JobView(
        id="a", name="digits", owner="ann", state=JobState.RUNNING, state_since=0, created=0, started=0, ended=None,
        max_workers=4, mode="exact", seed=0, main="train.py", args=(), slots=2, shards=4, reason=None, message="",
        result_dir="", progress=JobProgress(update=11, epoch=0, loss=0.294),
    )  # fmt: skip
    spark = spark_of(view, curve)
    assert "loss 0.294" in spark.says()
    assert ">loss 0.294<" in draw_spark(spark)
    spark = spark_of(msgspec.structs.replace(view, progress=None), curve)
    assert spark.says().endswith("loss 0.1.")
