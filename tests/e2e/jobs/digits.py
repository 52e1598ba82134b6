"""Handwritten digits in two layers, or a part of them as another kind of problem.

Usage: digits.py [KIND] [EPOCHS]. KIND is `classes` (default), `binary` (is it a five?), `regression`, `own-test` (an
fn_test of its own), `two` (two trainings one after the other), `slow` (a test sample takes 20 ms) or `untested` (no
test data).
"""

import sys
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from edt_sdk import FabricModel

KIND = sys.argv[1] if len(sys.argv) > 1 else "classes"
EPOCHS = int(sys.argv[2]) if len(sys.argv) > 2 else 2


class Slow(TensorDataset):
    def __getitem__(self, index):
        time.sleep(0.02)
        return super().__getitem__(index)


def datasets():
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    y = torch.tensor(digits.target)
    if KIND == "binary":
        y = (y == 5).float()[:, None]
    elif KIND == "regression":
        y = y.float()[:, None]
    test = (Slow if KIND == "slow" else TensorDataset)(x[1400:], y[1400:])
    return TensorDataset(x[:1400], y[:1400]), None if KIND == "untested" else test


def own_test(model, test_iter, fn_args):
    losses = [float(model.get_loss_function()(model(x), y)) for x, y in test_iter]
    return 2 * sum(losses) / len(losses)


if __name__ == "__main__":
    torch.manual_seed(1)
    one = KIND in ("binary", "regression")
    model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 1 if one else 10))
    losses = {"binary": nn.functional.binary_cross_entropy_with_logits, "regression": nn.functional.mse_loss}
    for _ in range(2 if KIND == "two" else 1):
        FabricModel(
            model,
            datasets,
            losses.get(KIND, nn.functional.cross_entropy),
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            fn_test=own_test if KIND == "own-test" else None,
        ).train(EPOCHS, 16, 4)
    print("the script goes on", float(sum(p.abs().sum() for p in model.parameters())))
