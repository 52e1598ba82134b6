"""A model folder in the style of WMLA 2: own training step, own test, callbacks that steer, an ONNX file in the end."""

import os

import torch
import torch.nn.functional as F
from callbacks import Callback
from digits_idx import Digits
from edtcallback import EDTLoggerCallback, EDTTrainCallback
from fabric_model import FabricModel

EPOCHS, BATCH_SIZE_PER_DEVICE, MAX_NUM_WORKERS = 4, 16, 4
output_model_path = os.path.join(os.environ.get("RESULT_DIR", "/tmp"), "model")
os.makedirs(output_model_path, exist_ok=True)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 5, stride=2), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.1)
        )
        self.head = torch.nn.Linear(4 * 12 * 12, 10)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def get_datasets():
    return Digits(os.environ["DATA_DIR"], True), Digits(os.environ["DATA_DIR"], False)


def step_train(model, data, eva, train_loader, fn_args):
    inputs, labels = data
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs, labels = inputs.to(device), labels.to(device)
    optimizer = model.get_optimizer()
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = model.get_loss_function()(outputs, labels)
    loss.backward()
    acc = eva(outputs, labels)
    return acc, loss


def test(model, test_iter, fn_args):
    loss, batches = 0.0, 0
    criterion = model.get_loss_function()
    for inputs, labels in test_iter:
        loss += criterion(model(inputs), labels).item()
        batches += 1
    return loss / batches


class LRScheduler(Callback):
    """Halves the learning rate after every second epoch, and says what it sees."""

    def __init__(self, step_size):
        super().__init__()
        self.step_size = step_size
        self.seen = []

    def on_epoch_begin(self, epoch):
        if epoch and epoch % self.step_size == 0:
            for group in self.params["optimizer"].param_groups:
                group["lr"] *= 0.5
        self.seen.append((epoch, self.params["optimizer"].param_groups[0]["lr"]))

    def on_epoch_end(self, epoch, save_model=False):
        assert save_model is False
        if epoch == self.params["epochs"] - 1:
            print("RATES", self.seen, "WORKER", os.environ["LOG_DIR"].rsplit("/", 1)[1].split("-")[0], flush=True)
            x = torch.randn(1, 1, 28, 28, device=next(self.model.parameters()).device)
            torch.onnx.export(self.model, (x,), os.path.join(output_model_path, "trained_model.onnx"), verbose=False)


if __name__ == "__main__":
    torch.manual_seed(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    edt_m = FabricModel(
        model,
        get_datasets,
        F.cross_entropy,
        optimizer,
        enable_onnx=True,
        fn_step_train=step_train,
        fn_test=test,
        driver_logger=EDTLoggerCallback(),
        user_callback=[LRScheduler(2), EDTTrainCallback(output_model_path)],
    )
    edt_m.train(EPOCHS, BATCH_SIZE_PER_DEVICE, MAX_NUM_WORKERS, num_dataloader_threads=2, checkpoint_freq=0)
    assert optimizer is edt_m.optimizer
