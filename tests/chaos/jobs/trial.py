"""A trial of a search: a small network, on samples that take a while, and in the trial DELAYED ten times as long."""

import os
import sys
import time

import torch
from fabric_model import FabricModel
from torch import nn

FEATURES = 6
lr, width, epochs = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
pause = float(os.environ["PAUSE"]) * (10 if os.environ["EDT_TRIAL"] == os.environ["DELAYED"] else 1)


class Slow(torch.utils.data.Dataset):
    """Rows of random numbers, and whether their sum is above 0."""

    def __init__(self, samples, seed):
        self.x = torch.randn(samples, FEATURES, generator=torch.Generator().manual_seed(seed))
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(pause)
        return self.x[index] + 0.1 * torch.randn(FEATURES), self.y[index]


if __name__ == "__main__":
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    datasets = lambda: (Slow(60, 1), Slow(16, 2))  # noqa: E731
    FabricModel(model, datasets, nn.functional.cross_entropy, optimizer, lr_scheduler=schedule).train(epochs, 4, 4)
