"""The folder's own loggers, for searches too: the training loss of every batch is left in val_dict_list.json."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))

from callbacks import LoggerCallback
from elog import ELog
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    def __init__(self):
        self.gs = 0
        self.history = []

    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        self.gs += 1
        self.history.append({"steps": self.gs, "loss": loss})
        with EMetrics.open() as em:
            em.record(EMetrics.TEST_GROUP, completed_batch, {"loss": loss, "accuracy": acc / 100.0})
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self.gs, loss, acc / 100.0, worker)

    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        with ELog.open() as log:
            log.recordTest("Test", loss, acc / 100.0, worker)

    def on_train_end(self):
        with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as out:
            json.dump(self.history, out)
        print("history of", os.environ["LOG_DIR"].rsplit("/", 1)[1])
