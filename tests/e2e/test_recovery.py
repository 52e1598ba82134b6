"""What people see when something dies, breaks or is suspended; that the bits stay equal, `tests/chaos` shows."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from edt_sdk import EdtError, Job, JobFailed
from edt_sdk.schemas.job import JobState
from tests.chaos import processes
from tests.e2e.harness import Jobs
from tests.waiting import until


def committed(jobs: Jobs, job: Job) -> int:
    commits = jobs.commits(job)
    return commits[-1]["update"] + 1 if commits else 0


def wait_for_updates(jobs: Jobs, job: Job, more: int = 3) -> None:
    goal = committed(jobs, job) + more
    until(lambda: committed(jobs, job) >= goal, f"{more} more updates")


@pytest.mark.long  # server/test_supervisor_deaths.py, chaos/test_short.py
def test_a_killed_worker_is_replaced_and_no_update_is_lost(four_slots: Jobs) -> None:
    job = four_slots.submit("forever.py", name="victim")
    until(lambda: four_slots.worlds(job)[-1:] == [4], "four workers")
    victims = job.workers()[1:3]
    for victim in victims:
        os.kill(victim["pid"], signal.SIGKILL)
    dead = {victim["pid"] for victim in victims}

    def replaced() -> bool:
        workers = job.workers()
        return len(workers) == 4 and all(worker["rank"] is not None and worker["pid"] not in dead for worker in workers)

    until(replaced, "four workers again")
    wait_for_updates(four_slots, job)
    assert [commit["update"] for commit in four_slots.commits(job)] == list(range(committed(four_slots, job)))
    assert not (four_slots.private(job) / "training-0.discarded.jsonl").exists()
    assert sum("SIGKILL" in event.text for event in job.story() if event.kind == "worker_lost") == 2
    assert job.refresh().state is JobState.RUNNING
    job.stop()


@pytest.mark.long
def test_a_stopped_worker_is_found_and_replaced(four_slots: Jobs) -> None:
    job = four_slots.submit("forever.py", name="stopped", max_workers=2)
    until(lambda: four_slots.worlds(job)[-1:] == [2], "two workers")
    victim = job.workers()[1]
    os.kill(victim["pid"], signal.SIGSTOP)
    until(lambda: [e for e in job.story() if e.kind == "worker_lost"], "the loss of the stopped worker")
    wait_for_updates(four_slots, job)
    assert "was stopped" in next(event.text for event in job.story() if event.kind == "worker_lost")
    job.stop()


def test_code_that_fails_again_and_again_ends_the_job_with_its_traceback(four_slots: Jobs, tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    job = four_slots.submit("breaks_later.py", str(flag), max_workers=2)
    wait_for_updates(four_slots, job)
    flag.touch()
    with pytest.raises(JobFailed, match="the disk under sample") as failed:
        job.wait(300)
    assert "tried 3 times" in str(failed.value)
    assert "OSError" in str(failed.value)


def test_a_job_can_be_told_to_stop_at_a_loss_that_is_no_number(four_slots: Jobs, tmp_path: Path) -> None:
    flag = tmp_path / "nan"
    job = four_slots.submit("breaks_later.py", str(flag), "--nan", "stop", max_workers=2)
    wait_for_updates(four_slots, job)
    flag.touch()
    with pytest.raises(JobFailed, match=r"update \d+.*shard"):
        job.wait(300)


@pytest.mark.long
def test_or_to_go_on_and_say_so(four_slots: Jobs, tmp_path: Path) -> None:
    flag = tmp_path / "nan"
    job = four_slots.submit("breaks_later.py", str(flag), "--nan", "warn", max_workers=1)
    wait_for_updates(four_slots, job)
    flag.touch()
    until(lambda: "shard" in str(job.logs(stream="worker")), "a line about the loss")
    wait_for_updates(four_slots, job)
    job.stop()


@pytest.mark.long  # the same over REST: jupyter/api/test_suspension.py; bits: chaos/test_short.py
def test_suspended_a_job_holds_no_slot_and_goes_on_where_it_was(four_slots: Jobs) -> None:
    job = four_slots.submit("forever.py", name="sleeper", max_workers=3)
    until(lambda: four_slots.worlds(job)[-1:] == [3], "three workers")
    job.suspend()
    until(lambda: job.refresh().state is JobState.SUSPENDED, "the suspension")
    assert job.view.slots == 0
    assert job.workers() == []
    assert "resume" in (job.view.reason.text if job.view.reason else "")
    assert not processes.of_job(four_slots.private(job)).workers
    before = committed(four_slots, job)
    job.resume()
    wait_for_updates(four_slots, job)
    assert committed(four_slots, job) > before
    assert [commit["update"] for commit in four_slots.commits(job)] == list(range(committed(four_slots, job)))
    assert job.refresh().state is JobState.RUNNING
    job.stop()


@pytest.mark.long  # e2e/test_isolation.py, sdk/client/test_against_server.py
def test_resumed_from_a_checkpoint_a_job_ends_with_the_same_bits(four_slots: Jobs, tmp_path: Path) -> None:
    gates = tmp_path / "gates"
    gates.mkdir()
    arguments = ("--epochs", "4", "--samples", "60", "--checkpoints", "1")
    undisturbed = four_slots.submit("cnn.py", *arguments, max_workers=1).wait(300)
    (gates / "hold-3").touch()
    job = four_slots.submit("cnn.py", *arguments, "--gates", str(gates), max_workers=2)

    def names() -> list[str]:
        return [checkpoint["name"] for checkpoint in job.checkpoints()]

    until(lambda: "epoch-3" in names(), "three epochs")
    with pytest.raises(EdtError, match="while workers run"):
        job.resume(checkpoint="epoch-1")
    job.suspend()
    (gates / "told-3").touch()
    (gates / "hold-3").unlink()
    until(lambda: job.refresh().state is JobState.SUSPENDED, "the suspension")
    (gates / "told-3").unlink()
    with pytest.raises(EdtError, match="epoch-9"):
        job.resume(checkpoint="epoch-9")
    job.resume(checkpoint="epoch-1")
    job.wait(300)
    commits = four_slots.commits(job)
    assert [commit["update"] for commit in commits] == list(range(len(four_slots.commits(undisturbed))))
    assert four_slots.final_hash(job) == four_slots.final_hash(undisturbed)
    assert (four_slots.private(job) / "training-0.discarded.jsonl").exists()


@pytest.mark.long  # sdk/client/test_against_server.py stops and resumes a training
def test_a_killed_job_can_be_taken_up_again(four_slots: Jobs) -> None:
    job = four_slots.submit("forever.py", name="again", max_workers=1)
    wait_for_updates(four_slots, job)
    job.stop()
    until(lambda: job.refresh().state is JobState.KILLED, "the end")
    before = committed(four_slots, job)
    job.resume()
    until(lambda: job.refresh().state is JobState.RUNNING, "the job back")
    wait_for_updates(four_slots, job)
    numbers = [commit["update"] for commit in four_slots.commits(job)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 0
    assert before > 0
    job.stop()


@pytest.mark.long
def test_a_job_begins_with_the_weights_of_another(four_slots: Jobs) -> None:
    first = four_slots.submit("cnn.py", "--epochs", "2", "--samples", "40", max_workers=1).wait(300)
    second = four_slots.submit("cnn.py", "--epochs", "1", "--samples", "40", max_workers=1, warm_start=first).wait(300)
    cold = four_slots.submit("cnn.py", "--epochs", "1", "--samples", "40", max_workers=1).wait(300)
    assert four_slots.final_hash(second) != four_slots.final_hash(cold)
    third = four_slots.submit("cnn.py", "--epochs", "1", "--samples", "40", max_workers=2, warm_start=first.id).wait(
        120
    )
    assert four_slots.final_hash(third) == four_slots.final_hash(second)


def test_fast_has_the_same_samples_and_batches(four_slots: Jobs) -> None:
    arguments = ("--epochs", "3", "--samples", "60")
    exact = four_slots.submit("cnn.py", *arguments, max_workers=1).wait(300)
    fast = four_slots.submit("cnn.py", *arguments, max_workers=4, mode="fast").wait(300)

    def samples(job: Job) -> list[list[list[int]]]:
        return [[shard["indices"] for shard in commit["shards"]] for commit in four_slots.commits(job)]

    assert samples(fast) == samples(exact)
    exact_loss, fast_loss = (job.metrics().train[-1]["loss"] for job in (exact, fast))
    assert fast_loss == pytest.approx(exact_loss, rel=1e-3)
