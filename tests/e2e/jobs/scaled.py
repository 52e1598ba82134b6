"""Trains for ever, and says itself how many workers it wants: what the file it is given holds."""

import argparse
import time
from pathlib import Path

import torch
from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("limit", type=Path)
options = parser.parse_args()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((3,), float(index)), index % 2


def datasets():
    return Data(), None


def most_workers(epoch, most):
    assert most == 4
    return int(options.limit.read_text())


if __name__ == "__main__":
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fabric = FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer, scaleup_function=most_workers)
    fabric.train(1_000_000, 2, 4, checkpoint_freq=0)
