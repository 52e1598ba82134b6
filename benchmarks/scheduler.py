"""How long the rule takes: all targets from nothing, and one event, with plans of three levels.

Ten departments of ten teams each over the slots; teams own some and share the rest. A full re-plan is what one slot
more or less costs. Events are a random mix of jobs that arrive, leave, and change priority or maximum; the time is that
of `put` or `remove` and `settle`, one event at a time. Where there are more jobs than slots most of them wait for a
turn. They are played in several rounds, of which the least disturbed counts: others may work on the machine. Before
anything is printed the targets that were kept up to date are compared with those worked out from nothing.

Then the reasons of all jobs of a core in which most of them wait, as a list of jobs asks for them.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.report import finish, table  # noqa: E402
from benchmarks.summary import Check  # noqa: E402
from edt_sdk.schemas.plan import InstanceGroup, Plan  # noqa: E402
from edt_sdk.schemas.wire.control import Slot  # noqa: E402
from edt_server.core.core import Core  # noqa: E402
from edt_server.core.events import JobArrived, JobDemand, SlotsChanged  # noqa: E402
from edt_server.core.rule import Claim, Rule  # noqa: E402

SIZES = ((100, 64), (1_000, 64), (10_000, 64), (1_000, 10_000), (10_000, 20_000), (10_000, 100_000))
WEIGHTS = (1000, 2000, 5000, 5000, 5000, 10000)
ROUNDS = 5
MOST = (4, 8, 16, 64, 1_000, 1_000)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one size; seconds and bytes. `first`: from claims never seen before, arrays and all."""

    jobs: int
    slots: int
    first: float
    replan: float
    p50: float
    p99: float
    events_per_second: float
    resized: float
    memory: int


def plan(slots: int) -> tuple[list[InstanceGroup], list[str]]:
    """Three levels: ten departments, ten teams each; half of the teams own a share of half of the slots."""
    rng = random.Random(1)
    groups = [InstanceGroup(name=f"d{n}", share=rng.randint(1, 4)) for n in range(10)]
    own = slots // 200
    teams = [
        InstanceGroup(name=f"d{n}t{m}", parent=f"d{n}", share=rng.randint(1, 4), own=own * (m % 2))
        for n in range(10)
        for m in range(10)
    ]
    Plan(instance_groups=(*groups, *teams)).check()
    return [*groups, *teams], [team.name for team in teams]


def arrival(rng: random.Random, number: int, teams: list[str]) -> Claim:
    return Claim(
        job=f"j{number}",
        group=rng.choice(teams),
        user="u",
        weight=rng.choice(WEIGHTS),
        order=number,
        turn=number,
        floor=1,
        cap=rng.choice(MOST),
    )


def measure(jobs: int, slots: int, events: int) -> Figures:
    rng = random.Random(7)
    groups, teams = plan(slots)
    claims = {f"j{n}": arrival(rng, n, teams) for n in range(jobs)}
    gc.collect()
    tracemalloc.start()
    rule = Rule(groups, slots)
    for claim in claims.values():
        rule.put(claim)
    rule.settle()
    play(rule, dict(claims), teams, min(events, 500))
    gc.collect()
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    rule = Rule(groups, slots)
    began = time.thread_time()
    for claim in claims.values():
        rule.put(claim)
    rule.settle()
    first = time.thread_time() - began
    replans = []
    for n in range(21):
        rule.set_slots(slots + n % 2 - 1)
        began = time.thread_time()
        rule.settle()
        replans.append(time.thread_time() - began)
    rule.set_slots(slots)
    rule.settle()
    play(rule, claims, teams, max(200, events // 10))  # until every team has been looked at once
    rounds = [play(rule, claims, teams, events) for _ in range(ROUNDS)]
    check(rule, groups, slots, claims)
    times, resized = min(rounds, key=lambda each: sum(each[0]))
    times.sort()
    return Figures(
        jobs=jobs,
        slots=slots,
        first=first,
        replan=median(replans[1:]),
        p50=times[len(times) // 2],
        p99=times[len(times) * 99 // 100],
        events_per_second=len(times) / sum(times),
        resized=resized / len(times),
        memory=memory,
    )


def play(rule: Rule, claims: dict[str, Claim], teams: list[str], events: int) -> tuple[list[float], int]:
    """Seconds of each of so many random events, and how many targets they changed in all."""
    rng = random.Random(len(claims))
    names = list(claims)
    number = 1 + max(claim.order for claim in claims.values())
    times, resized = [], 0
    for n in range(events):
        at = rng.randrange(len(names))
        name, old = names[at], claims[names[at]]
        kind = n % 4  # as many arrive as leave, so that there are always about as many jobs
        if kind == 0:
            new: Claim | None = arrival(rng, number, teams)
            number += 1
        elif kind == 1:
            new = None
        elif kind == 2:
            new = replace(old, weight=rng.choice(WEIGHTS))
        else:
            new = replace(old, cap=rng.choice(MOST))
        began = time.thread_time()
        if new is None:
            rule.remove(name)
        else:
            rule.put(new)
        changed = rule.settle()
        times.append(time.thread_time() - began)
        resized += len(changed)
        if new is None:
            names[at] = names[-1]
            names.pop()
            del claims[name]
        else:
            claims[new.job] = new
            if kind == 0:
                names.append(new.job)
    return times, resized


def check(rule: Rule, groups: list[InstanceGroup], slots: int, claims: dict[str, Claim]) -> None:
    """Stop the benchmark when the targets are not those of a rule that has never seen anything else."""
    anew = Rule(groups, slots)
    for claim in claims.values():
        anew.put(claim)
    anew.settle()
    wrong = [name for name in claims if rule.target(name) != anew.target(name)]
    if wrong:
        raise SystemExit(f"{len(wrong)} targets are not what a re-plan gives, {wrong[0]} among them")


def reasons(jobs: int) -> float:
    """Seconds to say of every one of so many jobs on 64 slots why it has less than it asks for."""
    core = Core()
    core.apply(SlotsChanged(tuple(Slot(id=number, host="h") for number in range(64))), 0.0)
    for number in range(jobs):
        core.apply(JobArrived(f"j{number}", 5000, 8, "default"), float(number))
    best = float("inf")
    for number in range(ROUNDS):
        core.apply(JobDemand("j0", 2 + number % 2), float(jobs + number))  # what was known before does not help
        began = time.thread_time()
        found = [core.reason(job) for job in core.jobs]
        best = min(best, time.thread_time() - began)
        if sum(each is not None for each in found) < jobs - 64:
            raise SystemExit("a job waits and nobody knows why")
    return best


def checks(all_figures: list[Figures]) -> list[Check]:
    found = []
    for each in all_figures:
        size = f"{each.jobs} jobs on {each.slots} slots"
        if each.jobs < 10_000:
            continue
        found += [
            Check(f"{size}: full re-plan, ms", each.replan * 1e3, 20 if each.slots == 100_000 else 10, "at most"),
            Check(f"{size}: event p99, µs", each.p99 * 1e6, 200, "at most"),
            Check(f"{size}: events a second", each.events_per_second, 30_000, "at least"),
            Check(f"{size}: memory, MB", each.memory / 1e6, 100, "at most"),
        ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 000 events a size in place of 20 000")
    events = 2_000 if parser.parse_args().quick else 20_000
    figures = [measure(jobs, slots, events) for jobs, slots in SIZES]
    rows = [["jobs", "slots", "first plan", "re-plan", "event p50", "p99", "events/s", "resized/event", "memory"]]
    for each in figures:
        rows.append(
            [
                str(each.jobs),
                str(each.slots),
                f"{each.first * 1e3:.1f} ms",
                f"{each.replan * 1e3:.2f} ms",
                f"{each.p50 * 1e6:.0f} µs",
                f"{each.p99 * 1e6:.0f} µs",
                f"{each.events_per_second:.0f}",
                f"{each.resized:.1f}",
                f"{each.memory / 1e6:.1f} MB",
            ]
        )
    print(table(rows))
    listed = {jobs: reasons(jobs) for jobs in (1_000, 10_000)}
    for jobs, seconds in listed.items():
        print(f"\n  the reasons of {jobs} jobs on 64 slots: {seconds * 1e3:.0f} ms, {seconds / jobs * 1e6:.0f} µs each")
    sizes = [
        {name: getattr(each, name) for name in each.__slots__}  # times in seconds, memory in bytes
        for each in figures
    ]
    return finish("scheduler", {"sizes": sizes, "events": events, "reasons": listed}, checks(figures))


if __name__ == "__main__":
    raise SystemExit(main())
