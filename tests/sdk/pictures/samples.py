"""Data that pictures are drawn from in tests and in the gallery: one of each kind, with what is hard to draw in it."""

from __future__ import annotations

import math

from edt_sdk.pictures.allocation import AllocationChart, Band, draw_allocation
from edt_sdk.pictures.comparison import Compared, Comparison, draw_comparison
from edt_sdk.pictures.curves import Loss
from edt_sdk.pictures.efficiency import Efficiency, MeasuredSpeed, draw_efficiency
from edt_sdk.pictures.history import ValueHistory, draw_history
from edt_sdk.pictures.losses import Losses, draw_losses
from edt_sdk.pictures.parallel import ParallelTrials, ValueAxis, draw_parallel
from edt_sdk.pictures.parts.look import job_colour
from edt_sdk.pictures.parts.marks import Mark
from edt_sdk.pictures.parts.trials import FATES, TrialDot
from edt_sdk.pictures.rungs import RungChart, RungRow, draw_rungs
from edt_sdk.pictures.shares import GroupShare, Shares, draw_shares
from edt_sdk.pictures.slots_map import SlotCell, SlotsMap, draw_slots
from edt_sdk.pictures.spark import Spark, draw_spark

NOON = 1_795_176_000.0  # 2026-11-20 12:00 UTC
LONG = "resnet50-imagenet-baseline-with-label-smoothing-and-a-long-name-run-0017"


def dot(number: int, value: float, fate: str, epochs: int) -> TrialDot:
    return TrialDot(number, value, fate, epochs, f"trial {number}: {value:.4g} after {epochs} epochs, lr=0.01")


def history(axis: str = "number") -> ValueHistory:
    """27 trials, of which every third was compared again, with one that diverged."""
    fates = [*FATES, "pruned", "pruned", "pruned"]
    dots = [dot(at, 0.9 + 0.003 * (at * 7 % 27), fates[at % 9], 3 if at % 3 == 0 else 1) for at in range(27)]
    dots += [dot(27, math.nan, "failed", 1), dot(28, -1e9, "pruned", 1)]
    placed = [TrialDot(NOON + 60 * each.at, each.value, each.fate, each.rank, each.text) for each in dots]
    return ValueHistory("digits-lr", "test_accuracy", True, tuple(dots if axis == "number" else placed), axis)


def rungs() -> RungChart:
    values = [0.2 + 0.03 * (at * 7 % 27) for at in range(27)]
    order = sorted(range(27), key=values.__getitem__)
    first = tuple(dot(at, values[at], "promoted" if order.index(at) < 9 else "pruned", 1) for at in range(27))
    second = tuple(dot(at, values[at] - 0.1, "promoted" if order.index(at) < 3 else "pruned", 3) for at in order[:9])
    last = (dot(order[0], 0.08, "held", 9), dot(order[1], 0.11, "running", 4))
    rows = (RungRow(0, 1, 27, 27, 9, first), RungRow(0, 3, 9, 9, 3, second), RungRow(0, 9, 3, 1, 0, last))
    return RungChart("digits-lr", "test_loss", False, rows)


def parallel() -> ParallelTrials:
    """27 trials over a range of each kind; those that trained three epochs stand above the others."""
    axes = (
        ValueAxis("lr", 1e-4, 0.1, log=True),
        ValueAxis("dropout", 0, 0.5),
        ValueAxis("width", choices=("32", "64", "128")),
        ValueAxis("optimizer", choices=("adam", "sgd with momentum")),
    )
    lines = tuple(
        (each, (1e-4 * 1000 ** (at * 5 % 27 / 27), at * 11 % 27 / 54, at % 3, at // 4 % 2))
        for at, each in enumerate(history().dots)
    )
    return ParallelTrials("digits-lr", "test_accuracy", True, axes, lines)


def many_axes() -> ParallelTrials:
    """More hyper-parameters than there is room for, and one that has a single value."""
    axes = (ValueAxis(LONG, 3, 3), *(ValueAxis(f"p{at}", -1e9, 1e9) for at in range(20)))
    lines = tuple((dot(at, at / 7, "held", 1), (3, *(1e8 * (at - 5) for _ in range(20)))) for at in range(9))
    return ParallelTrials(LONG, LONG, False, axes, lines)


def brackets() -> RungChart:
    """More comparisons than there is room for, and a metric with a long name."""
    rows = [RungRow(at // 4, 3 ** (at % 4), 9, 0, 0, (dot(at, at / 7, "held", 1),)) for at in range(24)]
    return RungChart(LONG, LONG, True, (RungRow(0, 0, 1, 0, 0, ()), *rows))


def allocation(mine: str = "job-a") -> AllocationChart:
    edges = tuple(NOON + at for at in (0, 40, 100, 160, 175, 260, 400, 470))
    return AllocationChart(
        edges,
        (
            Band("job-a", "digits-a", (1, 4, 4, 2, 2, 1, 1), (0, 0, 2, 0, 1, 0, 0)),
            Band("job-b", LONG, (0, 0, 0, 2, 2, 3, 3)),
            Band("job-c", "mnist & <friends>", (0, 0, 2, 2, 1, 1, 0)),
        ),
        (6, 6, 6, 6, 6, 8, 8),
        (
            Mark(NOON + 40, "grow", "slots 1, 2, 3 granted: the job began a training that can use 4 slots"),
            Mark(NOON + 100, "preempt", "asked to give back 2 slots: another job arrived"),
            Mark(NOON + 230, "failure", "worker 2 was ended by signal 9"),
            Mark(NOON + 260, "shrink", "gives back slot 1: its maximum of workers is now 1"),
        ),
        mine,
    )


def twins() -> AllocationChart:
    """Jobs whose own colour is the same, and more of them than there are colours."""
    jobs = [job for job in (f"twin-{n}" for n in range(120)) if job_colour(job) == job_colour("twin-0")][:10]
    return AllocationChart((NOON, NOON + 60, NOON + 90), tuple(Band(job, job, (2, 1)) for job in jobs), (20, 20))


def crowd() -> AllocationChart:
    columns = 240
    bands = [
        Band(
            f"job-{n}",
            f"sweep-{n:03d}",
            tuple(float((at * 7 + n * 13) % 11 > 5 + n % 3) * (1 + n % 3) for at in range(columns)),
        )
        for n in range(10)
    ]
    bands.append(Band("", "9 989 other jobs", tuple(float(20 + (at * 5) % 9) for at in range(columns))))
    edges = tuple(NOON - 7 * 86400 + at * 7 * 86400 / columns for at in range(columns + 1))
    return AllocationChart(
        edges, tuple(bands), (64,) * columns, note="240 of 118 204 changes are drawn; zoom in to see the others."
    )


def losses(axis: str = "samples") -> Losses:
    train = [Loss(64.0 * at, 2.3 * math.exp(-at / 60) + 0.12 + 0.1 * math.sin(at * 1.7)) for at in range(1, 240)]
    train[120] = Loss(train[120].x, math.nan)
    test = tuple(Loss(64.0 * at, 2.2 * math.exp(-at / 65) + 0.2) for at in range(40, 241, 40))
    marks = (
        Mark(64.0 * 30, "grow", "1 to 2 workers from update 31 on"),
        Mark(64.0 * 60, "grow", "2 to 4 workers from update 61 on"),
        Mark(64.0 * 110, "failure", "worker 2 was ended by signal 9"),
        Mark(64.0 * 111, "shrink", "4 to 3 workers from update 112 on"),
        Mark(64.0 * 80, "checkpoint", "checkpoint epoch-2"),
        Mark(64.0 * 160, "checkpoint", "checkpoint epoch-4"),
    )
    sizes = ((64.0, 1), (64.0 * 30, 2), (64.0 * 60, 4), (64.0 * 111, 3), (64.0 * 115, 4))
    if axis == "time":
        move = lambda x: NOON + x / 20  # noqa: E731
        return Losses(
            "digits-a",
            tuple(Loss(move(p.x), p.loss) for p in train),
            tuple(Loss(move(p.x), p.loss) for p in test),
            tuple((move(x), n) for x, n in sizes),
            tuple(Mark(move(m.at), m.kind, m.text) for m in marks),
            "time",
        )
    return Losses("digits-a", tuple(train), test, sizes, marks, axis)


def slots(mine: str = "") -> SlotsMap:
    def held(slot: int, job: str, name: str, state: str = "held") -> SlotCell:
        return SlotCell(slot, "cuda:0", state, job, name)

    first = (
        held(0, "job-a", "digits-a"),
        held(1, "job-a", "digits-a", "leaving"),
        held(2, "job-b", LONG),
        SlotCell(3, "cuda:3", "idle"),
    )
    second = (
        held(4, "job-b", LONG),
        held(5, "job-c", "mnist"),
        SlotCell(6, "cuda:2", "fenced"),
        SlotCell(7, "cuda:3", "idle"),
    )
    return SlotsMap((("node-a", first), ("node-b", second), ("node-c", (SlotCell(None, "-", "lost"),) * 4)), mine)


def many_slots() -> SlotsMap:
    hosts = []
    for host in range(12):
        cells = tuple(
            SlotCell(s, f"cuda:{s}", "held", f"job-{(host * 3 + s // 6) % 9}", f"sweep-{(host * 3 + s // 6) % 9}")
            if (s + host) % 5
            else SlotCell(s, f"cuda:{s}", "idle")
            for s in range(64)
        )
        hosts.append((f"gpu-node-{host:02d}.cluster.example", cells))
    return SlotsMap(tuple(hosts))


def efficiency() -> Efficiency:
    return Efficiency(
        "digits-a",
        (
            MeasuredSpeed(1, 412.0, 30),
            MeasuredSpeed(2, 803.0, 44),
            MeasuredSpeed(4, 1480.0, 210),
            MeasuredSpeed(8, 2610.0, 18),
        ),
    )


def shares() -> Shares:
    return Shares(
        (
            GroupShare("research", 0, 16, 12, 13, 4, 0, 5, 2, 1),
            GroupShare("vision", 1, 16, 8, 8, 2, 0, 3, 0, 2),
            GroupShare("speech", 1, 16, 4, 5, 2, 0, 2, 1, 0),
            GroupShare("production-night-batch-of-the-forecasting-team", 0, 16, 4, 3, 0, 2, 1, 0, 0),
            GroupShare("idle", 0, 16, 0, 0, 0, 2, 0, 0, 0),
        )
    )


def a_stretch() -> Losses:
    """The middle of a training, where its workers change."""
    return losses().between(3000, 8000)


def comparison() -> Comparison:
    jobs = []
    for n, name in enumerate(("lr-0.1", "lr-0.01", LONG, "lr-0.003-warm", "lr-0.3")):
        train = tuple(
            Loss(64.0 * at, (2.3 + n / 5) * math.exp(-at / (40 + 25 * n)) + 0.05 * math.sin(at * 1.3 + n) + 0.2)
            for at in range(1, 200)
        )
        jobs.append(
            Compared(
                f"job-{n}", name, train, tuple(Loss(64.0 * at, 0.5 + n / 10) for at in (100, 199)) if n < 2 else ()
            )
        )
    return Comparison(tuple(jobs))


def no_numbers() -> Comparison:
    return Comparison(tuple(Compared(name, name, (Loss(64.0, math.nan), Loss(128.0, math.inf))) for name in "ab"))


def spark() -> Spark:
    return Spark("digits-a", "RUNNING", 0.62, 3, 4, tuple(point.loss for point in losses().train))


# name → a function of a Look that draws it; the names are those of the golden files.
PICTURES = {
    "allocation": lambda look: draw_allocation(allocation(), look),
    "allocation-everybody": lambda look: draw_allocation(allocation(mine=""), look),
    "allocation-week": lambda look: draw_allocation(crowd(), look),
    "allocation-twins": lambda look: draw_allocation(twins(), look),
    "allocation-empty": lambda look: draw_allocation(AllocationChart((), (), ()), look),
    "loss": lambda look: draw_losses(losses(), look),
    "loss-smooth": lambda look: draw_losses(losses(), look, smooth=0.3),
    "loss-log": lambda look: draw_losses(losses(), look, log=True),
    "loss-time": lambda look: draw_losses(losses("time"), look),
    "loss-stretch": lambda look: draw_losses(a_stretch(), look),
    "loss-stretch-none": lambda look: draw_losses(losses().between(10, 20), look),
    "loss-few": lambda look: draw_losses(Losses("digits-a", losses().train[:5], workers=((64.0, 1),)), look),
    "loss-one": lambda look: draw_losses(Losses("digits-a", losses().train[:1]), look),
    "loss-none": lambda look: draw_losses(Losses("digits-a", ()), look),
    "slots": lambda look: draw_slots(slots(), look),
    "slots-mine": lambda look: draw_slots(slots("job-b"), look),
    "slots-many": lambda look: draw_slots(many_slots(), look),
    "slots-none": lambda look: draw_slots(SlotsMap(()), look),
    "efficiency": lambda look: draw_efficiency(efficiency(), look),
    "efficiency-one": lambda look: draw_efficiency(Efficiency("digits-a", efficiency().speeds[:1]), look),
    "history": lambda look: draw_history(history(), look),
    "history-time": lambda look: draw_history(history("time"), look),
    "history-none": lambda look: draw_history(ValueHistory("digits-lr", "test_loss", False, ()), look),
    "parallel": lambda look: draw_parallel(parallel(), look),
    "parallel-many": lambda look: draw_parallel(many_axes(), look),
    "parallel-none": lambda look: draw_parallel(ParallelTrials("digits-lr", "test_loss", False, (), ()), look),
    "rungs": lambda look: draw_rungs(rungs(), look),
    "rungs-many": lambda look: draw_rungs(brackets(), look),
    "rungs-none": lambda look: draw_rungs(RungChart("digits-lr", "test_loss", False, ()), look),
    "shares": lambda look: draw_shares(shares(), look),
    "shares-none": lambda look: draw_shares(Shares(()), look),
    "compare": lambda look: draw_comparison(comparison(), look),
    "compare-no-numbers": lambda look: draw_comparison(no_numbers(), look),
    "spark": lambda look: draw_spark(spark(), look),
}
