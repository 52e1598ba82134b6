"""A torchrun script that a change of its size would harm: it keeps no checkpoint, or counts steps as a Trainer does.

Usage: restarting.py FOLDER nothing|trainer. It appends a line to FOLDER/log at its start and at every step, and ends
once FOLDER/finish is there: at once without a checkpoint, after its last step with one.
"""

import os
import sys
import time
from pathlib import Path
from types import ModuleType

import torch

EPOCHS, SAMPLES, BATCH = 6, 132, 2
folder, kind = Path(sys.argv[1]), sys.argv[2]
world, state = int(os.environ["WORLD_SIZE"]), folder / "state.pt"


def write(what: str) -> None:
    with (folder / "log").open("a") as log:
        log.write(f"{what}\n")


if kind == "trainer":
    # What `from transformers import Trainer` leaves behind; the arithmetic below is the Trainer's too.
    sys.modules["transformers.trainer"] = ModuleType("transformers.trainer")
max_steps = EPOCHS * SAMPLES // (BATCH * world)
step = torch.load(state)["step"] if state.exists() else 0
write(f"starts with {world} at {step}")
while step < max_steps if kind == "trainer" else not (folder / "finish").exists():
    step += 1
    write(f"step {step}")
    if kind == "trainer":
        torch.save({"step": step}, state)
    while kind == "trainer" and step == 220 and not (folder / "finish").exists():
        time.sleep(0.02)
    time.sleep(0 if kind == "trainer" else 0.02)
write(f"ends after {step}")
