"""Handwritten digits: ordinary PyTorch, and two lines that make it elastic.

Nothing in here says how many workers there are. The data set ships with scikit-learn; nothing is downloaded.
"""

import argparse

import torch
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

SHARDS = 8  # an update's batch is cut into 8 parts; 1 to 8 workers share them and get the same bits


def digits():
    """1437 images to train on and 360 to test with, 8 x 8 pixels each; the same split every time."""
    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(bunch.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def network(width):
    """Three convolutions with BatchNorm, and a classifier behind dropout; [n, 1, 8, 8] -> [n, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(8 * width, 10),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="samples of one shard")
    parser.add_argument("--width", type=int, default=48)
    options = parser.parse_args()

    torch.manual_seed(1)
    model = network(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    fabric = FabricModel(model, digits, nn.functional.cross_entropy, optimizer, driver_logger=EDTLoggerCallback())
    fabric.train(options.epochs, options.batch_size, SHARDS, checkpoint_freq=0)
