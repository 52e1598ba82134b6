"""`make chaos`: many trainings, many random events, and the same bits every time.

    python -m tests.chaos --events 200 --seed 42      replays the list of events of seed 42

Each training runs once undisturbed on one slot and once on four with events on its workers, driver, supervisor and
server. Prints every event, and for each training what it went through; exit code 1 with the first difference.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from pathlib import Path

from edt_sdk.testing import LocalServer
from tests.chaos import plan, referee
from tests.chaos.scenario import Disturbed, submit
from tests.e2e.harness import Jobs

ROOT = Path(__file__).resolve().parents[2] / ".chaos"
TRAITS = {"EdtApp.threads_per_slot": 1, "EdtApp.checkpoint_interval": 2.0, "EdtApp.hang_timeout": 10.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200, help="how many in all (default 200)")
    parser.add_argument("--per-training", type=int, default=16, help="how many happen to one training (default 16)")
    parser.add_argument("--epochs", type=int, default=40, help="of each training (default 40)")
    parser.add_argument("--only", type=int, help="only this training of the list, counted from 0")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: a new one")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    done = 0
    shutil.rmtree(ROOT, ignore_errors=True)  # what a difference leaves behind stays there until the next run
    for number, training in enumerate(plan.trainings(options.seed, options.events)):
        if done >= options.events:
            break
        if options.only is not None and number != options.only:
            continue
        print(f"training {number}: {training.name}", flush=True)
        events = plan.events(options.seed, number, options.per_training)
        done += one(ROOT / str(number), training, options.epochs, events)
        if options.only is not None:
            break
    print(f"{done} events: every hash equal, every sample once an epoch")
    return 0


def one(root: Path, training: plan.Training, epochs: int, events: list[plan.Event]) -> int:
    """Run a training undisturbed and disturbed, and compare; how many events happened."""
    begun = time.monotonic()
    with LocalServer(root / "alone", slots=1, traits=TRAITS) as server:
        jobs = Jobs(server)
        job = submit(jobs, training, epochs).wait(600, progress=False)
        undisturbed = referee.read(jobs, job, epochs, training.shards)
    with LocalServer(root / "chaos", slots=4, traits=TRAITS) as server:
        jobs = Jobs(server)
        disturbed = Disturbed(jobs, lambda text: print(text, flush=True))
        job = disturbed.run(training, epochs, events)
        record = referee.read(jobs, job, epochs, training.shards)
        referee.compare(record, undisturbed)
    final = record.files["model_epoch_final.pth"]
    print(
        f"  equal: {final[:16]}, {record.updates} updates in {record.generations} generations, "
        f"{record.discarded} discarded, {disturbed.done} events, {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    return disturbed.done


if __name__ == "__main__":
    sys.exit(main())
