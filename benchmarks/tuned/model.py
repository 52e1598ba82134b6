"""Digits and a small convolutional network, for trials of a search: an epoch takes about half a second of one core."""

import torch
from sklearn.datasets import load_digits
from torch import nn

BATCH = 64  # samples of an update
TEST = 360


def datasets():
    """The images, [1, 8, 8], with their digits: 1,437 to train on and 360 to test with."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    whole = torch.utils.data.TensorDataset(images, torch.tensor(digits.target))
    return torch.utils.data.random_split(whole, [len(whole) - TEST, TEST], torch.Generator().manual_seed(0))


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
