"""One small training of every kind that must survive: models, optimizers and numbers of shards to choose from.

Everything that could tell two histories apart takes part: augmentation by all three random generators, dropout,
buffers, a callback with a memory that changes the learning rate, a learning-rate scheduler, clipping, validation, a
remainder.
"""

import argparse
import os
import random
import time

import numpy as np
import torch
from callbacks import Callback
from fabric_model import FabricModel
from torch import nn

CLASSES, LENGTH, WORDS = 5, 16, 50

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="mlp")
parser.add_argument("--optimizer", default="sgd")
parser.add_argument("--shards", type=int, default=4)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--samples", type=int, default=203)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--loaders", type=int, default=0)
options = parser.parse_args()
PAUSE = float(os.environ.get("PAUSE", "0"))  # seconds a sample takes


class Samples(torch.utils.data.Dataset):
    """Rows of numbers, or of words, that differ each time they are looked at."""

    def __init__(self, count, seed, words):
        generator = torch.Generator().manual_seed(seed)
        self.words = words
        self.x = (
            torch.randint(0, WORDS, (count, LENGTH), generator=generator)
            if words
            else torch.randn(count, LENGTH * LENGTH, generator=generator)
        )
        self.y = torch.randint(0, CLASSES, (count,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(PAUSE)
        if self.words:
            row = self.x[index].clone()
            row[random.randrange(LENGTH)] = int(np.random.randint(WORDS))
            return row, self.y[index]
        noise = torch.randn(LENGTH * LENGTH) * 0.05
        return self.x[index] + noise + random.random() * 0.01 + float(np.random.rand()) * 0.01, self.y[index]


def datasets():
    words = options.model in ("transformer", "lstm")
    return Samples(options.samples, 1, words), Samples(37, 2, words)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Dropout2d(0.2),
            nn.Conv2d(6, 8, 3, stride=2),
            nn.BatchNorm2d(8),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(8 * 49, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, CLASSES)
        )

    def forward(self, x):
        return self.head(self.body(x.view(-1, 1, LENGTH, LENGTH)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.places = nn.Embedding(LENGTH, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, CLASSES)
        self.never_used = nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.body(self.words(x) + self.places.weight).mean(1))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 24)
        self.body = nn.LSTM(24, 32, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.head(self.body(self.words(x))[0][:, -1])


class Frozen(nn.Module):
    """A backbone that is not trained, in evaluation mode, under a head that is."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(LENGTH * LENGTH, 64), nn.BatchNorm1d(64), nn.ReLU())
        self.backbone.requires_grad_(False).eval()
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, CLASSES))

    def forward(self, x):
        return self.head(self.backbone(x))


def mlp():
    return nn.Sequential(
        nn.Linear(LENGTH * LENGTH, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout(0.2), nn.Linear(64, CLASSES)
    )


MODELS = {"mlp": mlp, "cnn": Cnn, "transformer": Transformer, "lstm": Lstm, "frozen": Frozen}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.002),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.002),
    "adadelta": lambda parameters: torch.optim.Adadelta(parameters, lr=0.5),
}


class Memory(Callback):
    """Counts what it has seen and lets the learning rate follow from it."""

    def __init__(self):
        self.seen = []
        self.mean = 0.0

    def on_epoch_begin(self, epoch):
        self.seen.append(("begin", epoch))

    def on_update_end(self, update):
        self.updates = update + 1
        self.mean = 0.99 * self.mean + 0.01 * next(self.model.parameters()).detach().mean().item()

    def on_epoch_end(self, epoch):
        self.seen.append(("updates", self.updates, self.mean))
        self.seen.append(("end", epoch, round(random.random(), 6)))
        for group in self.params["optimizer"].param_groups:
            group["lr"] *= 1.0 - 0.001 * len(self.seen) - 0.001 * self.mean


if __name__ == "__main__":
    torch.manual_seed(7)
    model = MODELS[options.model]()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = OPTIMIZERS[options.optimizer](parameters)
    edt = FabricModel(
        model,
        datasets,
        nn.functional.cross_entropy,
        optimizer,
        user_callback=[Memory()],
        lr_scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.8),
        clip_grad_norm=1.0,
    )
    edt.train(
        options.epochs,
        options.batch,
        options.shards,
        num_dataloader_threads=options.loaders,
        validation_freq=3,
        checkpoint_freq=7,
    )
    print("trained")
