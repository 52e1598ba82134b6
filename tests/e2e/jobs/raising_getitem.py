"""A data set with one broken sample."""

import torch
from fabric_model import FabricModel


class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 13:
            raise ValueError("sample 13 is broken")
        return torch.zeros(2), 0


def datasets():
    return Broken(), Broken()


model = torch.nn.Linear(2, 2)
FabricModel(model, datasets, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1)).train(1, 2)
