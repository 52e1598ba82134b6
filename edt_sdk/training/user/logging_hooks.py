"""Deliver recorded metrics to WMLA's logger callbacks, and print what a job's log has of its training.

Two families of loggers share the names of their hooks and differ in arguments: `driver_logger`/`worker_logger` (WMLA
1.2–2.x, `LoggerCallback`) and `driver_logger_callback`/`worker_logger_callback` (WMLA 4–5). The driver's loggers get
the lines of the metrics file, in order and each line once. A worker's loggers get its own results. A user's logger
replaces the default, which prints: the lines of WMLA's engine for every micro-batch, or in a quiet job `ProgressLines`
in the driver and nothing in workers. Every value passed is a plain Python number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edt_sdk.callbacks import LoggerCallback
from edt_sdk.training.records.recorder import MetricLine, TrainLine, epoch_behind
from edt_sdk.training.user.progress_lines import ProgressLines

START = "--------START TRAINING--------"
NAN = float("nan")


class PrintingLogger(LoggerCallback):
    """Prints the lines of WMLA's engine. The driver's default, except in a quiet job."""

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Print two lines for each finished micro-batch."""
        _print_tags(completed_batch, "train", loss, acc)

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Print two lines for each validation."""
        _print_tags(completed_batch, "test", loss, acc)


@dataclass(slots=True)
class RunningEpoch:
    """Accumulates the numbers of an epoch so far in the units of WMLA 1.2.

    The running loss is the sum of the batches' mean losses over the number of samples, as in WMLA's logs (2.3 with a
    batch of 64 is 0.036). Accuracy is a fraction.
    """

    epoch: int
    batches: int = 0
    samples: int = 0
    _loss: float = 0.0
    _right: float = 0.0

    def add(self, loss: float | None, accuracy: float | None, samples: int) -> None:
        """Add a finished micro-batch."""
        self.batches += 1
        self.samples += samples
        # The log stores NaN as null (`recorder.py`), and the running loss must show it.
        self._loss += NAN if loss is None else loss
        self._right += (accuracy or 0.0) * samples

    @property
    def loss(self) -> float:
        """Return the sum of mean losses ÷ samples."""
        return self._loss / self.samples

    @property
    def accuracy(self) -> float:
        """Return right answers ÷ samples."""
        return self._right / self.samples


class EpochMeans:
    """Accumulates means over the samples of an epoch so far, by name."""

    def __init__(self) -> None:
        self._samples = 0
        self._sums: dict[str, float] = {}

    def add(self, values: dict[str, float | None], samples: int) -> dict[str, float]:
        """Add the means of an update and return those of the epoch so far."""
        self._samples += samples
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + (NAN if value is None else value) * samples
        return {name: total / self._samples for name, total in self._sums.items()}


class DriverLoggers:
    """Calls the user's `driver_logger` and `driver_logger_callback`. Either may be None.

    `lines` are a quiet job's. None prints the lines of WMLA's engine.
    """

    def __init__(self, logger: Any, logger_callback: Any, lines: ProgressLines | None = None) -> None:
        default = logger is None and logger_callback is None
        self._quiet = lines is not None
        self._lines = lines if default else None
        self._old = PrintingLogger() if default and lines is None else logger
        self._new = logger_callback
        self._recalls = False
        self._running = RunningEpoch(0)
        self._means = EpochMeans()
        self._batches = 0
        self._started = 0.0

    def begin(self) -> None:
        """Call `on_train_begin`, before the first metric."""
        self._started = time.monotonic()
        if self._lines is not None:
            self._lines.begin()
        if not self._quiet:
            print(START, flush=True)
        call_all((self._old, self._new), "on_train_begin")

    def deliver(self, line: MetricLine) -> None:
        """Pass one line of the metrics file to every logger."""
        if isinstance(line, TrainLine):
            self._train(line)
            return
        if not line.drawn:
            return  # a script's loop has no loggers, and the lines of its log show one of its evaluations
        loss = NAN if line.loss is None else line.loss
        call(self._old, "log_test_metrics", loss, line.accuracy or 0.0, self._running.batches)
        call(self._new, "log_test_metrics", _numbers(line.loss, line.accuracy, line.metrics), 0, line.epoch)
        if self._lines is not None:
            self._print(self._lines.test(line))

    def recall(self, line: MetricLine) -> None:
        """Add a line to the sums without calling a logger: the previous driver, now dead, has delivered it."""
        # Without loggers, `deliver` only adds to the sums.
        loggers = self._old, self._new
        self._old, self._new, self._recalls = None, None, True
        self.deliver(line)
        self._old, self._new, self._recalls = *loggers, False

    def end(self, epochs: int) -> None:
        """Call `on_train_end`, after the last metric."""
        if self._lines is not None:
            self._print(self._lines.end())
        call_all((self._old, self._new), "on_train_end")
        if self._quiet:
            return
        seconds = time.monotonic() - self._started
        print(f"--------END TRAINING: completed epoch {epochs} in time {seconds:.2f} --------", flush=True)

    def _train(self, line: TrainLine) -> None:
        if line.epoch != self._running.epoch:
            self._running, self._means = RunningEpoch(line.epoch), EpochMeans()
        filled = [number for number, (_, _, samples) in enumerate(line.shards) if samples]
        closes_epoch = epoch_behind(line) > line.epoch
        for number in filled:
            loss, accuracy, samples = line.shards[number]
            self._running.add(loss, accuracy, samples)
            completed = 0 if closes_epoch and number == filled[-1] else self._running.batches + 1
            worker = line.workers[number] if line.workers else 0
            call(self._old, "log_train_metrics", self._running.loss, self._running.accuracy, completed, worker)
        self._batches += len(filled)
        values: dict[str, float | None] = {"loss": line.loss, **line.metrics}
        if line.accuracy is not None:
            values["accuracy"] = line.accuracy
        means = self._means.add(values, line.samples)
        call(self._new, "log_train_metrics", means, self._batches, line.epoch, line.world)
        if self._lines is not None:
            self._print(self._lines.train(line, means))

    def _print(self, text: str) -> None:
        if text and not self._recalls:
            print(text, flush=True)


class WorkerLoggers:
    """Calls the user's `worker_logger` and `worker_logger_callback` with a worker's own results, batch by batch.

    `quiet` prints nothing of the engine's.
    """

    def __init__(self, worker: int, logger: Any, logger_callback: Any, *, quiet: bool = False) -> None:
        self._worker = worker
        self._quiet = quiet
        self._prints = not quiet and logger is None and logger_callback is None
        self._old = logger
        self._new = logger_callback
        self._running = RunningEpoch(0)
        self._batches = 0
        self._test_batches = 0

    def begin(self) -> None:
        """Call `on_train_begin`, before the first metric."""
        if not self._quiet:
            print(START, flush=True)
        call_all((self._old, self._new), "on_train_begin")

    def train(
        self, epoch: int, world: int, loss: float, accuracy: float | None, samples: int, metrics: dict[str, float]
    ) -> None:
        """Log a committed micro-batch of this worker with its own mean loss, accuracy and metrics."""
        if epoch != self._running.epoch:
            self._running = RunningEpoch(epoch)
        self._batches += 1
        self._running.add(loss, accuracy, samples)
        if self._prints:
            stamp = time.time_ns() // 1_000_000
            print(f"Timestamp {stamp}, Iteration {self._batches}\nbatches :{self._batches} {loss:.5f}", flush=True)
        call(self._old, "log_train_metrics", loss, self._running.accuracy, self._batches, self._worker)
        call(self._new, "log_train_metrics", _numbers(loss, accuracy, metrics), self._batches, epoch, world)

    def test(self, epoch: int, loss: float, accuracy: float | None, metrics: dict[str, float]) -> None:
        """Log a micro-batch of a validation by this worker."""
        self._test_batches += 1
        call(self._old, "log_test_metrics", loss, accuracy or 0.0, self._test_batches, self._worker)
        call(self._new, "log_test_metrics", _numbers(loss, accuracy, metrics), self._test_batches, epoch)

    def end(self) -> None:
        """Call `on_train_end` when the worker leaves or the training is over."""
        call_all((self._old, self._new), "on_train_end")
        if not self._quiet:
            print(f"--------END TRAINING: completed {self._batches} iterations --------", flush=True)


def call(target: Any, hook: str, *arguments: Any) -> None:
    """Call a hook if the user's object has it. Errors pass through."""
    method = getattr(target, hook, None)
    if method is not None:
        method(*arguments)


def call_all(targets: Sequence[Any], hook: str, *arguments: Any) -> None:
    """Call a hook of several objects, in order."""
    for target in targets:
        call(target, hook, *arguments)


def _numbers(loss: float | None, accuracy: float | None, metrics: dict[str, Any]) -> dict[str, float]:
    values = {"loss": loss, **({} if accuracy is None else {"accuracy": accuracy}), **metrics}
    return {name: NAN if value is None else value for name, value in values.items()}


def _print_tags(iteration: int, group: str, loss: float, accuracy: float) -> None:
    print(
        f"Iteration {iteration}: tag {group}_accuracy, simple_value {accuracy:.5f}\n"
        f"Iteration {iteration}: tag {group}_loss, simple_value {loss:.5f}",
        flush=True,
    )
