"""The model of the benchmarks of rescaling, failures and first steps, the same for both sides.

A stack of square linear layers with SGD and momentum: its state is twice its parameters, and how long an update takes
is chosen by the rows of a sample, independent of it.
"""

import torch
from torch import nn

CLASSES = 10
# Distinct samples; every 64th is the same one.
DIFFERENT = 64


class Rows(torch.utils.data.Dataset):
    """`size` samples of `rows` x `width` numbers, each row with a label of its own."""

    def __init__(self, size, rows, width):
        generator = torch.Generator().manual_seed(0)
        self.size = size
        self.rows = torch.randn(DIFFERENT, rows, width, generator=generator)
        self.labels = torch.randint(0, CLASSES, (DIFFERENT, rows), generator=generator)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.rows[index % DIFFERENT], self.labels[index % DIFFERENT]


def network(width, layers):
    """[n, rows, width] -> [n, rows, CLASSES]; `layers * width**2` parameters and a few."""
    torch.manual_seed(1)
    stack = []
    for _ in range(layers):
        stack += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*stack, nn.Linear(width, CLASSES))


def optimizer(model):
    """SGD with momentum: as much state again as there are parameters."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def loss(output, target):
    """Mean over all rows of the micro-batch."""
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def add_options(parser):
    """What both scripts are told on their command line."""
    parser.add_argument("--width", type=int, default=512, help="of the linear layers")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=8, help="of a sample")
    parser.add_argument("--samples", type=int, default=8, help="of a micro-batch")
    parser.add_argument("--shards", type=int, default=4, help="micro-batches of an update")
    parser.add_argument("--updates", type=int, default=20_000)
    return parser
