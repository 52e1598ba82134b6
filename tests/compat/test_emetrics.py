"""Byte for byte what WMLA's tools read from evaluation-metrics.txt."""

import json

import numpy as np
import pytest

FILE = "evaluation-metrics.txt"
STAMP = '{"value": "2021-03-04T12:00:00.1614877200"}'


def test_a_record_is_this_very_line(job, noon, lines):
    with job.emetrics.EMetrics.open() as metrics:
        metrics.record(metrics.TEST_GROUP, 7, {"loss": 0.25, "accuracy": 1, "note": "é"})
    assert lines(FILE) == [
        '{"meta": {"training_id": "", "time": 1614877200250, "rindex": 1}, "grouplabel": "test", '
        '"etimes": {"iteration": {"type": 2, "value": "7"}, "time_stamp": ' + STAMP + "}, "
        '"values": {"loss": {"type": 3, "value": "0.25"}, "accuracy": {"type": 2, "value": "1"}, '
        '"note": {"value": "\\u00e9"}}}'
    ]


def test_ids_of_training_and_sub_training(job, noon, lines, monkeypatch):
    monkeypatch.setenv("TRAINING_ID", "t-1")
    with job.emetrics.EMetrics.open("3") as metrics:
        metrics.record(metrics.TRAIN_GROUP, 0, {})
    assert lines("3/" + FILE) == [
        '{"meta": {"training_id": "t-1", "time": 1614877200250, "rindex": 1, "subid": "3"}, "grouplabel": "train", '
        '"etimes": {"iteration": {"type": 2, "value": "0"}, "time_stamp": ' + STAMP + '}, "values": {}}'
    ]


def test_records_are_on_disk_before_close_and_appended(job, lines):
    first, second = job.emetrics.EMetrics.open(), job.emetrics.EMetrics.open()
    first.record("test", 1, {})
    second.record("test", 2, {})
    first.record("test", 3, {})
    assert [json.loads(line)["etimes"]["iteration"]["value"] for line in lines(FILE)] == ["1", "2", "3"]
    first.close()
    second.close()


def test_only_real_numbers_are_typed(job, lines):
    with job.emetrics.EMetrics.open() as metrics:
        metrics.record("test", 1, {"flag": True, "nothing": None, "small": 1e-9, "exact": np.float32(0.5)})
    assert json.loads(lines(FILE)[0])["values"] == {
        "flag": {"type": 2, "value": "True"},  # as in WMLA's own: isinstance(True, int)
        "nothing": {"value": "None"},
        "small": {"type": 3, "value": "1e-09"},
        "exact": {"value": "0.5"},
    }


def test_a_sub_training_leaves_its_test_records_for_the_search(job, tmp_path):
    history = tmp_path / "result" / "val_dict_list.json"
    history.write_text("of an earlier run")
    with job.emetrics.EMetrics.open("1") as metrics:
        metrics.record(metrics.TEST_GROUP, 5, {"loss": 0.5})
        metrics.record(metrics.TRAIN_GROUP, 6, {"loss": 0.4})
        metrics.record(metrics.TEST_GROUP, 10, {"loss": 0.25, "accuracy": 0.9})
    assert history.read_text() == '[{"steps": 5, "loss": 0.5}, {"steps": 10, "loss": 0.25, "accuracy": 0.9}]'


def test_without_a_sub_training_no_history_is_written(job, tmp_path):
    with job.emetrics.EMetrics.open() as metrics:
        metrics.record(metrics.TEST_GROUP, 5, {"loss": 0.5})
    assert not (tmp_path / "result" / "val_dict_list.json").exists()


def test_the_folder_comes_from_log_dir_then_job_state_dir(job, tmp_path, monkeypatch):
    monkeypatch.setenv("JOB_STATE_DIR", str(tmp_path / "state"))
    job.emetrics.EMetrics.open().close()
    assert (tmp_path / "log" / FILE).exists()
    monkeypatch.delenv("LOG_DIR")
    job.emetrics.EMetrics.open().close()
    assert (tmp_path / "state" / "logs" / FILE).exists()


def test_the_names_that_model_code_may_look_at(job, monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINING_ID", "t")
    with open(tmp_path / "f", "w") as file, job.emetrics.EMetrics("2", file) as metrics:
        assert (metrics.subId, metrics.f, metrics.trainingId, metrics.rIndex, metrics.test_history) == (
            "2", file, "t", 1, [],
        )  # fmt: skip
        metrics.record("test", 1, {"loss": 1})
        assert metrics.test_history == [{"steps": 1, "loss": 1}]


def test_a_number_may_name_the_sub_training(job, tmp_path):
    """The oldest copy of this module is called like that by its own example."""
    with job.emetrics.EMetrics.open(1) as metrics:
        metrics.record(metrics.TEST_GROUP, 1, {"accuracy": 0.6})
    record = json.loads((tmp_path / "log" / "1" / FILE).read_text())
    assert record["meta"]["subid"] == "1"


# Like the first copy that model folders of WMLA 1.2 carry: it makes no folder, and always leaves its history.
OLDEST = """
import json, os
class EMetrics:
    TEST_GROUP = "test"
    def __init__(self, f):
        self.f, self.history = f, []
    @staticmethod
    def open(subId=None):
        return EMetrics(open(os.path.join(os.environ["LOG_DIR"], "evaluation-metrics.txt"), "a"))
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.f.close()
        with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as out:
            json.dump(self.history, out)
    def record(self, group, iteration, values):
        self.history.append({"steps": iteration, **values})
        self.f.write("mine\\n")
"""


def test_a_copy_in_the_submitted_folder_is_the_one_that_is_imported(job, lines, tmp_path, monkeypatch):
    (tmp_path / "log").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "emetrics.py").write_text(OLDEST)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    logger = job.edtcallback.EDTLoggerCallback()
    logger.log_train_metrics(0.5, 0.5, 2)
    assert lines(FILE) == ["mine"]
    assert (tmp_path / "result" / "val_dict_list.json").read_text() == '[{"steps": 2, "loss": 0.5, "accuracy": 0.005}]'


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -0.0])
def test_no_number_is_too_odd_to_be_recorded(job, lines, loss):
    with job.emetrics.EMetrics.open() as metrics:
        metrics.record("train", 1, {"loss": loss})
    assert json.loads(lines(FILE)[0])["values"]["loss"] == {"type": 3, "value": str(loss)}
