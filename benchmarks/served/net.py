"""The models that are served: a small transformer, and a convolutional net that takes much longer."""

import torch
from torch import nn

STEPS, WIDTH, CLASSES = 8, 32, 10
SIDE = 32


class Transformer(nn.Module):
    """Two encoder layers over 8 steps of 32 numbers; [n, 8, 32] → [n, 10]."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(x).mean(dim=1))


def conv_net():
    """Three convolutions; [n, 1, 32, 32] → [n, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, CLASSES),
    )


MODELS = {"transformer": (Transformer, (STEPS, WIDTH)), "conv": (conv_net, (1, SIDE, SIDE))}


def samples(name, number):
    """Return random samples for a model, and random classes."""
    generator = torch.Generator().manual_seed(0)
    shape = (number, *MODELS[name][1])
    return torch.randn(shape, generator=generator), torch.randint(CLASSES, (number,), generator=generator)
