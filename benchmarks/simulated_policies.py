"""Two questions about the simulator's figures, answered by playing workloads: the tables of docs/simulate.md.

Why most jobs have ρ > 1 under `fairshare`: the same workload without pauses, against a cluster that has whole slots
too, and with the odd slot going to the latest job in place of the earliest. And when `throughput` beats `fairshare`:
with the shipped applications, with all of them scaling alike, and with the long ones scaling worst, five seeds each.
Simulated time: nothing here depends on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean, median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.report import table  # noqa: E402
from benchmarks.workloads import make_workload  # noqa: E402
from benchmarks.workloads.make_workload import KINDS, MOST_WORKERS, Kind  # noqa: E402
from edt_sdk.schemas.plan import Plan  # noqa: E402
from edt_sdk.schemas.wire.control import Slot  # noqa: E402
from edt_server.simulator.engine import (  # noqa: E402
    SimulatedRun,
    SimulationSettings,
    simulate,
)
from edt_server.simulator.figures import completion, finish_time_fairness  # noqa: E402
from edt_server.simulator.policies import fit, make  # noqa: E402
from edt_server.simulator.speed import Speed  # noqa: E402
from edt_server.simulator.workload import SimulatedJob  # noqa: E402

SLOTS = 64
SEEDS = range(1, 6)


def workload(kinds: Sequence[Kind], seed: int) -> list[SimulatedJob]:
    """160 jobs of these applications in eight hours, as make_workload.py writes them."""
    speeds = {
        kind.name: Speed.of((n, make_workload.speed(kind, n)) for n in (1, 2, 4, 8, 16, MOST_WORKERS)) for kind in kinds
    }
    shipped, make_workload.KINDS = make_workload.KINDS, tuple(kinds)
    lines = make_workload.jobs(160, 8, Random(seed))
    make_workload.KINDS = shipped
    return [
        SimulatedJob(
            name=str(line["name"]),
            time=float(str(line["time"])),
            application=str(line["application"]),
            replicas=int(str(line["num_replicas"])),
            max_workers=MOST_WORKERS,
            work=float(str(line["duration"])) * speeds[str(line["application"])].at(int(str(line["num_replicas"]))),
            speed=speeds[str(line["application"])],
        )
        for line in lines
    ]


def play(jobs: Sequence[SimulatedJob], policy: str, resize_cost: float = 1.0) -> SimulatedRun:
    """The jobs on 64 slots."""
    slots = [Slot(id=number, host="h") for number in range(SLOTS)]
    settings = SimulationSettings(resize_cost=resize_cost, tell_speeds=policy == "throughput")
    return simulate(make(policy, Plan(), slots), SLOTS, fit(jobs, policy, Plan(), SLOTS), settings)


def latest_first(jobs: Sequence[SimulatedJob]) -> list[SimulatedJob]:
    """The same jobs with priorities that differ so little that only ties are settled otherwise."""
    return [
        replace(job, priority=10**9 - 1000 + number)
        for number, job in enumerate(sorted(jobs, key=lambda job: job.time))
    ]


def in_whole_slots(rhos: dict[str, float], run: SimulatedRun) -> dict[str, float]:
    """ρ against a cluster of its own that has whole slots only: n-th parts rounded down, but one at least."""
    found = {}
    for life in run.lives:
        alone = completion(life) / rhos[life.job.name]
        share = _slots_for(life.job, alone)
        whole = share if share < 1 else float(int(share + 1e-9))
        found[life.job.name] = completion(life) / (life.job.work / life.job.speed.at(whole))
    return found


def _slots_for(job: SimulatedJob, seconds: float) -> float:
    """The slots with which the job takes that long; its speed grows with them up to its maximum."""
    low, high = 0.0, float(job.max_workers)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if job.work / max(1e-12, job.speed.at(middle)) > seconds else (low, middle)
    return high


def fairness() -> list[list[str]]:
    """One line for each way to look at the shipped workload under fairshare."""
    jobs = workload(KINDS, 1)
    rows = [["", "median ρ", "worst ρ", "ρ > 1", "ρ > 1.05", "ρ > 1.1", "mean JCT"]]
    ways: list[tuple[str, list[SimulatedJob], float, Callable[[dict[str, float], SimulatedRun], dict[str, float]]]] = [
        ("as it is", jobs, 1.0, lambda rhos, run: rhos),
        ("changing size is free", jobs, 0.0, lambda rhos, run: rhos),
        ("… and the other cluster has whole slots", jobs, 0.0, in_whole_slots),
        ("… and odd slots go to the latest job", latest_first(jobs), 0.0, lambda rhos, run: rhos),
        ("… both", latest_first(jobs), 0.0, in_whole_slots),
    ]
    for name, played, cost, look in ways:
        run = play(played, "fairshare", cost)
        rhos = look(finish_time_fairness(run), run)
        values = list(rhos.values())
        above = [f"{sum(rho > limit + 1e-9 for rho in values) / len(values):.0%}" for limit in (1.0, 1.05, 1.1)]
        times = mean(completion(life) for life in run.lives)
        rows.append([name, f"{median(values):.3f}", f"{max(values):.2f}", *above, f"{times:.0f}"])
    return rows


def worst_for_the_long(kinds: Sequence[Kind]) -> list[Kind]:
    """The applications with their scaling exchanged: the more work, the worse."""
    parts = sorted(kind.serial for kind in kinds)
    order = sorted(range(len(kinds)), key=lambda at: kinds[at].hours)
    serial = {at: part for at, part in zip(order, parts, strict=True)}
    return [replace(kind, serial=serial[at]) for at, kind in enumerate(kinds)]


def speed_or_share() -> list[list[str]]:
    """Mean completion times of both policies, of five workloads for each mixture of applications."""
    mixtures: dict[str, Sequence[Kind]] = {
        "as shipped: long jobs scale best": KINDS,
        "all scale alike": [replace(kind, serial=0.04) for kind in KINDS],
        "long jobs scale worst": worst_for_the_long(KINDS),
    }
    rows = [["applications", "fairshare", "throughput", "mean", "best", "worst"]]
    for name, kinds in mixtures.items():
        pairs = []
        for seed in SEEDS:
            jobs = workload(kinds, seed)
            fair, fast = (
                mean(completion(life) for life in play(jobs, policy).lives) for policy in ("fairshare", "throughput")
            )
            pairs.append((fair, fast))
        ratios = [fast / fair - 1 for fair, fast in pairs]
        rows.append(
            [
                name,
                f"{mean(fair for fair, _ in pairs):.0f}",
                f"{mean(fast for _, fast in pairs):.0f}",
                f"{mean(ratios):+.1%}",
                f"{min(ratios):+.1%}",
                f"{max(ratios):+.1%}",
            ]
        )
    return rows


def main() -> int:
    """Print both tables."""
    print(table(fairness()))
    print()
    print(table(speed_or_share()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
