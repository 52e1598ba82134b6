"""A model as WMLA's tutorials write one: strict options, DATA_DIR, a driver logger that feeds emetrics and elog."""

import argparse
import os
import time

import torch
import torch.nn.functional as F
from callbacks import Callback
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--numWorker", type=int, default=2)
parser.add_argument("--pause", type=float, default=0)  # seconds that a sample takes: time to look at a running job
arguments = parser.parse_args()


class Digits(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(arguments.pause)
        return torch.full((1, 4, 4), index % 10 / 10), index % 10


def datasets():
    return Digits(64), Digits(16)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(16, 10)

    def forward(self, x):
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


class Rates(Callback):
    def on_epoch_begin(self, epoch):
        if epoch:
            for group in self.params["optimizer"].param_groups:
                group["lr"] *= 0.5


if __name__ == "__main__":
    print("data in", os.environ["DATA_DIR"], "results in", os.environ["RESULT_DIR"])
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    fabric = FabricModel(
        model, datasets, F.nll_loss, optimizer, user_callback=[Rates()], driver_logger=EDTLoggerCallback()
    )
    fabric.train(arguments.epochs, arguments.batch_size, arguments.numWorker)
