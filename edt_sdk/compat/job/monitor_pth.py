"""Provide `monitor_pth` for console-managed models of WMLA: print the lines its progress charts are drawn from.

Each call prints two lines in the engine's format (`edt_sdk.training.user.logging_hooks`). The module uses only its
arguments and does not import torch.
"""

from __future__ import annotations

from typing import Any


class PytorchMonitor:
    """Prints running accuracy and mean loss of an epoch. The constructor's arguments are accepted and ignored."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._batches = 0
        self._epochs = {"train": _Epoch(None), "test": _Epoch(None)}

    def log_train(self, epoch: int, batch_idx: int, batch_size: int, target: Any, loss: Any, output: Any) -> None:
        """Print the figures after a training batch: its mean loss, outputs [n, classes] and labels [n]."""
        self._batches += 1
        self._print("train", epoch, batch_size, target, float(loss), output)

    def log_test(
        self, epoch: int, iteration: int, batch_idx: int, batch_size: int, target: Any, loss: Any, output: Any
    ) -> None:
        """Print the figures after a test batch. `loss` is the sum of the mean losses so far, as in WMLA's samples."""
        # The sum has one mean for each batch so far, this batch included.
        done = self._epochs["test"].batches if self._epochs["test"].epoch == epoch else 0
        self._print("test", epoch, batch_size, target, float(loss) / (done + 1), output)

    def _print(self, group: str, epoch: int, samples: int, target: Any, loss: float, output: Any) -> None:
        if self._epochs[group].epoch != epoch:
            self._epochs[group] = _Epoch(epoch)
        running = self._epochs[group]
        running.batches += 1
        running.samples += samples
        running.right += int((output.argmax(1) == target).sum())
        running.loss += loss
        # WMLA's charts expect a running mean in training, and the mean so far in a test.
        shown = running.loss / running.batches if group == "train" else loss
        print(
            f"Iteration {self._batches}: tag {group}_accuracy, simple_value {running.right / running.samples:.5f}\n"
            f"Iteration {self._batches}: tag {group}_loss, simple_value {shown:.5f}",
            # The charts follow the log, and Python may buffer it.
            flush=True,
        )


class _Epoch:
    def __init__(self, epoch: int | None) -> None:
        self.epoch = epoch
        self.batches = self.samples = self.right = 0
        self.loss = 0.0
