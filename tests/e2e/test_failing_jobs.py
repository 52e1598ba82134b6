"""What a user gets wrong, and processes that die: a clear end, the last words, and nothing left behind."""

from __future__ import annotations

import sys

import psutil
import pytest

from edt_sdk import Job, JobFailed
from tests.e2e.harness import Jobs
from tests.waiting import until


def nothing_left(jobs: Jobs, job: Job) -> None:
    """No process of the job and no slot in its name."""
    until(lambda: not processes_of(job), "the job's last process to end")
    assert all(slot["job"] != job.id for slot in jobs.client.cluster()["slots"])


def processes_of(job: Job) -> list[psutil.Process]:
    """Processes that carry the job's id in their command line or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            text = " ".join(process.cmdline()) + process.environ().get("EDT_JOB", "")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if job.id in text:
            found.append(process)
    return found


@pytest.mark.parametrize(
    ("main", "said"),
    [
        pytest.param("raising_dataset.py", "the disk with the images is gone", marks=pytest.mark.long),
        pytest.param("never_trains.py", "train()", marks=pytest.mark.long),
        pytest.param("unpicklable_model.py", "model.handle", marks=pytest.mark.long),
        pytest.param("raising_getitem.py", "sample 13 is broken", marks=pytest.mark.long),
        ("raising_script.py", "ZeroDivisionError"),
        (
            "wrong_shape.py",
            "in layer model[1], Linear(in_features=64, out_features=2, bias=True), which got a tensor of 2×32. "
            "The model is the one of the train() call in wrong_shape.py, line 13.",
        ),
        ("missing_module.py", f"{sys.executable} -m pip install albumentationz"),
    ],
)
def test_a_mistake_ends_the_job_with_its_words(four_slots: Jobs, main: str, said: str) -> None:
    job = four_slots.submit(main, max_workers=2)
    with pytest.raises(JobFailed, match=r".") as failed:
        job.wait(300)
    assert job.state == "FAILED"
    assert said in str(failed.value), str(failed.value)
    assert said in job.view.message
    assert "edt_sdk.schemas.errors" not in job.view.message
    nothing_left(four_slots, job)


@pytest.mark.parametrize("where", [pytest.param("driver", marks=pytest.mark.long), "worker"])
def test_the_last_line_before_a_kill_is_in_the_log(four_slots: Jobs, where: str) -> None:
    job = four_slots.submit("last_words.py", where, max_workers=1)
    with pytest.raises(JobFailed):
        job.wait(300)
    lines = job.logs(stream="stdout" if where == "driver" else "worker")
    assert f"last words of the {where}, without a newline" in str(lines)
    assert f"and on stderr of the {where}" in str(job.logs())
    nothing_left(four_slots, job)


def test_every_line_of_every_process_is_in_the_log(four_slots: Jobs) -> None:
    job = four_slots.submit("talkative.py", max_workers=2).wait(300)
    text = str(job.logs())
    for line in [f"driver line {n}" for n in range(500)]:
        assert line in text
    trained = {worker for event in job.story() if event.kind == "generation" for worker in event.data["workers"]}
    assert trained
    for worker in trained:
        assert "worker opens the data set" in str(job.logs(stream="worker", worker=worker))
    assert "Train," in str(job.logs(stream="elog"))
