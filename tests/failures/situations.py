"""Scripts of jobs that bring about what cannot be done to a server: lines without end, losses that are no numbers."""

MEGABYTE = 1_000_000

ENDLESS_LINE = f"""
# FabricModel
print("begins", "o" * {MEGABYTE}, flush=True)
raise ValueError("e" * {MEGABYTE})
"""

NO_NUMBERS = """
import torch
from fabric_model import FabricModel

def datasets():
    inputs, labels = torch.ones(8, 3), torch.full((8,), float("nan"))
    labels[0] = 1.0
    return torch.utils.data.TensorDataset(inputs, labels), torch.utils.data.TensorDataset(inputs, labels)

model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
FabricModel(model, datasets, torch.nn.functional.mse_loss, optimizer).train(2, 2, 1)
"""

# The same in a cell of a notebook, whose training waits for the file `go`.
CELL_OF_NO_NUMBERS = NO_NUMBERS
