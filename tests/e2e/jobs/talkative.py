"""Many lines from the driver, one from each worker, ELog from the callback."""

import torch
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel


def datasets():
    print("worker opens the data set")
    data = torch.utils.data.TensorDataset(torch.randn(64, 2), torch.zeros(64, dtype=torch.long))
    return data, data


if __name__ == "__main__":
    for n in range(500):
        print(f"driver line {n}")
    model = torch.nn.Linear(2, 2)
    edt = FabricModel(
        model,
        datasets,
        torch.nn.functional.cross_entropy,
        torch.optim.SGD(model.parameters(), lr=0.1),
        driver_logger=EDTLoggerCallback(),
    )
    edt.train(3, 4, 4)
