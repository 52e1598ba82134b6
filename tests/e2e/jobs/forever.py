"""Trains a small model for longer than any test lasts, and mostly sleeps: it is only there to hold slots."""

import time

import torch
from fabric_model import FabricModel


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.full((4,), float(index)), index % 2


def datasets():
    return Slow(), Slow()


if __name__ == "__main__":
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    edt = FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer)
    edt.train(100_000, 2, 8, validation_freq=1_000_000, checkpoint_freq=0)
