"""A job that talks: twenty lines a second until it is stopped, beside a training or without one.

    main.py <lines a second> [train]

With `train`, a real and very light training prints them, one a sample, in its worker; else the main script does.
"""

import sys
import time

PAUSE = 1 / float(sys.argv[1])
LINE = "epoch 3 step 1234 loss 0.1234 accuracy 0.9876 learning-rate 0.001 samples/s 1234.5"


def talk() -> None:
    """Print for ever, without torch."""
    number = 0
    while True:
        print(f"{number} {LINE}", flush=True)
        number += 1
        time.sleep(PAUSE)


def train() -> None:
    """One sample, one line, for about an hour."""
    import torch
    from fabric_model import FabricModel

    class Talking(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            print(f"{index} {LINE}", flush=True)
            time.sleep(PAUSE)
            return torch.full((3,), float(index) / 64), torch.tensor(float(index) / 64)

    def data() -> tuple[torch.utils.data.Dataset, None]:
        return Talking(), None

    model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    FabricModel(model, data, torch.nn.functional.mse_loss, optimizer).train(1000, 2, 1)


if __name__ == "__main__":
    train() if sys.argv[2:] == ["train"] else talk()
