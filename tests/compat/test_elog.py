"""Byte for byte what WMLA's notebooks parse from the job's log."""

import io
import time

import pytest


def test_train_test_and_text_lines(job, noon, lines):
    with job.elog.ELog.open() as log:
        log.recordTrain("Train", 7, 12, 0.1134996, 0.00006, 0)
        log.recordTest("Test", 0.5, 1, 0)
        log.recordText("hello")
    assert lines("stdout") == [
        "[2021-03-04 12:00:00] Train,\tTimestamp: 1614877200250,\tGlobal steps: 12,\tIteration: 7,"
        "\tLoss: 0.1135,\tAccuracy: 6e-05",
        "[2021-03-04 12:00:00] Test,\tTimestamp: 1614877200250,\tLoss: 0.5,\tAccuracy: 1.0",
        "[2021-03-04 12:00:00] hello",
    ]


def test_the_columns_that_notebooks_pick(job, noon, lines):
    """They replace every colon by a comma and read the columns 4, 6, 8, 10 and 12."""
    with job.elog.ELog.open() as log:
        log.recordTrain("Train", 7, 12, 0.25, 0.5, 3)
    columns = io.StringIO(lines("stdout")[0].replace(":", ",")).getvalue().split(",")
    assert [columns[i].strip() for i in (4, 6, 8, 10, 12)] == ["1614877200250", "12", "7", "0.25", "0.5"]


def test_lines_are_on_disk_before_close_and_appended(job, lines):
    first, second = job.elog.ELog.open(), job.elog.ELog.open()
    first.recordText("1")
    second.recordText("2")
    first.recordText("3")
    assert [line.rsplit("] ")[1] for line in lines("stdout")] == ["1", "2", "3"]
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, ""), ({"DLI_EXECID": "e"}, "e"), ({"DLI_EXECID": "e", "TRAINING_ID": "t"}, "t")],
)
def test_ids_are_kept_and_not_printed(job, monkeypatch, lines, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with job.elog.ELog.open("s1") as log:
        log.recordText("x")
    assert (log.trainingId, log.subId) == (expected, "s1")
    assert lines("s1/stdout")[0].endswith("] x")


def test_the_folder_comes_from_log_dir_then_job_state_dir(job, tmp_path, monkeypatch):
    monkeypatch.setenv("JOB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("LOG_DIR")
    job.elog.ELog.open().close()
    assert (tmp_path / "state" / "logs" / "stdout").exists()


def test_a_time_stamp_is_rounded_to_the_nearest_millisecond(job, noon, lines):
    # A context of its own: `monkeypatch` is undone behind `noon`, and would bring noon back, for all tests to come.
    with pytest.MonkeyPatch.context() as patch, job.elog.ELog.open() as log:
        patch.setattr(time, "time", lambda: 1614877200.2509)
        log.recordTest("Test", 1, 1, 0)
    assert "Timestamp: 1614877200251," in lines("stdout")[0]


def read_as_the_notebooks_do(text, pd):
    """Their own steps: colons become commas, five columns are picked and named, milliseconds become times."""
    frame = pd.read_csv(io.StringIO(text.replace(":", ",")), header=None)
    frame = frame[[4, 6, 8, 10, 12]]
    frame.columns = ["timestamp", "global_steps", "iteration", "loss", "accuracy"]
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="ms")
    return frame


def test_pandas_reads_the_log_as_a_table(job, noon, tmp_path):
    import pandas as pd

    with job.elog.ELog.open() as log:
        for step, loss, accuracy in ((1, 2.3, 0.0), (2, 0.0000601, 0.1135), (3, 1e9, 1)):
            log.recordTrain("Train", step + 1, step, loss, accuracy, 0)
        log.recordTest("Test", 0.5, 0.25, 0)
    frame = read_as_the_notebooks_do((tmp_path / "log" / "stdout").read_text(), pd)
    assert frame["timestamp"].tolist() == [pd.Timestamp("2021-03-04 17:00:00.25")] * 4
    train = frame[:3]
    assert train["global_steps"].astype(int).tolist() == [1, 2, 3]
    assert train["iteration"].astype(int).tolist() == [2, 3, 4]
    assert train["loss"].tolist() == [2.3, 6e-05, 1e9]
    assert train["accuracy"].tolist() == [0.0, 0.1135, 1.0]
    # A validation has no step; its row is told by that.
    assert frame[3:][["loss", "accuracy"]].isna().all().all()
