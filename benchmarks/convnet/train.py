"""A compute-bound training: a convolutional network on synthetic images, one long epoch, no validation in between."""

import argparse

import torch
from fabric_model import FabricModel
from torch import nn

SHARDS = 8
BATCH_SIZE = 8
DIFFERENT = 256


class Images(torch.utils.data.Dataset):
    """`size` images of 3 x 32 x 32 with labels of 10 classes; every 256th is the same one."""

    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.size = size
        self.images = torch.randn(DIFFERENT, 3, 32, 32, generator=generator)
        self.labels = torch.randint(0, 10, (DIFFERENT,), generator=generator)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.images[index % DIFFERENT], self.labels[index % DIFFERENT]


def images():
    return Images(options.updates * SHARDS * BATCH_SIZE), Images(SHARDS)


def network():
    """Four convolutions with BatchNorm; [n, 3, 32, 32] -> [n, 10]; about 80 ms a shard on one core."""
    layers, channels = [], 3
    for width in (32, 64, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * channels, 10))


parser = argparse.ArgumentParser()
parser.add_argument("--updates", type=int, default=100)
options = parser.parse_args()

if __name__ == "__main__":
    torch.manual_seed(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    fabric = FabricModel(model, images, nn.functional.cross_entropy, optimizer)
    fabric.train(1, BATCH_SIZE, SHARDS, checkpoint_freq=0)
