"""Provide the callbacks that WMLA's sample models ship with their main file: progress to ELog, metrics to EMetrics.

This file is packed into every submission that brings none. It needs only `callbacks` and the standard library.
Both log files are reopened for every record, so that a killed process loses nothing and several processes can write.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

from callbacks import Callback, LoggerCallback
from elog import ELog
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    """Records each finished batch as a `driver_logger`, and at the end the file a hyper-parameter search reads.

    Accuracies are divided by 100 here as they arrive from the engine, as in WMLA's own samples.
    """

    def __init__(self) -> None:
        self.gs = 0
        self._losses: list[dict[str, float]] = []

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Record a finished training batch. `completed_batch` counts within the epoch, over all workers."""
        acc = acc / 100
        self.gs += 1
        self._losses.append({"steps": self.gs, "loss": loss})
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TEST_GROUP, completed_batch, {"loss": loss, "accuracy": acc})
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self.gs, loss, acc, worker)

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Record a finished validation."""
        with ELog.open() as log:
            log.recordTest("Test", loss, acc / 100, worker)

    def on_train_end(self) -> None:
        """Write $RESULT_DIR/val_dict_list.json. KeyError outside a job, where RESULT_DIR is not set."""
        with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as file:
            json.dump(self._losses, file)


class EDTTrainCallback(Callback):
    """Writes a line to ELog after each epoch as a `user_callback`, and the training's duration after the last.

    Args:
        output_model_path: folder for the export of the model, created when missing.
        example_shape: the shape of an input of the model, batch included. Only an export needs it.
    """

    def __init__(self, output_model_path: str, example_shape: Sequence[int] = (1, 1, 28, 28)) -> None:
        super().__init__()
        self.output_model_path = output_model_path
        self.example_shape = tuple(example_shape)
        self.start_time = time.time()

    def log_message(self, message: str) -> None:
        """Append a line to ELog."""
        with ELog.open() as log:
            log.recordText(message)

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        """Log the end of `epoch`, counted from 0. With `save_model`, export the model after the last epoch.

        The engine never passes `save_model`, a subclass may. The export goes to
        `<output_model_path>/trained_model.onnx` with torch's exporter, and its errors pass through.
        `FabricModel(save_to_onnx=True)` needs neither a subclass nor a shape.
        """
        epochs = self.params["epochs"]
        self.log_message(f"on_epoch_end, epoch={epoch}, total_epochs={epochs}, save_model={save_model}")
        if epoch != epochs - 1:
            return
        self.log_message(f"Train finished. Time cost: {(time.time() - self.start_time) / 60:.2f} minutes")
        if save_model:
            self.log_message(f"Model saved in path: {self._export()}")

    def _export(self) -> str:
        import torch  # the rest of this file must work without torch

        os.makedirs(self.output_model_path, exist_ok=True)
        path = os.path.join(self.output_model_path, "trained_model.onnx")
        example = torch.zeros(self.example_shape, device=next(self.model.parameters()).device)
        # The export must not record dropout, and the caller's training mode comes back whatever happens.
        self.model.eval()
        try:
            torch.onnx.export(self.model, (example,), path, dynamo=True, external_data=False, verbose=False)
        finally:
            self.model.train()
        return path
