"""The members on one machine of `hosts_exchange.py`: they sum the same vectors in three ways, which take turns.

`together` adds up on each machine before anything travels, `apart` sends the sums of each member, and `gloo` is the
library's all-reduce, whose order of additions depends on the number of members. Rank 0 writes the seconds of each, and
a hash of the sum, into `<folder>/found.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group, connect_store, open_store
from edt_sdk.training.exchange.group_exchange import Exchange, Scratch
from edt_sdk.training.exchange.layout import Layout
from edt_sdk.training.exchange.strategy import Exchanges

WAYS = ("together", "apart", "gloo")
COUNT = 4  # samples of a shard


def member(rank: int, world: int, folder: Path, interface: str, megabytes: float, rounds: int) -> None:
    """Measure as one rank."""
    torch.set_num_threads(1)
    place = folder / "leader"
    if rank == 0:
        _store, port = open_store(interface)  # it listens until this process ends
        place.with_suffix(".new").write_text(f"{interface} {port}")
        place.with_suffix(".new").rename(place)
    while not place.exists():
        time.sleep(0.01)
    host, text = place.read_text().split()
    cpu = torch.device("cpu")
    group = Group(lambda: connect_store(host, int(text)), rank, world, device=cpu, interface=interface, generation=1)
    values = nn.ParameterList([nn.Parameter(torch.zeros(int(megabytes * 1e6 / 16))) for _ in range(4)])
    shards = 2 * world
    layout = Layout(values, torch.optim.SGD(values, lr=0.1), shards)
    exchanges, scratch = Exchanges(layout, fast=False), Scratch()
    exchanges.meet(group)
    together, apart = exchanges.vectors(group).take(), layout.zeros()
    torch.manual_seed(rank)
    source = torch.randn_like(apart.sections[0])
    counts = [COUNT] * shards
    assert len(blocks(shards, world)[rank]) == 2, "each member has one subtree"
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    hashes = {}
    for number in range(rounds + 2):
        for way in WAYS:
            vector = together if way == "together" else apart
            vector.sections[0].copy_(source)
            group.barrier()
            begun = time.monotonic()
            total = vector
            if way == "gloo":
                group.barrier()  # stands for the records of an update, which all ways need
                group.all_reduce(vector.sections[0]).wait()
                vector.sections[0].div_(float(COUNT * shards))
            else:
                divisor = exchanges.divisor(counts)
                exchange = (
                    exchanges.between(group, counts, [vector], [0])
                    if way == "together"
                    else Exchange(group, layout, counts, divisor, [vector], [0], fast=False, scratch=scratch)
                )
                exchange.start_all()
                group.barrier()
                total = exchange.finish()
            group.barrier()
            if number > 1:  # the first ones provide memory
                seconds[way].append(time.monotonic() - begun)
            if way != "gloo":
                hashes[way] = hashlib.sha256(total.sections[0][: layout.lengths[0]].numpy().tobytes()).hexdigest()
    if rank == 0:
        kind = type(exchanges.between(group, counts, [together], [0])).__name__
        (folder / "found.json").write_text(json.dumps({"seconds": seconds, "hashes": hashes, "together": kind}))
    group.barrier()
    os._exit(0)


def main() -> None:
    """Run the members of a machine, and wait for them."""
    machine, members, machines, folder, interface, megabytes, rounds = sys.argv[1:]
    first, world = int(machine) * int(members), int(machines) * int(members)
    children = []
    for rank in range(first, first + int(members)):
        if (child := os.fork()) == 0:
            member(rank, world, Path(folder), interface, float(megabytes), int(rounds))
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
