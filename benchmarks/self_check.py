"""What the self-check of mode `exact` costs: the time of a check, as a share of the training it belongs to.

A training of N updates has about log2(N) checks, so its cost cannot be seen against the noise of two runs. This
measures updates with and without a check in turns, in one process, and prints checks × their time ÷ (N × the time of an
update): for one worker, and for as many workers as shards, of which all wait for rank 0. Exits 1 when the share of 1000
updates is above the target for any model.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median

import torch
import torch.nn.functional as F
from models import TASKS

from edt_sdk.training.exchange.group import Group
from edt_sdk.training.sampling.order import Order, TrainStep
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.self_check import SelfCheck
from edt_sdk.training.update.update import UpdateEngine

SHARDS = 4
TARGET = 0.005
JUDGED = 1000


def seconds(name: str, rounds: int) -> tuple[float, float]:
    """Return the median seconds of an update, and of a check in addition."""
    torch.manual_seed(0)
    task = TASKS[name]
    model, dataset = task.model(), task.dataset(SHARDS * task.micro_batch * 16)
    order = Order(len(dataset), (task.micro_batch,) * SHARDS, task.micro_batch, 0, 1 << 20)
    engine = UpdateEngine(
        model, torch.optim.SGD(model.parameters(), lr=0.01), F.cross_entropy, order=order, seed=0, device="cpu"
    )
    loader = ShardLoader(dataset)
    group = Group(None, 0, 1, device=torch.device("cpu"), interface="127.0.0.1", generation=1)
    taken: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * rounds + 4):
        checked = number % 2 == 1
        SelfCheck.due = lambda self, update, checked=checked: checked  # type: ignore[method-assign]
        start = time.perf_counter()
        engine.compute(TrainStep(*divmod(number, order.updates_per_epoch), number), range(SHARDS), loader, group)
        engine.commit(group, pending=0)
        if number >= 4:
            taken[checked].append(time.perf_counter() - start)
    assert not engine.inexact, engine.inexact
    update = median(taken[False])
    return update, median(with_check - plain for with_check, plain in zip(taken[True], taken[False], strict=True))


def main() -> int:
    """Print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 20 if parser.parse_args().quick else 200
    torch.set_num_threads(1)
    due = SelfCheck.due
    checks = {
        updates: sum(due(SelfCheck(dict), update) for update in range(updates)) for updates in (100, JUDGED, 10_000)
    }
    print(
        f"{'model':<14} {'update':>9} {'check':>9}" + "".join(f" {f'{n}×{w}':>9}" for n in checks for w in (1, SHARDS))
    )
    missed = False
    for name in TASKS:
        update, check = seconds(name, rounds)
        shares = {updates: number * check / (updates * update) for updates, number in checks.items()}
        cells = "".join(f" {100 * w * share:>7.2f} %" for share in shares.values() for w in (1, SHARDS))
        print(f"{name:<14} {1000 * update:>6.1f} ms {1000 * check:>6.1f} ms{cells}", flush=True)
        missed |= SHARDS * shares[JUDGED] > TARGET
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
