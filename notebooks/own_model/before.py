"""A plain PyTorch training, as people write it: model, data, a loop."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 6, 64


def datasets():
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16).float(), torch.tensor(labels)
    return TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train, test = datasets()
    loader = DataLoader(train, BATCH, shuffle=True)
    for _ in range(EPOCHS):
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    images, labels = test.tensors
    right = (model.eval()(images).argmax(1) == labels).float().mean().item()
    print(f"test accuracy {right:.1%}")
