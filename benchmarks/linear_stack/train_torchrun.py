"""torchrun's side: the same model and update as a careful user of torchrun writes them, or alone without torchrun.

DistributedDataParallel over the workers there are; the micro-batches of an update are shared out among them and
accumulated under `no_sync()`, so that the batch stays the same for any number of workers. Every `--save-every` updates
rank 0 writes model, optimizer and position to memory (`--checkpoint`, atomically), and a start loads what is there.
Each worker appends its pid to `<commits>.pids`; rank 0 writes the commit log. SIGTERM ends the process at once: a
checkpoint is never more than `--save-every` updates old.
"""

import argparse
import contextlib
import json
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from network import Rows, add_options, loss, network, optimizer
from torch.nn.parallel import DistributedDataParallel


def arguments():
    """The command line's."""
    parser = add_options(argparse.ArgumentParser())
    parser.add_argument("--commits", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--save-every", type=int, default=10)
    return parser.parse_args()


def append(path, line):
    """One whole line, in one write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def shares(shards, world):
    """How many of the shards each rank computes."""
    return [shards // world + (rank < shards % world) for rank in range(world)]


class Trainer:
    """One worker's training.

    Args:
        options: of the command line.
    """

    def __init__(self, options):
        self.options = options
        self.distributed = "WORLD_SIZE" in os.environ
        if self.distributed and not dist.is_initialized():
            dist.init_process_group("gloo")
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if self.distributed else (0, 1)
        self.generation = self._agree_on_a_number()
        self.model = network(options.width, options.layers)
        self.optimizer = optimizer(self.model)
        self.done = self._load()
        self.parallel = DistributedDataParallel(self.model) if self.distributed else self.model
        self.data = Rows(options.updates * options.shards * options.samples, options.rows, options.width)

    def _agree_on_a_number(self):
        """Of this set of members; grows from one to the next, as rank 0's clock does."""
        box = [time.time_ns()]
        if self.distributed:
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def _load(self):
        """Model and optimizer as they were; how many updates they have seen."""
        if not self.options.checkpoint.exists():
            return 0
        return self._take(torch.load(self.options.checkpoint, weights_only=True))

    def _take(self, state):
        """Go on where this state ends; how many updates it has seen."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return state["updates"]

    def _state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "updates": self.done}

    def _save(self):
        """Model and optimizer, by rank 0; readers see the old file or the new one."""
        if self.rank:
            return
        half = self.options.checkpoint.with_suffix(".half")
        torch.save(self._state(), half)
        os.replace(half, self.options.checkpoint)

    def run(self):
        """Train to the end."""
        options, generator = self.options, torch.Generator().manual_seed(0)
        batch = options.shards * options.samples
        order = torch.randperm(len(self.data), generator=generator).tolist()
        mine = shares(options.shards, self.world)
        first = sum(mine[: self.rank])
        own = range(first, first + mine[self.rank])
        if not self.done:
            self._save()
        while self.done < options.updates:
            begin = self.done * batch
            parts = [order[begin + s * options.samples : begin + (s + 1) * options.samples] for s in own]
            self._update([self._batch(indices) for indices in parts])
            self.done += 1
            self._commit()

    def _batch(self, indices):
        return torch.utils.data.default_collate([self.data[index] for index in indices])

    def _update(self, batches):
        self.optimizer.zero_grad()
        for number, (rows, labels) in enumerate(batches):
            last = number == len(batches) - 1
            with contextlib.nullcontext() if last or not self.distributed else self.parallel.no_sync():
                # DDP divides by the number of workers; the update is the mean over all micro-batches.
                (loss(self.parallel(rows), labels) * (self.world / self.options.shards)).backward()
        self.optimizer.step()

    def _commit(self):
        line = {"update": self.done - 1, "world": self.world, "time": time.time(), "generation": self.generation}
        if self.rank == 0:
            append(self.options.commits, json.dumps(line))
        if self.done % self.options.save_every == 0:
            self._save()


if __name__ == "__main__":
    # torchrun's own handler would wait in a collective whose other members are gone already.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    chosen = arguments()
    append(Path(f"{chosen.commits}.pids"), str(os.getpid()))
    Trainer(chosen).run()
