"""Learn to read digits: ordinary PyTorch, and two lines that make it elastic. It needs nothing but torch.

Change what you like, and submit the folder again with "Train …" in JupyterLab's panel of jobs.
"""

import torch
from fabric_model import FabricModel
from torch import nn
from torch.utils.data import TensorDataset

EPOCHS = 10
SHARDS = 8  # an update's batch is cut into 8 parts; 1 to 8 workers share them and get the same bits
# The digits 0 to 9 as five rows of three cells each.
DIGITS = (
    "111101101101111", "010110010010111", "111001111100111", "111001111001111", "101101111001001",
    "111100111001111", "111100111101111", "111001010010010", "111101111101111", "111101111001111",
)  # fmt: skip


def datasets():
    """Draw 2,048 noisy digits to train with and 512 to test with, 8 x 8 pixels each; the same ones every time."""
    random = torch.Generator().manual_seed(0)
    shapes = torch.tensor([[float(cell) for cell in digit] for digit in DIGITS]).view(10, 5, 3)
    labels = torch.randint(10, (2560,), generator=random)
    images = torch.randn(2560, 1, 8, 8, generator=random) / 5
    tops, lefts = (torch.randint(most, (2560,), generator=random).tolist() for most in (4, 6))
    for image, label, top, left in zip(images, labels, tops, lefts, strict=True):
        image[0, top : top + 5, left : left + 3] += shapes[label]
    return TensorDataset(images[:2048], labels[:2048]), TensorDataset(images[2048:], labels[2048:])


def network(width=32):
    """Return two convolutions and a classifier."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * width, 10),
    )


if __name__ == "__main__":
    torch.manual_seed(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    fabric = FabricModel(model, datasets, nn.functional.cross_entropy, optimizer)
    fabric.train(EPOCHS, 16, SHARDS, checkpoint_freq=5)
