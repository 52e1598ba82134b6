"""What an event costs the core of a search with 10,000 trials: every report and every answer, by algorithm.

Nothing but the core runs: values and losses are invented, and sixteen trials at a time report in random order. The
mean counts, because one report of a comparison decides about all of its trials. Takes about a minute.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.report import finish, table  # noqa: E402
from benchmarks.summary import Check  # noqa: E402
from edt_sdk.schemas.job import JobSpec  # noqa: E402
from edt_sdk.schemas.search.space import choice, log  # noqa: E402
from edt_sdk.schemas.search.spec import SearchSpec  # noqa: E402
from edt_server.searching.core import SearchCore  # noqa: E402
from edt_server.searching.events import Answered, Reported, SearchEvent, SearchStarted  # noqa: E402

TRIALS, TARGET, AT_ONCE = 10_000, 0.001, 16
SPACE = {"lr": log(1e-4, 1e-1), "width": choice(32, 64, 128)}
RUNGS = {"epochs": 27, "min_epochs": 1}
SEARCHES = {
    "random": {"epochs": 1},
    "tpe": {"epochs": 1},
    "halving": RUNGS,
    "hyperband": RUNGS,
    "asha": RUNGS,
    "median": RUNGS | {"min_epochs": 9},
}


def fraction(*facts: object) -> float:
    """A number from 0 to 1 that looks random and is not."""
    return int.from_bytes(hashlib.sha256(repr(facts).encode()).digest()[:8], "big") / 2**64


def times_of(algorithm: str, settings: dict[str, int]) -> list[float]:
    """Seconds of each event of a search, sorted."""
    job = JobSpec(name="search", main="train.py", max_workers=1)
    spec = SearchSpec(job=job, space=SPACE, metric="loss", trials=TRIALS, algorithm=algorithm, **settings)
    core, times, rng = SearchCore(spec.check()), [], random.Random(0)

    def apply(event: SearchEvent) -> None:
        start = time.perf_counter()
        core.apply(event)
        times.append(time.perf_counter() - start)

    apply(SearchStarted())
    while not core.state.final:
        running = core.runnable(AT_ONCE)
        if running:
            trial = rng.choice(running)
            apply(Reported(trial.number, trial.budget, {"loss": fraction(trial.number, trial.budget)}))
        if len(running) < AT_ONCE:
            for ask in core.asks():
                points = ({name: each.between(fraction(name, n)) for name, each in SPACE.items()} for n in ask.numbers)
                apply(Answered(ask.numbers[0], tuple(points)))
    return sorted(times)


def main() -> int:
    """Run the benchmark."""
    rows, results, checks = [["algorithm", "events", "mean ms", "median ms", "p99 ms", "worst ms"]], {}, []
    for algorithm, settings in SEARCHES.items():
        times = times_of(algorithm, settings)
        mean, middle, high = sum(times) / len(times), times[len(times) // 2], times[len(times) * 99 // 100]
        rows.append([algorithm, str(len(times)), *(f"{1e3 * each:.3f}" for each in (mean, middle, high, times[-1]))])
        results[algorithm] = {"events": len(times), "mean": mean, "median": middle, "p99": high, "worst": times[-1]}
        checks.append(Check(f"{algorithm}: mean seconds of an event at {TRIALS:,} trials", mean, TARGET, "at most"))
    print(table(rows))
    return finish("search_core", results, checks)


if __name__ == "__main__":
    raise SystemExit(main())
