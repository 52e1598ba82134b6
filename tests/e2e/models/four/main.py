"""A model folder in the style of WMLA 4: package `pyedt`, loggers that get a dictionary, metrics, own collate."""

import json
import os

import torch
from digits_idx import Digits
from pyedt.fabric_model import FabricModel

DATA = None


class Logger:
    """No base class. Writes what it hears into the process' own log folder."""

    def __init__(self, name):
        self.name = name

    def write(self, *what):
        with open(os.path.join(os.environ["LOG_DIR"], self.name), "a") as out:
            out.write(json.dumps(what) + "\n")

    def on_train_begin(self):
        self.write("begin")

    def log_train_metrics(self, metrics, iteration, epoch, workers):
        self.write("train", metrics, iteration, epoch, workers)

    def log_test_metrics(self, metrics, iteration, epoch):
        self.write("test", metrics, iteration, epoch)

    def on_train_end(self):
        self.write("end")


def datasets():
    # A global that main sets before it trains.
    return Digits(DATA, train=True), Digits(DATA, train=False)


def collate(samples):
    images = torch.stack([image for image, _ in samples])
    return images.flatten(1), torch.tensor([label for _, label in samples])


def confidence(outputs, labels):
    return outputs.softmax(1).max(1).values.mean()


class Top2:
    def __call__(self, outputs, labels):
        return (outputs.topk(2).indices == labels.unsqueeze(1)).any(1).float().mean()


def main():
    global DATA
    DATA = os.environ["DATA_DIR"]
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    fabric = FabricModel(
        model=model,
        datasets_function=datasets,
        loss_function=torch.nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        metrics=[confidence, Top2()],
        driver_logger_callback=Logger("driver.jsonl"),
        worker_logger_callback=Logger("worker.jsonl"),
        fn_batch_collate=collate,
        save_to_onnx=True,
    )
    fabric.train(3, 25, effective_batch_size=100)
    # Notebooks do that; this may have been one.
    fabric.download(os.path.join(os.environ["RESULT_DIR"], "saved"))


if __name__ == "__main__":
    main()
