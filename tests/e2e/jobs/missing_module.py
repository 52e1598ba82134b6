"""A data set that needs a library which is not installed."""

import torch
from fabric_model import FabricModel


def datasets():
    import albumentationz

    return albumentationz.train(), None


model = torch.nn.Linear(2, 2)
FabricModel(model, datasets, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1)).train(1, 2)
