"""Trains on handwritten digits: ordinary PyTorch, and two lines that make it elastic."""

import argparse

import torch
from fabric_model import FabricModel
from model import datasets, network
from torch import nn

SHARDS = 8  # an update's batch is cut into 8 parts; 1 to 8 workers share them and get the same bits

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="samples of one shard")
    parser.add_argument("--lr", type=float, default=0.05)
    options = parser.parse_args()

    torch.manual_seed(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)
    fabric = FabricModel(model, datasets, nn.functional.cross_entropy, optimizer)
    fabric.train(options.epochs, options.batch_size, SHARDS, checkpoint_freq=0)
