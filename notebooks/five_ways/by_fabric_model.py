"""The model, the data, the loss and the optimizer are given away; the loop is FabricModel's."""

from fabric_model import FabricModel
from problem import BATCH, EPOCHS, SHARDS, datasets, network, optimizer_of
from torch import nn

net = network()
fabric = FabricModel(net, datasets, nn.functional.cross_entropy, optimizer_of(net))
fabric.train(EPOCHS, BATCH // SHARDS, SHARDS)
