"""The callbacks that WMLA's sample models ship beside their main file: progress to ELog, metrics to EMetrics.

Packed into every submission whose source has none of its own. It needs `callbacks` and the standard library only.
Both files are opened anew for every record, so that nothing is lost with a killed process and several may write.
"""

from __future__ import annotations

import json
import os
import time

from callbacks import Callback, LoggerCallback
from elog import ELog
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    """A `driver_logger` that records each finished batch, and at the end what a hyper-parameter search reads.

    Accuracies arrive as the engine delivers them and are divided by 100 here, as in WMLA's own samples.
    """

    def __init__(self) -> None:
        self.gs = 0
        self._losses: list[dict[str, float]] = []

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """One training batch is finished; `completed_batch` counts within the epoch, over all workers."""
        acc = acc / 100
        self.gs += 1
        self._losses.append({"steps": self.gs, "loss": loss})
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TEST_GROUP, completed_batch, {"loss": loss, "accuracy": acc})
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self.gs, loss, acc, worker)

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """A validation is finished."""
        with ELog.open() as log:
            log.recordTest("Test", loss, acc / 100, worker)

    def on_train_end(self) -> None:
        """Write $RESULT_DIR/val_dict_list.json; KeyError where RESULT_DIR is not set, which is outside a job."""
        with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as file:
            json.dump(self._losses, file)


class EDTTrainCallback(Callback):
    """A `user_callback` that writes a line to ELog after each epoch, and the training's duration after the last.

    Args:
        output_model_path: where an export of the model would be written.
    """

    def __init__(self, output_model_path: str) -> None:
        super().__init__()
        self.output_model_path = output_model_path
        self._start = time.time()

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        """`epoch` counts from 0. NotImplementedError for `save_model`, which the engine never asks for."""
        epochs = self.params["epochs"]
        with ELog.open() as log:
            log.recordText(f"on_epoch_end, epoch={epoch}, total_epochs={epochs}, save_model={save_model}")
            if epoch == epochs - 1:
                minutes = (time.time() - self._start) / 60
                log.recordText(f"Train finished. Time cost: {minutes:.2f} minutes")
        if save_model:
            raise NotImplementedError(
                "Export to ONNX is not built yet. The trained weights are in $SAVED_MODEL_DIR/train as .pth files."
            )
