"""A trial as one of our jobs."""

import argparse

from fabric_model import FabricModel
from model import BATCH, datasets, network, optimizer_of
from torch import nn

import edt_sdk

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--shards", type=int, required=True)
parser.add_argument("--pause", type=float, default=0.0, help="seconds that a sample waits for its data")
options = parser.parse_args()


def data():
    return datasets(options.pause)


if __name__ == "__main__":
    values = edt_sdk.params()
    model = network(values["width"])
    optimizer = optimizer_of(model, values["lr"], values["momentum"])
    fabric = FabricModel(model, data, nn.functional.cross_entropy, optimizer)
    fabric.train(options.epochs, BATCH // options.shards, options.shards, checkpoint_freq=0)
