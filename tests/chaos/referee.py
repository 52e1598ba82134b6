"""What must be true of a job that went through chaos, from the files it left, beside the undisturbed run's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edt_sdk import Job
from edt_sdk.schemas.job import JobState
from tests.e2e.harness import Jobs

SAMPLES, TEST_SAMPLES = 203, 37


@dataclass(frozen=True, slots=True)
class Record:
    """What a finished job proves.

    Attributes:
        files: SHA-256 of what is in each file of weights, the epochs' and the last, by name.
        losses: of every update, then of every validation, as they were written.
        updates: committed.
        generations: memberships it went through.
        discarded: updates that were committed, lost with all who knew them, and computed again.
    """

    files: dict[str, str]
    losses: tuple[float, ...]
    updates: int
    generations: int
    discarded: int


def read(jobs: Jobs, job: Job, epochs: int, shards: int) -> Record:
    """The record of a finished job; AssertionError when its own files contradict each other."""
    assert job.state is JobState.FINISHED, f"{job.state.value}: {job.view.message}"
    commits = jobs.commits(job)
    once_each(commits, epochs, shards, SAMPLES)
    metrics = [json.loads(line) for line in (jobs.private(job) / "training-0.metrics.jsonl").read_text().splitlines()]
    train = [line for line in metrics if line["kind"] == "train"]
    test = [line for line in metrics if line["kind"] == "test"]
    assert [line["update"] for line in train] == list(range(len(commits)))
    validated = [line["epoch"] for line in test]
    assert validated == sorted(set(validated)), f"a validation is there twice: {validated}"
    return Record(
        files=jobs.file_hashes(job),
        losses=tuple(line["loss"] for line in (*train, *test)),
        updates=len(commits),
        generations=len({commit["generation"] for commit in commits}),
        discarded=discarded(jobs, job),
    )


def once_each(commits: Sequence[Mapping[str, Any]], epochs: int, shards: int, samples: int) -> None:
    """Raise AssertionError unless so many epochs were committed, each update once, and each sample once an epoch."""
    numbers = [commit["update"] for commit in commits]
    assert numbers == list(range(len(commits))), f"updates missing or twice: {_odd(numbers)}"
    seen: dict[int, list[int]] = {}
    for commit in commits:
        assert sorted(shard["shard"] for shard in commit["shards"]) == list(range(shards)), commit["update"]
        for shard in commit["shards"]:
            seen.setdefault(commit["epoch"], []).extend(shard["indices"])
    assert sorted(seen) == list(range(epochs)), f"epochs {sorted(seen)} and not {epochs}"
    for epoch, indices in seen.items():
        assert sorted(indices) == list(range(samples)), f"epoch {epoch}: samples missing or twice"


def discarded(jobs: Jobs, job: Job) -> int:
    """Return how many updates were committed, lost with all processes that had them, and computed again."""
    path = jobs.private(job) / "training-0.discarded.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def compare(record: Record, undisturbed: Record) -> None:
    """AssertionError unless both came to the same bits on the same way."""
    assert record.updates == undisturbed.updates
    first = next((n for n, (a, b) in enumerate(zip(record.losses, undisturbed.losses, strict=True)) if a != b), None)
    assert first is None, f"the loss of update {first} differs"
    assert sorted(record.files) == sorted(undisturbed.files), "files of an epoch are missing"
    wrong = [name for name, found in record.files.items() if found != undisturbed.files[name]]
    assert not wrong, f"these differ: {wrong}"


def _odd(numbers: list[int]) -> list[int]:
    return [number for at, number in enumerate(numbers) if number != at][:5]
