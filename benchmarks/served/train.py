"""Trains a model of `net.py` for a moment, so that there is a version to serve."""

import sys

import torch
from fabric_model import FabricModel
from net import MODELS, samples
from torch import nn
from torch.utils.data import TensorDataset


def datasets():
    return TensorDataset(*samples(sys.argv[1], 16)), TensorDataset(*samples(sys.argv[1], 8))


if __name__ == "__main__":
    torch.manual_seed(1)
    model = MODELS[sys.argv[1]][0]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    FabricModel(model, datasets, nn.functional.cross_entropy, optimizer).train(1, 8, 1)
