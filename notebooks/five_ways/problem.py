"""One problem for five programs: handwritten digits, a small network, and what it is trained with."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

EPOCHS, BATCH, SHARDS = 10, 64, 4


def datasets():
    """1437 images of 64 pixels to train on, and 360 to test with; the same split every time."""
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16).float(), torch.tensor(labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def network():
    """[n, 64] -> [n, 10], with the same weights to begin with every time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def optimizer_of(net):
    """What all five step with."""
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
