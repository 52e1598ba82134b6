"""A trial as one of our jobs."""

import argparse
import time

from fabric_model import FabricModel
from model import BATCH, datasets, network, optimizer_of
from torch import nn

import edt_sdk

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--shards", type=int, required=True)
parser.add_argument("--pause", type=float, default=0.0, help="seconds that a sample waits for its data")
options = parser.parse_args()


class Slow:
    """A data set whose samples take a while, as those of a slow disk do."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        time.sleep(options.pause)
        return self.samples[index]


def data():
    train, test = datasets()
    return (Slow(train) if options.pause else train), test


if __name__ == "__main__":
    values = edt_sdk.params()
    model = network(values["width"])
    optimizer = optimizer_of(model, values["lr"], values["momentum"])
    fabric = FabricModel(model, data, nn.functional.cross_entropy, optimizer)
    fabric.train(options.epochs, BATCH // options.shards, options.shards, checkpoint_freq=0)
