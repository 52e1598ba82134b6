"""A search for hyper-parameters beside Ray Tune's ASHA, and how much of the slots' time its trials use.

Both sides search the same space with the same model, data, batch and number of epochs on the same slots, single-thread,
one after the other in an order that changes by seed: ours by halving with elastic trials, by the order of arrival, and
with one slot a trial; Ray Tune with ASHA (grace period 1, reduction factor 3) and Optuna's sampler, one processor a
trial, on a cluster that is warm.
The target is the accuracy that the worst of their bests reached, so that each side has reached it, by seed. An epoch
computes for a quarter to half a second of a core; with `--wait` it waits for its data besides, so that there can be
more slots than cores and what a trial costs to start counts for less.

The shares come from the timeline of another search, whose samples wait for their data so that an epoch takes seconds:
the slots held from its first update to the start of its last segment, and how long a slot that a trial gave back was
free until another one had it.

Ray is installed into `.bench/ray` and runs in a network of its own, which needs root. An hour for five seeds; `--quick`
is one seed of fewer trials. Writes `.bench/search_speed.json`; exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.report import ROOT, finish, table  # noqa: E402
from benchmarks.summary import Check  # noqa: E402
from edt_sdk import Client, Search, choice, log, uniform  # noqa: E402
from edt_sdk.display.readings import Timeline  # noqa: E402
from edt_sdk.testing import LocalServer  # noqa: E402

FOLDER = Path(__file__).parent / "tuned"
RAY = "ray[tune]==2.60.0"
SPACE = {"lr": log(1e-3, 1.0), "momentum": uniform(0.0, 0.95), "width": choice(8, 16, 32)}
OURS: Mapping[str, dict[str, Any]] = {"ours": {}, "free": {"order": "free"}, "one slot": {"max_workers": 1}}
SIDES = [*OURS, "ray"]
POLL = 0.1
BESIDE_RAY, BESIDE_FREE, BESIDE_ONE_SLOT = 0.8, 1.1, 0.8
SHARE, HANDED_OVER = 0.95, 0.4
SAMPLES = 1437
EPOCH = 3.0  # seconds, on one slot, of the search whose slots are counted

Reached = list[tuple[float, float]]  # seconds since the start, an accuracy of any trial then


def begin(client: Client, options: argparse.Namespace, seed: int, *, wait: float, **settings: Any) -> Search:
    """Start a search by halving. The samples of an epoch `wait` so many seconds for their data."""
    pause = wait / SAMPLES
    words = ["--epochs", str(options.epochs), "--shards", str(options.slots), "--pause", str(pause)]
    given = {"max_workers": options.slots, "trials": options.trials, "sampler": "tpe", **settings}
    return client.search(
        FOLDER, main="train.py", name=f"s{time.time_ns()}", args=words, space=SPACE, metric="test_accuracy", seed=seed,
        epochs=options.epochs, min_epochs=1, eta=3, algorithm="halving", progress=False, **given,
    )  # fmt: skip


def ours(client: Client, options: argparse.Namespace, seed: int, settings: Mapping[str, Any]) -> Reached:
    """Search, and return the reports as they came."""
    begun, found, seen = time.monotonic(), [], 0
    search = begin(client, options, seed, wait=options.wait, **settings)
    while True:
        over = search.refresh().view.state.final
        reports = search.reports()
        found += [(time.monotonic() - begun, each.metrics["test_accuracy"] or 0.0) for each in reports[seen:]]
        seen = len(reports)
        if over:
            return found
        time.sleep(POLL)


def rays(options: argparse.Namespace, seed: int) -> Reached:
    """Search with Ray Tune, and return the same."""
    place = ROOT / "ray"
    if not (place / "ray").is_dir():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", str(place), RAY], check=True)
    folder = Path(tempfile.mkdtemp(prefix="edt-ray-"))
    try:
        (folder / "code").mkdir()
        shutil.copy(FOLDER / "model.py", folder / "code")
        words = [f"--{name}={getattr(options, name)}" for name in ("slots", "trials", "epochs")]
        command = [sys.executable, str(FOLDER / "with_ray.py"), *words, f"--seed={seed}", f"--folder={folder}"]
        command.append(f"--pause={options.wait / SAMPLES}")
        inside = f"ip link set lo up; exec {' '.join(command)}"
        environ = os.environ | {"PYTHONPATH": str(place), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
        ran = subprocess.run(
            ["unshare", "--net", "bash", "-c", inside], capture_output=True, text=True, env=environ, check=True
        )
        results = json.loads(ran.stdout.splitlines()[-1])["results"]
        return [(at, accuracy) for at, accuracy, _ in results]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def until_target(found: Mapping[str, Reached]) -> dict[str, float]:
    """Return how long each side took to the accuracy that all of them reached."""
    target = min(max(accuracy for _, accuracy in reached) for reached in found.values())
    return {side: min(at for at, accuracy in reached if accuracy >= target) for side, reached in found.items()}


def shares(timeline: Timeline) -> tuple[float, list[float]]:
    """Return the share of the slots' time that was held, and how long slots that were given back were free.

    From the first instant at which all slots are held to the last at which a job that held none gets one.
    """
    rows = timeline.rows
    begins = next(at for at, row in enumerate(rows) if row["free"] == 0)
    starts = [at for at, (old, new) in enumerate(pairwise(rows), 1) if new["slots"].keys() - old["slots"].keys()]
    counted = rows[begins : starts[-1] + 1]
    held = sum((row["capacity"] - row["free"]) * (after["time"] - row["time"]) for row, after in pairwise(counted))
    free, waits = [], []
    for old, new in pairwise(counted):
        free += [new["time"]] * max(0, new["free"] - old["free"])
        # A slot that goes from one trial to another in one change was never free.
        gained = sum(max(0, new["slots"].get(job, 0) - old["slots"].get(job, 0)) for job in new["slots"])
        waits += [new["time"] - free.pop(0) if free else 0.0 for _ in range(gained)]
    whole = counted[-1]["time"] - counted[0]["time"]
    return held / (whole * counted[0]["capacity"]), waits


def slot_time(client: Client, options: argparse.Namespace) -> tuple[float, list[float]]:
    """Run the search whose slots are counted."""
    begun = time.time()
    search = begin(client, options, 0, wait=EPOCH, sampler="random", trials=27 if options.trials > 27 else 9)
    search.wait()
    return shares(client.timeline(since=begun))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--slots", type=int, default=os.cpu_count())
    parser.add_argument("--wait", type=float, default=0.0, help="seconds that an epoch waits for data, on one slot")
    options = parser.parse_args()
    options.trials, options.epochs, seeds = (9, 9, 1) if options.quick else (81, 27, options.seeds)
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    whole: dict[str, list[float]] = {side: [] for side in SIDES}
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.warm_workers": options.slots}
    with (
        tempfile.TemporaryDirectory(prefix="edt-bench-") as folder,
        LocalServer(Path(folder), slots=options.slots, traits=traits, environ={"OMP_NUM_THREADS": "1"}) as server,
    ):
        client = server.client()
        share, waits = slot_time(client, options)
        for seed in range(seeds):
            # Each seed starts with another side: the speed of a shared machine changes within minutes.
            order = [*SIDES[seed % len(SIDES) :], *SIDES[: seed % len(SIDES)]]
            found = {
                side: rays(options, seed) if side == "ray" else ours(client, options, seed, OURS[side])
                for side in order
            }
            for side, seconds in until_target(found).items():
                times[side].append(seconds)
            for side, reached in found.items():
                whole[side].append(max(at for at, _ in reached))
            said = (f"{side} {each[-1]:.1f} of {whole[side][-1]:.1f} s" for side, each in times.items())
            print(f"  seed {seed}: " + ", ".join(said), flush=True)
    print(table([*_rows("until the target", times), *_rows("until the last report", whole)]))
    print(f"  {share:.1%} of the slots' time held; a slot was free for {median(waits or [0]):.2f} s (n={len(waits)})")
    checks = [
        Check(f"time to the target beside {side}", median(times["ours"]) / median(times[side]), target, "at most")
        for side, target in (("ray", BESIDE_RAY), ("free", BESIDE_FREE), ("one slot", BESIDE_ONE_SLOT))
    ]
    checks.append(Check("share of the slots' time that trials hold", share, SHARE, "at least"))
    checks.append(Check("seconds from a trial's slot to another trial, median", median(waits), HANDED_OVER, "at most"))
    return finish("search_speed", {"times": times, "whole": whole, "share": share, "waits": waits}, checks)


def _rows(what: str, times: Mapping[str, Sequence[float]]) -> list[list[str]]:
    rows = [
        [side, *(f"{each:.1f}" for each in (median(found), min(found), max(found)))] for side, found in times.items()
    ]
    return [[what, "median s", "least", "most"], *rows]


if __name__ == "__main__":
    raise SystemExit(main())
