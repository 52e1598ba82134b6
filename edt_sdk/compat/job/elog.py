"""Write the job's log of training progress, in the text format that WMLA's notebooks parse.

This module owns the file `stdout` in the driver's log folder. The server returns exactly this file as the job's log. It
uses the standard library only, because it is also packed into submissions. So the rule for the log folder is repeated
in `emetrics.py`. Every line is on disk when its method returns.
"""

from __future__ import annotations

import os
import time
from typing import TextIO

_FILE = "stdout"
_DIGITS = 5


class ELog:
    """Appends to a log file. Create it with `ELog.open()`, best as a context manager."""

    def __init__(self, subId: str | None, f: TextIO) -> None:
        self.subId = subId
        self.f = f
        self.trainingId = os.environ.get("TRAINING_ID") or os.environ.get("DLI_EXECID") or ""

    @staticmethod
    def open(subId: str | None = None) -> ELog:
        """Open the log below $LOG_DIR, else $JOB_STATE_DIR/logs, else /tmp. `subId` names a sub-folder."""
        folder = os.path.join(_log_folder(), str(subId)) if subId else _log_folder()
        os.makedirs(folder, exist_ok=True)
        # Append mode: each record goes to the end of the file, also when several processes write.
        return ELog(subId, open(os.path.join(folder, _FILE), "a", encoding="utf-8"))

    def __enter__(self) -> ELog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def recordText(self, text: str) -> None:
        """Append the local time and `text`."""
        self._write(time.time(), text)

    def recordTrain(
        self, title: str, iteration: int, global_steps: int, loss: float, accuracy: float, worker: int = 0
    ) -> None:
        """Append the metrics of a finished batch. `worker` is accepted and not printed."""
        steps = f"\tGlobal steps: {global_steps},\tIteration: {iteration},"
        self._metrics(title, steps, loss, accuracy)

    def recordTest(self, title: str, loss: float, accuracy: float, worker: int = 0) -> None:
        """Append the metrics of a validation. `worker` is accepted and not printed."""
        self._metrics(title, "", loss, accuracy)

    def close(self) -> None:
        """Close the file."""
        self.f.close()

    def _metrics(self, title: str, steps: str, loss: float, accuracy: float) -> None:
        now = time.time()
        loss, accuracy = round(float(loss), _DIGITS), round(float(accuracy), _DIGITS)
        # Rounded to the nearest millisecond, where EMetrics truncates. Both match WMLA.
        stamp = round(now * 1000)
        self._write(now, f"{title},\tTimestamp: {stamp},{steps}\tLoss: {loss},\tAccuracy: {accuracy}")

    def _write(self, now: float, text: str) -> None:
        self.f.write(time.strftime("[%Y-%m-%d %H:%M:%S] ", time.localtime(now)) + text + "\n")
        self.f.flush()


def _log_folder() -> str:
    state = os.environ.get("JOB_STATE_DIR")
    return os.environ.get("LOG_DIR") or (os.path.join(state, "logs") if state else "/tmp")
