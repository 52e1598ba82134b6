"""A data set function that raises."""

import torch
from fabric_model import FabricModel


def datasets():
    raise OSError("the disk with the images is gone")


model = torch.nn.Linear(2, 2)
FabricModel(model, datasets, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1)).train(1, 2)
