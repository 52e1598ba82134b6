"""Samples a second of each way to write a training, with 2 and 4 workers, against DistributedDataParallel.

The model of `linear_stack/`, 8 and 150 MB with its optimizer, as `FabricModel`, as a loop of one's own, by Hugging
Face's Trainer and as a LightningModule: jobs on a real server. Beside them the same update as a careful user writes it
for torchrun, on which DDP averages. The sides take turns, each in fresh processes; of each the median time between two
commits counts. Minutes; `--quick` is one round of the small model. Writes `.bench/loops_beside_ddp.json`; exit code 1
when a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.commit_log import CommitLog
from benchmarks.our_jobs import server
from benchmarks.plan_job import PlanJob
from benchmarks.report import ROOT, finish, table
from benchmarks.rescale import LARGE, SMALL, Size
from benchmarks.rescale_figures import NAMES, WAYS
from benchmarks.summary import Check
from benchmarks.torchrun_agents import BEST, MEMORY, TorchrunJob
from edt_sdk.testing import LocalServer

DDP = "DDP"
SIDES = ("train.py", *WAYS, DDP)
WORKERS = (2, 4)
TARGET = 1.0
UPDATES = {SMALL.megabytes: 80, LARGE.megabytes: 20}


def seconds(log: CommitLog, workers: int, count: int, trouble: Callable[[], str]) -> float:
    """The median time between two of the last `count` updates of so many workers."""

    def times() -> list[float]:
        return [commit.time for commit in log.read() if commit.world == workers]

    # The first ones prepare.
    log.wait(lambda _: len(times()) >= count + 5, f"{count} updates of {workers} workers", trouble)
    last = times()[-count:]
    return median(after - before for before, after in pairwise(last))


def measured(side: str, on: LocalServer, size: Size, workers: int, folder: Path) -> float:
    """Seconds of an update."""
    count = UPDATES[size.megabytes]
    if side == DDP:
        with TorchrunJob(folder, BEST, (*size.arguments, "--save-every", "1000000"), MEMORY) as job:
            job.resize(workers)
            return seconds(job.log, workers, count, job.trouble)
    with PlanJob(on, "loops", size.arguments, workers, standbys=0, from_nothing=False, main=side) as ours:
        return seconds(ours.log, workers, count, ours.trouble)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="in which the sides take turns (default 3)")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rounds, sizes = (1, (SMALL,)) if options.quick else (options.rounds, (SMALL, LARGE))
    folder = ROOT / "loops_beside_ddp"
    shutil.rmtree(folder, ignore_errors=True)
    found: dict[str, list[float]] = defaultdict(list)
    with server(folder / "server", warm=False) as on:
        for number in range(rounds):
            for size in sizes:
                for workers in WORKERS:
                    # Each round begins with another side.
                    for side in (*SIDES[number % len(SIDES) :], *SIDES[: number % len(SIDES)]):
                        place = folder / f"ddp-{size.megabytes}-{workers}-{number}"
                        took = measured(side, on, size, workers, place)
                        found[f"{side}, {size.megabytes} MB, {workers}"].append(took)
    lines, checks = [["way", "state", "workers", "an update", "DDP ÷ ours"]], []
    for size in sizes:
        for workers in WORKERS:
            theirs = found[f"{DDP}, {size.megabytes} MB, {workers}"]
            for side in SIDES:
                own = found[f"{side}, {size.megabytes} MB, {workers}"]
                # Of the same round: whatever slows the machine for a while slows both.
                ratio = median(ddp / ours for ddp, ours in zip(theirs, own, strict=True))
                name = NAMES.get(side, "FabricModel" if side != DDP else DDP)
                lines.append(
                    [name, f"{size.megabytes} MB", str(workers), f"{1000 * median(own):.0f} ms", f"{ratio:.2f}"]
                )
                if side == "train_own_loop.py":
                    what = f"DDP's time ÷ that of a loop of one's own, {size.megabytes} MB, {workers} workers"
                    checks.append(Check(what, ratio, TARGET, "at least"))
    print(table(lines))
    return finish("loops_beside_ddp", {"seconds": dict(found)}, checks)


if __name__ == "__main__":
    sys.exit(main())
