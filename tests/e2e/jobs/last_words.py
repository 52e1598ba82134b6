"""Prints and is killed in the next instant, in the driver or in a worker."""

import os
import signal
import sys

import torch
from fabric_model import FabricModel

where = sys.argv[1]


def speak_and_die():
    print(f"and on stderr of the {where}", file=sys.stderr)
    sys.stdout.write(f"last words of the {where}, without a newline")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def datasets():
    speak_and_die()


if where == "driver":
    speak_and_die()
model = torch.nn.Linear(2, 2)
FabricModel(model, datasets, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1)).train(1, 2)
