"""Digits and a small convolutional network, for trials of a search: an epoch takes about half a second of one core."""

import time

import torch
from sklearn.datasets import load_digits
from torch import nn

BATCH = 64  # samples of an update
TEST = 360


class Slow:
    """A data set whose samples take a while, as those of a slow disk do."""

    def __init__(self, samples, pause):
        self.samples = samples
        self.pause = pause

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        time.sleep(self.pause)
        return self.samples[index]


def datasets(pause=0.0):
    """The images, [1, 8, 8], with their digits: 1,437 to train on and 360 to test with.

    Each of the first waits `pause` seconds for its data.
    """
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    whole = torch.utils.data.TensorDataset(images, torch.tensor(digits.target))
    train, test = torch.utils.data.random_split(whole, [len(whole) - TEST, TEST], torch.Generator().manual_seed(0))
    return (Slow(train, pause) if pause else train), test


def network(width):
    """[n, 1, 8, 8] -> [n, 10], with the same first weights every time."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * width, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def optimizer_of(model, lr, momentum):
    """Stochastic gradient descent."""
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
