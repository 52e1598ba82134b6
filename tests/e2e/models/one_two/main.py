"""A model folder in the style of WMLA 1.2: the engine's zip goes on the path, loggers on the driver, own argparse."""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))

import torch
import torch.nn.functional as F
from callbacks import LoggerCallback
from digits_idx import Digits
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from torch import nn, optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, kernel_size=5, stride=2)
        self.fc = nn.Linear(4 * 12 * 12, 10)

    def forward(self, x):
        x = F.relu(self.conv(x))
        return F.log_softmax(self.fc(x.view(x.size(0), -1)), dim=1)


def get_datasets():
    root = os.environ.get("DATA_DIR")
    return Digits(root, train=True), Digits(root, train=False)


def main():
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument("--numWorker", type=int, default=16)
    parser.add_argument("--gpuPerWorker", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    args, unknown = parser.parse_known_args()
    print("unknown arguments:", unknown)

    torch.manual_seed(1)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.5)
    logger = EDTLoggerCallback()
    assert isinstance(logger, LoggerCallback)
    edt_m = FabricModel(model, get_datasets, F.nll_loss, optimizer, driver_logger=logger)
    engines = args.numWorker * args.gpuPerWorker
    print(f"engines_number:{engines}")
    edt_m.train(args.epochs, 16, engines)


if __name__ == "__main__":
    main()
