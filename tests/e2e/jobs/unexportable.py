"""A model whose way depends on its data, asked to be exported all the same."""

import torch
from fabric_model import FabricModel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x) if x.sum().item() > 0 else -self.linear(x)


def datasets():
    return [(torch.full((3,), float(n)), n % 2) for n in range(32)], None


if __name__ == "__main__":
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fabric = FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer, save_to_onnx=True)
    fabric.train(1, 4, 4)
    print("still", sum(p.numel() for p in model.parameters()), "parameters")
