"""How much faster are four workers than one? The same compute-bound job at both, through a real server.

Four CPU slots with one thread each. Each job trains a fixed number of updates with the full number of workers after it
has reached it; samples per second come from the job's own metrics, without the first updates. Both runs do the same
computation bit by bit, so nothing but time differs. Prints a table and writes `.bench/scaling.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

from edt_sdk import Client
from edt_sdk.testing import LocalServer

REPOSITORY = Path(__file__).resolve().parents[1]
ROOT = REPOSITORY / ".bench"
WARM_UP = 3
TARGET = 2.5


def samples_per_second(points, workers):
    """The steady rate of `points` (a job's training curve) while `workers` worked; (samples/s, updates counted).

    From the median time between two successive updates, both committed by that many workers: an update that another
    process of the machine disturbed does not count more than any other.
    """
    steady = [point for point in points if point["world"] == workers][WARM_UP:]
    gaps = [b["time"] - a["time"] for a, b in pairwise(steady) if b["update"] == a["update"] + 1]
    if not gaps:
        raise SystemExit(f"no two updates in a row with {workers} workers: give more --updates")
    return steady[0]["samples"] / median(gaps), len(gaps)


def measure(client: Client, workers: int, updates: int) -> dict[str, object]:
    """Run one job to its end and read its rate."""
    job = client.submit(
        Path(__file__).parent / "convnet",
        main="train.py",
        name=f"convnet-{workers}",
        max_workers=workers,
        args=["--updates", str(updates)],
        progress=False,
    ).wait(progress=False)
    rate, counted = samples_per_second(job.metrics(points=updates).train, workers)
    print(f"  {workers} worker{'s' if workers > 1 else ' '}  {rate:8.1f} samples/s  ({counted} updates)", flush=True)
    return {"workers": workers, "samples_per_second": round(rate, 1), "updates": counted}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=80, help="updates of each job (default 80)")
    options = parser.parse_args()
    shutil.rmtree(ROOT / "server", ignore_errors=True)
    print("The same compute-bound training on one slot and on four:", flush=True)
    traits, hidden = {"EdtApp.threads_per_slot": 1}, {"CUDA_VISIBLE_DEVICES": ""}
    with LocalServer(ROOT / "server", slots=4, traits=traits, environ=hidden) as server:
        client = server.client()
        runs = [measure(client, workers, options.updates) for workers in (1, 4)]
    ratio = runs[1]["samples_per_second"] / runs[0]["samples_per_second"]
    result = {"runs": runs, "ratio": round(ratio, 2), "cores": os.cpu_count(), "machine": platform.machine()}
    (ROOT / "scaling.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"  ratio {ratio:.2f} on {os.cpu_count()} cores (target on four: {TARGET})")
    return 0 if ratio >= TARGET or (os.cpu_count() or 1) < 4 else 1


if __name__ == "__main__":
    sys.exit(main())
