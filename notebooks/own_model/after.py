"""The same training, elastic: model and data as before, the loop handed over."""

import torch
from fabric_model import FabricModel
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

EPOCHS, BATCH = 6, 64


def datasets():
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16).float(), torch.tensor(labels)
    return TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    fabric = FabricModel(model, datasets, nn.functional.cross_entropy, optimizer)
    fabric.train(EPOCHS, BATCH // 4, 4)
    _, test = datasets()
    images, labels = test.tensors
    right = (model.eval()(images).argmax(1) == labels).float().mean().item()
    print(f"test accuracy {right:.1%}")
