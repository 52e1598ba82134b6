"""A PyTorch Elastic script that knows nothing of jupyter-edt: DDP on gloo, a checkpoint of its own, and a log.

Usage: elastic_script.py FOLDER STEPS [--crash-at STEP] [--seconds S]. Each process appends a JSON line to
FOLDER/log.jsonl at its start and at every step; it ends early when FOLDER/finish is there.
"""

import argparse
import atexit
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("steps", type=int)
parser.add_argument("--crash-at", type=int, default=-1)
parser.add_argument("--seconds", type=float, default=0.02)
options = parser.parse_args()
state_file = options.folder / "state.pt"


def write(**what: object) -> None:
    line = json.dumps({"pid": os.getpid(), "time": time.time(), **what}) + "\n"
    with (options.folder / "log.jsonl").open("a") as log:
        log.write(line)


def told_to_end(*_: object) -> None:
    write(kind="sigterm")
    sys.exit(143)


signal.signal(signal.SIGTERM, told_to_end)
write(kind="start", env=dict(os.environ), argv=sys.argv, cwd=os.getcwd())
print("script started, rank", os.environ["RANK"])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
step = 0
if state_file.exists():
    state = torch.load(state_file)
    model.load_state_dict(state["model"])
    step = state["step"]
parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
write(kind="ready", rank=rank, world=world, step=step)
while step < options.steps:
    finish = torch.tensor([float((options.folder / "finish").exists())])
    dist.all_reduce(finish)
    if finish.item():
        break
    optimizer.zero_grad()
    parallel(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    step += 1
    # Before the checkpoint: whoever is told to end between the two has a step in the log that is made again, not a gap.
    write(kind="step", rank=rank, world=world, step=step)
    if rank == 0:
        half = state_file.with_suffix(".half")
        torch.save({"model": model.state_dict(), "step": step}, half)
        half.replace(state_file)
    if step == options.crash_at and rank == world - 1 and not (options.folder / f"crashed-{step}").exists():
        (options.folder / f"crashed-{step}").touch()
        # Its peers fail and end while it still shuts down.
        atexit.register(time.sleep, 1.0)
        atexit.register(dist.destroy_process_group)
        raise RuntimeError(f"crashed at step {step}, as asked")
    time.sleep(options.seconds)
write(kind="end", rank=rank, world=world, step=step)
dist.destroy_process_group()
