"""Show what hosts that come and go cost for jobs in bursts, beside the least that they could cost. Takes a minute.

200 jobs arrive in bursts, on hosts of 8 slots that take 60 s to start and are given back after 300 s without work.
"""

from __future__ import annotations

import math
import random
from statistics import mean

from edt_sdk.schemas.plan import Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.fleet.scaling import ScalingSettings
from edt_server.simulator.engine import Engine
from edt_server.simulator.machines import HostFigures, Machines, host_figures
from edt_server.simulator.policies import fit, make_core
from edt_server.simulator.speed import Speed
from edt_server.simulator.workload import SimulatedJob

SLOTS, HOSTS, SEEDS = 8, 16, (1, 2, 3)
CASES = (  # jobs a burst, seconds between two bursts, mean seconds of a job
    (20, 7200.0, 3600.0),
    (50, 7200.0, 1200.0),
    (20, 7200.0, 1200.0),
    (20, 1800.0, 1200.0),
    (20, 7200.0, 600.0),
)


def bursts(seed: int, a_burst: int, gap: float, seconds: float, jobs: int = 200) -> list[SimulatedJob]:
    """Return the jobs: each burst comes within two minutes, most jobs are short and some are long."""
    rng = random.Random(seed)
    found = []
    for number in range(jobs):
        replicas = rng.choice((1, 2, 4, 4, 8))
        speed = Speed.by_law(2 * replicas)
        time = number // a_burst * gap + rng.uniform(0, 120)
        work = rng.lognormvariate(math.log(seconds) - 0.5, 1.0) * speed.at(replicas)
        found.append(SimulatedJob(f"j{number}", time, "app", replicas, 2 * replicas, work, speed))
    return sorted(found, key=lambda job: job.time)


def play(jobs: list[SimulatedJob], *, pack: bool, idle_after: float = 300.0) -> HostFigures:
    """Return what the hosts cost for these jobs."""
    settings = ScalingSettings("simulated", HOSTS, slots=SLOTS, idle_after=idle_after, pack=pack)
    core = make_core("fairshare", Plan(), ())
    machines = Machines(core, "default", settings, 60.0)
    played = fit(jobs, "fairshare", Plan(), 0)
    run = Engine(core, HOSTS * SLOTS, played, hosts=machines).run()
    always = make_core("fairshare", Plan(), [Slot(id=number, host="always") for number in range(HOSTS * SLOTS)])
    return host_figures(run, machines, Engine(always, HOSTS * SLOTS, played).run(), 0, SLOTS)


def main() -> None:
    """Print the table."""
    print("jobs a burst  every s  mean s  starts  optimum h  idle only  packed  packed, idle after 120 s")
    for a_burst, gap, seconds in CASES:
        works = [bursts(seed, a_burst, gap, seconds) for seed in SEEDS]
        idle, packed = ([play(jobs, pack=pack) for jobs in works] for pack in (False, True))
        soon = [play(jobs, pack=True, idle_after=120.0) for jobs in works]
        starts, optimum = mean(each.started for each in packed), mean(each.optimum for each in packed)
        ratios = [mean(each.ratio for each in found) for found in (idle, packed, soon)]
        row = (f"{starts:.0f}".rjust(6), f"{optimum:.1f}".rjust(9), f"{ratios[0]:.2f}".rjust(9))
        told = f"{a_burst:>12}  {gap:>7.0f}  {seconds:>6.0f}  {'  '.join(row)}"
        print(f"{told}  {ratios[1]:>6.2f}  {ratios[2]:>24.2f}")


if __name__ == "__main__":
    main()
