"""Our side: the model trained by `FabricModel`, one long epoch without validation."""

import argparse

from fabric_model import FabricModel
from network import Rows, add_options, loss, network, optimizer

options = add_options(argparse.ArgumentParser()).parse_args()


def datasets():
    """The training set; nothing to validate with."""
    return Rows(options.updates * options.shards * options.samples, options.rows, options.width), None


if __name__ == "__main__":
    model = network(options.width, options.layers)
    fabric = FabricModel(model, datasets, loss, optimizer(model))
    fabric.train(1, options.samples, options.shards, checkpoint_freq=0)
