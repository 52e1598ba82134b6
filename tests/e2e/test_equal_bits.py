"""The same bits whatever happens to the number of workers, and a commit log that proves who computed what."""

from __future__ import annotations

from pathlib import Path

import pytest

from edt_sdk import Job
from edt_sdk.schemas.events import Event
from tests.e2e.harness import Jobs
from tests.waiting import until

EPOCHS, SAMPLES, SHARDS = 8, 203, 8


def check_commits(jobs: Jobs, job: Job) -> None:
    """Each update once and in order, each shard once, every member at least one, every sample once an epoch."""
    commits = jobs.commits(job)
    assert [c["update"] for c in commits] == list(range(len(commits)))
    pids = {event.data["worker"]: event.data["pid"] for event in job.story() if event.kind == "worker_started"}
    epochs: dict[int, list[int]] = {}
    for commit in commits:
        assert sorted(s["shard"] for s in commit["shards"]) == list(range(SHARDS))
        assert len({s["pid"] for s in commit["shards"]}) == commit["world"]
        for shard in commit["shards"]:
            assert shard["pid"] == pids[shard["worker"]]
            epochs.setdefault(commit["epoch"], []).extend(shard["indices"])
    assert set(epochs) == set(range(EPOCHS))
    for seen in epochs.values():
        assert sorted(seen) == list(range(SAMPLES))


@pytest.mark.parametrize("loaders", [0, pytest.param(2, marks=pytest.mark.long)])
def test_one_four_and_changing_workers_give_the_same_bits(
    one_slot: Jobs, four_slots: Jobs, tmp_path: Path, loaders: int
) -> None:
    arguments = ["--epochs", str(EPOCHS), "--samples", str(SAMPLES), "--loaders", str(loaders)]

    alone = one_slot.submit("cnn.py", *arguments, name="alone").wait(300)
    assert one_slot.worlds(alone) == [1]
    check_commits(one_slot, alone)

    four = grow_to_four(four_slots, tmp_path / "four", arguments)
    assert four_slots.worlds(four)[-1] == 4
    check_commits(four_slots, four)

    changing = change_from_four_to_two_to_four(four_slots, tmp_path / "changing", arguments)
    worlds = four_slots.worlds(changing)
    assert worlds[-1] == 4, worlds
    assert 2 in worlds[worlds.index(4) :], worlds
    check_commits(four_slots, changing)

    assert one_slot.final_hash(alone) == four_slots.final_hash(four) == four_slots.final_hash(changing)


def grow_to_four(jobs: Jobs, gates: Path, arguments: list[str]) -> Job:
    """One job that has the machine for itself; its rank 0 waits at one epoch until four workers are there."""
    hold = close(gates, 1)
    job = jobs.submit("cnn.py", *arguments, "--gates", str(gates), name="four")
    until(lambda: opened(gates) == 4, "four workers with an open data set")
    hold[1].unlink()
    return job.wait(300)


def change_from_four_to_two_to_four(jobs: Jobs, gates: Path, arguments: list[str]) -> Job:
    """One job that another one makes shrink and that grows again; its rank 0 waits at four epochs for the scheduler.

    A job gives slots back at a boundary only, so every gate is opened first and the new size awaited afterwards.
    """
    hold = close(gates, 1, 3, 5, 6)
    job = jobs.submit("cnn.py", *arguments, "--gates", str(gates), name="changing")
    until(lambda: opened(gates) == 4, "four workers with an open data set")
    hold[1].unlink()
    until(lambda: 4 in jobs.worlds(job), "updates with four workers")

    other = jobs.submit("forever.py", name="other")
    until(lambda: len(revoked(job)) == 1, "the claim of a second job on its first slot")
    hold[3].unlink()
    until(lambda: len(revoked(job)) == 2, "the claim of a second job on its second slot")
    hold[5].unlink()
    until(lambda: jobs.worlds(job)[-1] == 2, "updates with two workers")

    other.stop()
    until(lambda: opened(gates) == 6, "two more workers with an open data set")
    hold[6].unlink()
    return job.wait(300)


def close(gates: Path, *epochs: int) -> dict[int, Path]:
    """The files that hold rank 0 at the begin of these epochs."""
    gates.mkdir()
    hold = {epoch: gates / f"hold-{epoch}" for epoch in epochs}
    for gate in hold.values():
        gate.touch()
    return hold


def opened(gates: Path) -> int:
    """How many workers have opened the data set so far."""
    path = gates / "opened"
    return len(path.read_text().split()) if path.exists() else 0


def revoked(job: Job) -> list[Event]:
    """The slots that were claimed from a job so far."""
    return [event for event in job.story() if event.kind == "slot_revoked"]
