"""Samples per second of a loop of one's own, alone in its process, against the same loop without the engine.

Three models take turns, a few updates at a time, in one process with one thread: the plain loop, which computes a batch
at once; the plain loop over the same parts as the engine's, whose gradients autograd sums; and the loop by
`edt_sdk.elastic`, with 4 parts and with 1. Prints a table and writes `.bench/own_loop.json`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from models import TASKS
from torch.utils.data import DataLoader

import edt_sdk.elastic as edt
from benchmarks.report import finish, table
from benchmarks.summary import Check

SHARDS, TURN, TARGET = 4, 0.3, 0.98


def plain(task: Any, parts: int) -> Iterator[None]:
    """The loop as torch's users write it, over `parts` parts of each batch."""
    torch.manual_seed(0)
    model, data = task.model(), task.dataset(SHARDS * task.micro_batch * 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    while True:
        for batch in DataLoader(data, SHARDS * task.micro_batch, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            for x, y in zip(*(each.chunk(parts) for each in batch), strict=True):
                (F.cross_entropy(model(x), y) / parts).backward()
            optimizer.step()
            yield


def ours(task: Any, shards: int) -> Iterator[None]:
    """The same loop by the engine."""
    torch.manual_seed(0)
    model, data = task.model(), task.dataset(SHARDS * task.micro_batch * 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    run = edt.elastic(model=model, optimizer=optimizer)
    for _ in run.epochs(1 << 30):
        for update in run.updates(data, batch=SHARDS * task.micro_batch, shards=shards):
            for x, y in update:
                update.backward(F.cross_entropy(model(x), y))
            update.step()
            yield


SIDES: dict[str, Callable[[Any], Iterator[None]]] = {
    "plain": lambda task: plain(task, 1),
    "plain, 4 parts": lambda task: plain(task, SHARDS),
    "ours, 1 part": lambda task: ours(task, 1),
    "ours, 4 parts": lambda task: ours(task, SHARDS),
}
AGAINST = {"ours, 1 part": "plain", "ours, 4 parts": "plain, 4 parts"}


def measure(task: Any, rounds: int) -> dict[str, list[float]]:
    """Return seconds per update of each side and round. Each round begins with another side."""
    loops = {name: side(task) for name, side in SIDES.items()}
    counts = {}
    for name, loop in loops.items():
        for _ in range(5):
            next(loop)
        began = time.perf_counter()
        for _ in range(3):
            next(loop)
        counts[name] = max(1, round(TURN / ((time.perf_counter() - began) / 3)))
    times: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(rounds):
        names = [*loops][turn % len(loops) :] + [*loops][: turn % len(loops)]
        for name in names:
            began = time.perf_counter()
            for _ in range(counts[name]):
                next(loops[name])
            times[name].append((time.perf_counter() - began) / counts[name])
    return times


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, checks, report = [], [], {}
    for name, task in TASKS.items():
        times = report[name] = measure(task, options.rounds)
        samples = SHARDS * task.micro_batch
        rates = [f"{samples / median(times[side]):.0f}" for side in SIDES]
        ratios = {
            side: median(a / b for a, b in zip(times[other], times[side], strict=True))
            for side, other in AGAINST.items()
        }
        rows.append([name, *rates, *(f"{ratio:.3f}" for ratio in ratios.values())])
        checks += [
            Check(f"{name}, {side} ÷ {AGAINST[side]}", ratio, TARGET, "at least") for side, ratio in ratios.items()
        ]
    print(table([["samples/s", *SIDES, "1 ÷ plain", "4 ÷ plain, 4"], *rows]))
    return finish("own_loop", {"seconds": report}, checks)


if __name__ == "__main__":
    raise SystemExit(main())
