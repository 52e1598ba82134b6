"""Write metrics of a job as a JSON object per line, in the format WMLA's tools read.

This module owns the file `evaluation-metrics.txt` in the log folder and, for sub-trainings, `val_dict_list.json` in the
result folder. It uses the standard library only, because it is also packed into submissions. So the rule for the log
folder is repeated in `elog.py`. Every record is on disk when `record` returns.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any, TextIO

_FILE = "evaluation-metrics.txt"
_HISTORY_FILE = "val_dict_list.json"
_INTEGER, _FLOAT = 2, 3


class EMetrics:
    """Appends to a metrics file. Create it with `EMetrics.open()`, best as a context manager.

    Attributes:
        rIndex: 1, written into each record.
        test_history: test records of a sub-training, for its search.
    """

    TEST_GROUP = "test"
    TRAIN_GROUP = "train"

    def __init__(self, subId: str | None, f: TextIO) -> None:
        self.subId = subId
        self.f = f
        self.trainingId = os.environ.get("TRAINING_ID", "")
        self.rIndex = 1
        self.test_history: list[dict[str, Any]] = []

    @staticmethod
    def open(subId: str | None = None) -> EMetrics:
        """Open the metrics file below $LOG_DIR, else $JOB_STATE_DIR/logs, else /tmp.

        `subId`, the id of a sub-training in a hyper-parameter search, names a sub-folder and is in each record.
        """
        folder = os.path.join(_log_folder(), str(subId)) if subId else _log_folder()
        os.makedirs(folder, exist_ok=True)
        # Append mode: each record goes to the end of the file, also when several processes write.
        return EMetrics(subId, open(os.path.join(folder, _FILE), "a", encoding="utf-8"))

    def __enter__(self) -> EMetrics:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def record(self, group: str, iteration: int, values: Mapping[str, Any]) -> None:
        """Append a record.

        Args:
            group: EMetrics.TEST_GROUP, EMetrics.TRAIN_GROUP or a name of your own.
            iteration: the step of these values.
            values: name → value. Python ints (including bools) and floats keep their type in the file, other values
                become text.
        """
        now = time.time()
        meta: dict[str, Any] = {"training_id": self.trainingId, "time": int(now * 1000), "rindex": self.rIndex}
        if self.subId:
            meta["subid"] = str(self.subId)
        # The part after the dot is the time in whole seconds since the epoch, as in WMLA's files.
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now)) + f".{int(now)}"
        line = {
            "meta": meta,
            "grouplabel": group,
            "etimes": {"iteration": _typed(iteration), "time_stamp": _typed(stamp)},
            "values": {name: _typed(value) for name, value in values.items()},
        }
        self.f.write(json.dumps(line) + "\n")
        self.f.flush()
        if group == self.TEST_GROUP and self.subId:
            self.test_history.append({"steps": iteration, **values})

    def close(self) -> None:
        """Close the file. For a sub-training, also write its test records for the search."""
        # close() may be called within a `with` block, which then closes again.
        if self.f.closed:
            return
        self.f.close()
        if self.subId:
            with open(os.path.join(os.environ.get("RESULT_DIR") or "/tmp", _HISTORY_FILE), "w") as history:
                json.dump(self.test_history, history)


def _log_folder() -> str:
    state = os.environ.get("JOB_STATE_DIR")
    return os.environ.get("LOG_DIR") or (os.path.join(state, "logs") if state else "/tmp")


def _typed(value: object) -> dict[str, Any]:
    # A bool is an int in Python, so WMLA's tools get {"type": 2, "value": "True"}.
    if isinstance(value, int):
        return {"type": _INTEGER, "value": str(value)}
    if isinstance(value, float):
        return {"type": _FLOAT, "value": str(value)}
    return {"value": str(value)}
