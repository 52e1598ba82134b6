"""The base classes of callbacks and loggers in model code.

They hold no state and define every hook as a no-op: subclasses in existing model code often neither call
`super().__init__()` nor define more than two of the hooks. `edt_sdk.training.user.hooks` calls the callbacks on rank 0,
and `edt_sdk.training.user.logging_hooks` calls the loggers.
"""

from __future__ import annotations

from typing import Any


class Callback:
    """Hooks around the epochs and after the updates of a training. One instance runs, on rank 0.

    Attributes:
        params: `{"optimizer": the optimizer, "epochs": how many, "loss": mean loss of the last update, "test_loss": of
            the last validation}`, set before each hook. Losses are None before the first. A hook that changes
            `params["optimizer"].param_groups[i]["lr"]`, or another number there, changes it for all workers.
        model: the module that is trained, set before the first hook.

    The object moves between processes when rank 0 leaves the job or is lost, so its attributes should pickle. Where
    they do not, a line in the log reports it, and the next rank 0 continues with the object as it was given.
    """

    params: dict[str, Any]
    model: Any

    def on_train_begin(self) -> None:
        """Before the first epoch."""

    def on_train_end(self) -> None:
        """After the last epoch, before the final files are written."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Run before an epoch. `epoch` counts from 0."""

    def on_update_end(self, update: int) -> None:
        """Run after an update, such as one of a moving average of the weights. `update` counts from 0.

        A subclass that defines it has its state pickled after each update, and sent to the other workers where it has
        changed, so that it survives the loss of rank 0.
        """

    def on_epoch_end(self, epoch: int) -> None:
        """Run after an epoch and its validation, before its checkpoint. `epoch` counts from 0."""


class LoggerCallback:
    """Receives metrics: as `driver_logger` in the driver, as `worker_logger` in each worker.

    All values are plain Python numbers.
    """

    def on_train_begin(self) -> None:
        """Before the first metric."""

    def on_train_end(self) -> None:
        """After the last metric, before `train()` returns."""

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Called once for every finished micro-batch, in order.

        Args:
            loss: running value of the epoch: the sum of the batches' mean losses over the number of samples so far.
            acc: running fraction (0 … 1) of right answers in the epoch. 0.0 where labels are not classes.
            completed_batch: for the k-th micro-batch of an epoch k + 1, and 0 for its last one, as WMLA 1.2 counted.
            worker: number of the worker that computed it.
        """

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Called once for every validation: mean loss and fraction of right answers over the whole test set."""
