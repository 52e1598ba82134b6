"""A model of plain layers, of which one does not fit the one before it."""

import torch
from fabric_model import FabricModel


def datasets():
    return torch.utils.data.TensorDataset(torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)), None


model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer).train(1, 2, 2)
