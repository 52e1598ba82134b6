"""Trains until a file says that from now on the data set is broken; or until a loss is no number."""

import argparse
import os
import time
from pathlib import Path

import torch
from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("flag")
parser.add_argument("--nan", default="")
options = parser.parse_args()


class Breaking(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        time.sleep(0.005)
        if Path(options.flag).exists():
            if not options.nan:
                raise OSError(f"the disk under sample {index} is gone (process {os.getpid()})")
            return torch.full((4,), float("nan")), index % 2
        return torch.full((4,), float(index)), index % 2


def datasets():
    return Breaking(), None


if __name__ == "__main__":
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    edt = FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer)
    edt.train(100_000, 2, 4, checkpoint_freq=0, on_nan=options.nan or "warn")
