"""A script of the `PyTorch` framework: one process, strict options, saves into a model folder it does not make."""

import argparse
import os
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("--sleep", type=float, default=0)
arguments = parser.parse_args()

if __name__ == "__main__":
    print(arguments, flush=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    for epoch in range(arguments.epochs):
        print(f"Train Epoch: {epoch} [0/64 (0%)]\tLoss: 2.30", flush=True)
    time.sleep(arguments.sleep)
    torch.save(model.state_dict(), os.path.join(os.environ["RESULT_DIR"], "model", "saved_model.pth"))
    print("saved")
