"""A model that holds something no other process can have."""

import threading

import torch
from fabric_model import FabricModel


class Holding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.handle = threading.Lock()

    def forward(self, x):
        return self.layer(x)


def datasets():
    data = torch.utils.data.TensorDataset(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))
    return data, data


model = Holding()
FabricModel(model, datasets, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1)).train(1, 2)
