"""The callbacks packed into submissions: which record goes where."""

import json
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator


def test_a_train_call_is_one_test_record_and_one_train_line(job, noon, lines):
    logger = job.edtcallback.EDTLoggerCallback()
    logger.log_train_metrics(0.5, 25.0, 3, worker=1)
    logger.log_train_metrics(0.25, 50.0, 0)
    records = [json.loads(line) for line in lines("evaluation-metrics.txt")]
    assert [r["grouplabel"] for r in records] == ["test", "test"]
    assert [r["etimes"]["iteration"]["value"] for r in records] == ["3", "0"]
    assert records[0]["values"] == {"loss": {"type": 3, "value": "0.5"}, "accuracy": {"type": 3, "value": "0.25"}}
    head = "[2021-03-04 12:00:00] Train,\tTimestamp: 1614877200250,\t"
    assert lines("stdout") == [
        head + "Global steps: 1,\tIteration: 3,\tLoss: 0.5,\tAccuracy: 0.25",
        head + "Global steps: 2,\tIteration: 0,\tLoss: 0.25,\tAccuracy: 0.5",
    ]


def test_a_test_call_is_one_test_line_only(job, noon, lines, tmp_path):
    job.edtcallback.EDTLoggerCallback().log_test_metrics(0.5, 25.0, 3)
    assert lines("stdout") == ["[2021-03-04 12:00:00] Test,\tTimestamp: 1614877200250,\tLoss: 0.5,\tAccuracy: 0.25"]
    assert not (tmp_path / "log" / "evaluation-metrics.txt").exists()


def test_at_the_end_the_training_losses_are_there_for_a_search(job, tmp_path):
    logger = job.edtcallback.EDTLoggerCallback()
    logger.log_train_metrics(0.5, 1.0, 2)
    logger.log_train_metrics(0.25, 1.0, 0)
    logger.on_train_end()
    assert (tmp_path / "result" / "val_dict_list.json").read_text() == (
        '[{"steps": 1, "loss": 0.5}, {"steps": 2, "loss": 0.25}]'
    )


def test_it_is_a_logger_callback_with_every_hook(job):
    logger = job.edtcallback.EDTLoggerCallback()
    assert isinstance(logger, job.callbacks.LoggerCallback)
    logger.on_train_begin()


def _train_callback(job, epochs):
    callback = job.edtcallback.EDTTrainCallback("/models")
    callback.params = {"epochs": epochs, "optimizer": SimpleNamespace()}
    return callback


def test_the_train_callback_writes_one_line_an_epoch_and_the_time_at_the_end(job, noon, lines):
    callback = _train_callback(job, 2)
    callback.on_epoch_end(0)
    callback.on_epoch_end(1)
    assert [line.split("] ", 1)[1] for line in lines("stdout")] == [
        "on_epoch_end, epoch=0, total_epochs=2, save_model=False",
        "on_epoch_end, epoch=1, total_epochs=2, save_model=False",
        "Train finished. Time cost: 0.00 minutes",
    ]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_subclass_may_have_the_model_exported_after_the_last_epoch(job, noon, lines, tmp_path):
    callback = job.edtcallback.EDTTrainCallback(str(tmp_path / "model"), example_shape=(1, 3))
    callback.params = {"epochs": 2, "optimizer": SimpleNamespace()}
    callback.model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout())
    callback.on_epoch_end(0, save_model=True)
    assert not (tmp_path / "model").exists()
    callback.on_epoch_end(1, save_model=True)
    path = tmp_path / "model" / "trained_model.onnx"
    assert lines("stdout")[-1] == f"[2021-03-04 12:00:00] Model saved in path: {path}"
    assert callback.model.training
    x = torch.rand(1, 3)
    (y,) = ReferenceEvaluator(str(path)).run(None, {onnx.load(path).graph.input[0].name: x.numpy()})
    np.testing.assert_allclose(y, callback.model[0](x).detach(), rtol=1e-4, atol=1e-6)
