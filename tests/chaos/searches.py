"""`make chaos-search`: the same search has the same trials to the bit, on any number of slots and under kills.

    python -m tests.chaos.searches --kills 20 --seed 7 --only halving clock

Each part compares searches on real servers. Of a search count: number, values, state and every report of its trials,
the weights of the best one, and the log of decisions. No trial may be lost or run twice, no update repeated, and the
server must decide the same again from the reports. Exit code 1 with the first difference.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import Any

import psutil

from edt_sdk.client.search import Search
from edt_sdk.schemas.search.space import choice, log
from edt_sdk.schemas.search.views import SearchState, TrialState
from edt_sdk.testing import LocalServer
from tests.chaos import referee
from tests.chaos.processes import children, hit, of_job
from tests.chaos.scenario import SLOTS, ZOO
from tests.chaos.victims import ServerVictim
from tests.e2e.harness import Jobs
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2] / ".chaos" / "searches"
TRAITS = {"EdtApp.threads_per_slot": 1, "EdtApp.checkpoint_interval": 2.0}
SPACE = {"lr": log(1e-3, 1.0), "width": choice(4, 8, 16)}
SHARDS, SAMPLES = 4, 60  # as in jobs/trial.py
PAUSE, LONG_PAUSE = 0.003, 0.015  # seconds a sample takes; in the latter time much can happen to a search
PATIENCE = 1800.0
RESIZE, SERVER, SUGGESTER, WORKER = "resize", "server", "suggester", "worker"
Events = Sequence[tuple[float, str]]  # the share of all updates after which it happens, and what


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done."""

    trials: int = 27  # of the halving under everything, with 1, 3, … up to `epochs` epochs
    epochs: int = 9
    clock: int = 24  # trials of a search by the virtual clock
    lanes: int = 16
    many: int = 81  # trials of a search whose server or suggester is killed
    kills: int = 20
    resizes: int = 10


WHOLE = Size()
QUICK = Size(trials=9, epochs=3, clock=12, lanes=4, many=18, kills=6, resizes=3)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What equal searches have in common."""

    table: str  # a hash of the number, values, state and reports of all trials
    best: int
    weights: str  # a hash of those of the best trial
    decisions: tuple[tuple[str, int | None, int | None, str], ...]  # the log without its texts
    updates: int  # of all trials together


def begin(jobs: Jobs, *, pause: float, delayed: int | None = None, **settings: Any) -> Search:
    """Start a search. The samples of the trial `delayed` take ten times as long, which no decision may see."""
    given = {"epochs": 9, "min_epochs": 1, "algorithm": "halving", "max_workers": SLOTS, "seed": 5, **settings}
    env = {"PAUSE": str(pause), "DELAYED": str(delayed)}
    args = ["{lr}", "{width}", str(given["epochs"])]
    return jobs.client.search(
        ZOO, main="trial.py", name="chaos", args=args, space=SPACE, metric="test_loss", env=env, progress=False, **given
    )


def disturb(jobs: Jobs, search: Search, events: Events, updates: int, dice: random.Random) -> None:
    """Let everything happen to a search that will have so many updates."""
    gone: dict[str, int] = {}  # what was killed, and how many updates its job had then

    def happens(share: float, what: str) -> bool:
        now = jobs.client.search_named(search.id)
        living = now.view.state in (SearchState.CREATED, SearchState.RUNNING)
        assert living, f"the search is {now.view.state} before everything has happened"
        if written(jobs) < share * updates:
            return False
        if what == SERVER:
            ServerVictim().hit(jobs.server, dice)
            jobs.client = jobs.server.client()
        elif what == RESIZE:
            now.update(max_workers=dice.randint(1, SLOTS), priority=dice.randint(1, 10_000))
        else:
            return kill_one(jobs, what, gone, dice)
        return True

    for share, what in events:
        time.sleep(dice.uniform(0, 0.5))  # a random instant of what runs now
        until(lambda event=(share, what): happens(*event), f"{what} after {share:.0%} of the updates", PATIENCE)


def kill_one(jobs: Jobs, what: str, gone: dict[str, int], dice: random.Random) -> bool:
    """Kill a process of this kind, and add it to `gone`. Return False when there is none that may be killed.

    A driver that dies twice without an update in between is a script that kills itself. So each job needs an update
    until it loses its driver, or its supervisor with it, once more.
    """
    found: list[tuple[str, psutil.Process]] = []
    if what == SUGGESTER:
        found = [(str(each.pid), each) for each in children(psutil.Process(jobs.server.pid), SUGGESTER)]
    else:
        for folder in (jobs.server.data_dir / "jobs").iterdir():
            running: Sequence[psutil.Process] = getattr(of_job(folder), f"{what}s")
            found += [(str(each.pid) if what == WORKER else folder.name, each) for each in running]
    found = [(key, each) for key, each in found if key not in gone or written(jobs, key) > gone[key]]
    if not found:
        return False
    key, process = dice.choice(found)
    killed = hit(process, signal.SIGKILL)
    gone[key] = written(jobs, key)
    return killed


def written(jobs: Jobs, job: str = "*") -> int:
    """Return how many updates a job, or all jobs of the server, have committed."""
    logs = (jobs.server.data_dir / "jobs").glob(f"{job}/training-0.commits.jsonl")
    return sum(path.read_bytes().count(b"\n") for path in logs)


def read(jobs: Jobs, search: Search) -> Outcome:
    """Return what a search came to when it has ended.

    Raises:
        AssertionError: a trial was lost or run twice, an update repeated, or the search cannot be replayed.
    """
    search.wait(PATIENCE)
    trials = [each.view for each in search.trials]
    assert [each.number for each in trials] == list(range(search.view.spec.trials)), "trials are lost"
    assert {each.state for each in trials} <= {TrialState.FINISHED, TrialState.PRUNED}, search.view.counts
    ran = jobs.client.jobs(search=search, limit=10_000)
    assert sorted(each.id for each in ran) == sorted(each.job for each in trials), "trials have run twice"
    assert (difference := search.replay()) == "", difference
    by_id, updates = {each.id: each for each in ran}, 0
    for each in trials:
        commits = jobs.commits(by_id[each.job])
        referee.once_each(commits, each.epochs, SHARDS, SAMPLES)
        updates += len(commits)
    reports: dict[int, list[Any]] = {}
    for report in search.reports():
        values = sorted((name, value if value is None else value.hex()) for name, value in report.metrics.items())
        reports.setdefault(report.trial, []).append((report.budget, values))
    rows = [(v.number, sorted(v.params.items()), v.state.value, sorted(reports[v.number])) for v in trials]
    best = search.view.best
    assert best is not None, "the search has no best trial"
    decisions = tuple((each.kind, each.trial, each.rung, each.inputs) for each in search.decisions())
    weights = jobs.final_hash(by_id[best.job].wait(PATIENCE, progress=False))
    table = hashlib.sha256(repr(rows).encode()).hexdigest()
    lost = sum(referee.discarded(jobs, each) for each in ran)
    print(
        f"    table {table[:16]}, best {weights[:16]}, {len(trials)} trials, {len(ran)} jobs, {updates} updates, "
        f"0 repeated, {lost} lost with all processes"
    )
    return Outcome(table, best.number, weights, decisions, updates)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs searches, each on a server of its own in `root`, and prints what they came to."""

    root: Path
    size: Size
    dice: random.Random

    def run(
        self, what: str, *, slots: int = SLOTS, events: Events = (), like: Outcome | None = None, **settings: Any
    ) -> Outcome:
        """Run a search, and return what it came to, which is to be equal to `like`."""
        happens = Counter(name for _, name in events)
        told = ", ".join(f"{count} {name}" for name, count in sorted(happens.items())) or "undisturbed"
        print(f"  {what}, slots {slots}, {told}", flush=True)
        begun = time.monotonic()
        shutil.rmtree(self.root, ignore_errors=True)  # what a difference leaves behind stays there until the next run
        with LocalServer(self.root, slots=slots, traits=TRAITS) as server:
            jobs = Jobs(server)
            search = begin(jobs, pause=LONG_PAUSE if events else PAUSE, **settings)
            if events:
                assert like is not None, "how many updates there will be is known from an equal search"
                disturb(jobs, search, events, like.updates, self.dice)
            outcome = read(jobs, jobs.client.search_named(search.id))
        print(f"    {time.monotonic() - begun:.0f} s", flush=True)
        if like is not None:
            assert outcome.table == like.table, "number, values, state or reports of the trials differ"
            assert outcome.weights == like.weights, "the weights of the best trial differ"
            first = next((pair for pair in zip_longest(like.decisions, outcome.decisions) if pair[0] != pair[1]), None)
            assert first is None, f"the decisions differ: {first}"
            assert outcome.updates == like.updates, "some updates are more or fewer"
        return outcome


def spread(events: Sequence[str], at_once: int = 1, share: float = 0.8) -> Events:
    """Return these events spread evenly over this share of a search, so many at once."""
    steps = -(-len(events) // at_once)
    return [(share * (1 + number // at_once) / steps, what) for number, what in enumerate(events)]


def halving(runner: Runner, others: Sequence[int] = (2, 4)) -> None:
    """Compare a halving on 1 slot and on others, and on 4 with everything killed and resized."""
    size = runner.size
    given = {"trials": size.trials, "epochs": size.epochs}
    whole = runner.run("halving", slots=1, **given)
    for slots in others:
        runner.run("halving", slots=slots, like=whole, **given)
    # All values are the answer to one question, so only the first moments have something to kill there.
    events = [*islice(cycle((SERVER, WORKER, "driver", "supervisor")), size.kills - 1), *[RESIZE] * size.resizes]
    runner.dice.shuffle(events)
    runner.run("halving", events=[(0.0, SUGGESTER), *spread(events)], like=whole, **given)


def clock(runner: Runner) -> None:
    """Compare searches by the virtual clock, of which one trial takes ten times as long."""
    tables = []
    for algorithm in ("asha", "tpe"):
        # With few trials drawn at random, what the others are depends on what has ended before.
        more = {"epochs": 9, "sampler": "tpe"} if algorithm == "asha" else {"epochs": 2, "min_epochs": 0}
        size, options = runner.size, {"startup": 4}
        given = {"algorithm": algorithm, "trials": size.clock, "lanes": size.lanes, "options": options, **more}
        whole = runner.run(algorithm, **given)
        runner.run(algorithm, slots=1, like=whole, **given)
        runner.run(f"{algorithm}, its best delayed", like=whole, delayed=whole.best, **given)
        if algorithm == "asha":
            free = {**given, "deterministic": False}
            tables = [runner.run("asha, order free", **free).table]
            tables.append(runner.run("asha, order free, its best delayed", delayed=whole.best, **free).table)
    assert tables[0] != tables[1], "the order of arrival makes no difference, so the above proves nothing"


def server(runner: Runner) -> None:
    """Compare a halving with one whose server is killed."""
    given = {"trials": runner.size.many, "epochs": 9}
    whole = runner.run("halving", **given)
    runner.run("halving", events=spread([SERVER] * runner.size.kills), like=whole, **given)


def suggester(runner: Runner) -> None:
    """Compare a search by tpe with one whose suggester is killed, every other time within the same question."""
    given = {"algorithm": "tpe", "trials": runner.size.many, "epochs": 2, "min_epochs": 0, "lanes": SLOTS}
    whole = runner.run("tpe", **given)
    # When the last trials train there is no question any more.
    events = spread([SUGGESTER] * runner.size.kills, at_once=2, share=0.6)
    runner.run("tpe", events=events, like=whole, **given)


PARTS: dict[str, Callable[[Runner], None]] = {each.__name__: each for each in (halving, clock, server, suggester)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, help=f"how many in a search (default {WHOLE.kills}, quick {QUICK.kills})")
    parser.add_argument("--quick", action="store_true", help="fewer trials and kills")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="only these parts")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: a new one")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    size = QUICK if options.quick else WHOLE
    size = replace(size, kills=options.kills or size.kills)
    begun = time.monotonic()
    for name in options.only:
        print(name, flush=True)
        PARTS[name](Runner(ROOT / name, size, random.Random(options.seed)))
    print(f"equal, no trial lost, none run twice, no update repeated: {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
