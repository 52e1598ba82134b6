"""A script of WMLA's framework PyTorch: one process trains by itself, records metrics, and saves where it wants."""

import argparse
import os

import torch
import torch.nn.functional as F
from digits_idx import Digits
from emetrics import EMetrics

data_dir = os.environ.get("DATA_DIR", "/tmp")
result_dir = os.environ.get("RESULT_DIR", "/tmp")
output_model_path = os.path.join(result_dir, "model", "trained_model.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--no-cuda", action="store_true", default=False)
    args = parser.parse_args()
    print(args)
    torch.manual_seed(1)
    device = torch.device("cpu" if args.no_cuda else "cuda")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(Digits(data_dir, train=True), batch_size=64, shuffle=True)
    with EMetrics.open() as em:
        for epoch in range(1, args.epochs + 1):
            for data, target in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(data.to(device)), target.to(device))
                loss.backward()
                optimizer.step()
            print(f"Train Epoch: {epoch} Loss: {loss.item():.6f}")
            em.record(EMetrics.TEST_GROUP, epoch, {"loss": loss.item()})
    # The folder is there: the platform made it.
    torch.save(model.state_dict(), output_model_path)
    print(f"Model saved in path: {output_model_path}")


if __name__ == "__main__":
    main()
