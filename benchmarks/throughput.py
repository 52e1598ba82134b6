"""Samples per second of the engine, modes `exact` and `fast`, against torch's DistributedDataParallel.

All of them live in the same N processes and take turns, a few updates at a time, so that whatever else the machine
does meets all alike. V = 4 shards an update; DDP takes the same micro-batches, V / N of them under `no_sync()`, from
torch's own DataLoader; one thread each, deterministic algorithms, gloo; glibc keeps freed memory on all sides, as it
does in our workers (a tenth of the time of the convnet, on either side). `large` is DDP with all V / N micro-batches at
once: for information, it is not the same computation. Our sides do more of what a script does than DDP's, whose loss
nobody reads: they read every loss, count the right answers and tell each other the samples.

The rounds are spread over several sets of fresh processes, in each of which another side is made first. Where the
memory of a model comes to lie decides about 1 to 3 % of its time for as long as it lives: two DDPs beside each other in
one process differ by that. So a ratio is the median over the sets of each set's median, and its interval is that in
which the median over many sets would lie, with about 95 % confidence. Prints a table and writes
`.bench/throughput.json`.

With `--machines 2` the processes are on so many machines, network namespaces with a cable between them whose rate
`--rate 1gbit` limits, and `exact` adds up on each machine before anything travels. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from models import TASKS
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.sampling.order import Order, TrainStep
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.update import UpdateEngine
from edt_server.supervisor.programs.environment import zygote_environment
from tests.network import Network

ROOT = Path(__file__).resolve().parents[1] / ".bench"
SHARDS = 4
TARGETS = {"exact": 0.90, "fast": 0.98}
SIDES = ("exact", "fast", "ddp", "large")
TURN = 0.15  # seconds of one turn, about
LONG = 1 << 20  # updates; more than any run takes


class Engine:
    """Our side: the calls that the loop makes for an update."""

    def __init__(self, task, mode, rank, world, store, interface):
        torch.manual_seed(0)
        model = task.model()
        dataset = task.dataset(SHARDS * task.micro_batch * 16)
        sizes = (task.micro_batch,) * SHARDS
        self.order = Order(len(dataset), sizes, task.micro_batch, 0, LONG)
        self.engine = UpdateEngine(
            model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), F.cross_entropy,
            order=self.order, seed=0, device="cpu", worker=rank, mode=mode,
        )  # fmt: skip
        self.loader = ShardLoader(dataset)
        self.block = blocks(SHARDS, world)[rank]
        self.group = Group(
            dist.PrefixStore(mode, store), rank, world, device=torch.device("cpu"), interface=interface, generation=1
        )
        self.done = 0

    def update(self):
        step = TrainStep(*divmod(self.done, self.order.updates_per_epoch), self.done)
        self.engine.compute(step, self.block, self.loader, self.group)
        self.engine.commit(self.group, pending=1)
        self.done += 1


class Ddp:
    """The other side. `steps` micro-batches of `batch` samples an update."""

    def __init__(self, task, steps, batch, rank, world):
        torch.manual_seed(0)
        self.steps = steps
        model = task.model()
        dataset = task.dataset(SHARDS * task.micro_batch * 16)
        sampler = torch.utils.data.DistributedSampler(dataset, world, rank, seed=0)
        self.loader = DataLoader(dataset, batch, sampler=sampler)
        self.batches = iter(self.loader)
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def update(self):
        self.optimizer.zero_grad()
        for step in range(self.steps):
            x, y = self.next()
            last = step == self.steps - 1
            with contextlib.nullcontext() if last else self.model.no_sync():
                outputs = self.model(x)
                (F.cross_entropy(outputs, y) / self.steps).backward()
        self.optimizer.step()

    def next(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)


def turns(rank, world, name, rounds, number, path, sides, results, interface="127.0.0.1"):
    """One process: all sides take turns; seconds of an update, per side and round."""
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if interface == "127.0.0.1" else "eth0"
    dist.init_process_group("gloo", store=dist.FileStore(path, world), rank=rank, world_size=world)
    store = dist.FileStore(path + ".ours", world)
    task, per_rank = TASKS[name], SHARDS // world
    made = {}
    for side in [*sides][number % len(sides) :] + [*sides][: number % len(sides)]:
        if side == "ddp":
            made[side] = Ddp(task, per_rank, task.micro_batch, rank, world)
        elif side == "large":
            made[side] = Ddp(task, 1, task.micro_batch * per_rank, rank, world)
        else:
            made[side] = Engine(task, side, rank, world, store, interface)
    counts = {}
    for side, what in made.items():
        for _ in range(3):  # DDP rebuilds its buckets after the first
            what.update()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(3):
            what.update()
        count = torch.tensor([max(1, round(TURN / ((time.perf_counter() - start) / 3)))])
        dist.broadcast(count, 0)
        counts[side] = int(count)
    times = {side: [] for side in made}
    for turn in range(rounds):
        # Each turn begins with another side: what one leaves in the caches meets all alike.
        for side in [*made][turn % len(made) :] + [*made][: turn % len(made)]:
            dist.barrier()
            start = time.perf_counter()
            for _ in range(counts[side]):
                made[side].update()
            times[side].append((time.perf_counter() - start) / counts[side])
    if rank == 0:
        Path(results).write_text(json.dumps({side: times[side] for side in sides}))
    dist.barrier()
    os._exit(0)  # gloo's threads of two groups need no farewell


def measure(name, world, rounds, number, sides, machines, rate):
    """Seconds per update of each side, `rounds` of them, in one set of processes."""
    with tempfile.TemporaryDirectory() as folder:
        results = f"{folder}/results.json"
        given = [world, name, rounds, number, f"{folder}/store", sides, results]
        if machines == 1:
            mp.spawn(turns, given, nprocs=world)
        else:
            on_machines(given, machines, rate, Path(folder))
        return json.loads(Path(results).read_text())


def on_machines(given, machines, rate, folder):
    """The same, each block of ranks on a machine of its own."""
    names = [f"machine{number}" for number in range(machines)]
    with Network(*names) as network:
        programs = []
        for name, ranks in zip(names, blocks(given[0], machines), strict=True):
            if rate:
                network.limit(name, rate)
            words = json.dumps([list(ranks), given, network.addresses[name]])
            command = [sys.executable, __file__, "--member", words]
            programs.append(network.start(name, command, log=folder / f"{name}.log"))
        for program in programs:
            program.wait()
        if not Path(given[-1]).exists():
            raise SystemExit("".join(log.read_text() for log in folder.glob("*.log")))


def member(words):
    """One machine's part of it."""
    ranks, given, interface = json.loads(words)
    children = [mp.get_context("spawn").Process(target=turns, args=(rank, *given, interface)) for rank in ranks]
    for child in children:
        child.start()
    for child in children:
        child.join()


def line(name, world, sets):
    """One row: samples per second, the ratio to DDP of the same rounds, and the worst round of all."""
    samples = SHARDS * TASKS[name].micro_batch
    row = {"model": name, "workers": world, "samples_per_second": {}, "worst": {}, "ratio": {}, "between": {}}
    for side in sets[0]:
        seconds = [second for times in sets for second in times[side]]
        row["samples_per_second"][side] = samples / median(seconds)
        row["worst"][side] = samples / max(seconds)
        # Of the same round: whatever slows the machine for a while slows both.
        ratios = [[d / ours for d, ours in zip(times["ddp"], times[side], strict=True)] for times in sets]
        each = sorted(ratios[0] if len(sets) == 1 else [median(of_set) for of_set in ratios])
        row["ratio"][side] = median(each)
        row["between"][side] = interval(each)
    row["seconds"] = sets
    return row


def interval(ordered):
    """Where the median lies with 95 % confidence: between two of these values, whatever their distribution."""
    count = len(ordered)
    below = max(0, math.floor(count / 2 - 0.98 * math.sqrt(count)))  # of a binomial distribution, as a normal one
    return ordered[below], ordered[count - 1 - below]


def text(row):
    rate, worst, ratio, between = row["samples_per_second"], row["worst"], row["ratio"], row["between"]
    cells = [
        f"{rate[s]:5.0f} ({worst[s]:5.0f}) {ratio[s]:5.3f} [{between[s][0]:.2f} {between[s][1]:.2f}]"
        if s in ratio
        else "-"
        for s in SIDES
    ]
    return f"{row['model']:<12}{row['workers']:>2}  " + "  ".join(f"{cell:>31}" for cell in cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 rounds in one set")
    parser.add_argument("--rounds", type=int, default=48, help="turns of each side (default 48)")
    parser.add_argument("--sets", type=int, default=8, help="of fresh processes that share the rounds (default 8)")
    parser.add_argument("--models", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--machines", type=int, default=1, help="that the workers are divided among (default 1)")
    parser.add_argument("--rate", default="", help="of each machine's cable, such as 1gbit (default: no limit)")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        return member(options.member)
    os.environ.update({k: v for k, v in zygote_environment(os.environ, 1).items() if k.startswith("MALLOC_")})
    rounds, sets = (5, 1) if options.quick else (options.rounds, max(1, min(options.sets, options.rounds)))
    print("samples/s: median (worst round), ratio to DDP at the same number of workers [95 %]; V = 4, one thread each")
    print(f"{'model':<12}{'N':>2}  " + "  ".join(f"{side:>31}" for side in SIDES))
    rows = []
    for name in options.models:
        for world in options.workers:
            share = [rounds // sets + (number < rounds % sets) for number in range(sets)]
            common = options.sides, options.machines, options.rate
            measured = [measure(name, world, count, number, *common) for number, count in enumerate(share)]
            rows.append(line(name, world, measured))
            print(text(rows[-1]), flush=True)
    ROOT.mkdir(exist_ok=True)
    cores = len(os.sched_getaffinity(0))
    report = {"torch": torch.__version__, "machine": platform.machine(), "cores": cores, "rounds": rounds}
    report |= {"sets": sets, "rows": rows}
    (ROOT / "throughput.json").write_text(json.dumps(report, indent=1) + "\n")
    targets = TARGETS if options.machines == 1 else {"exact": 1.2 if options.rate else 0.98}
    missed = [
        f"{mode} {row['model']} N={row['workers']}: {row['ratio'][mode]:.3f} < {target}"
        + (", the interval reaches it" if row["between"][mode][1] >= target else "")
        for row in rows
        for mode, target in targets.items()
        if mode in row["ratio"] and row["ratio"][mode] < target
    ]
    print("all targets met" if not missed else "below target: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
