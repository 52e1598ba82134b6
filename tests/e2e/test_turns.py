"""More jobs than slots: they take turns, each is suspended and comes back, and none ends with other bits for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Job
from edt_sdk.testing import LocalServer
from tests.e2e.harness import Jobs
from tests.waiting import until

QUANTUM = 6


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server with two slots, whose jobs take turns of a few seconds."""
    traits = {
        "EdtApp.threads_per_slot": 1,
        "EdtApp.warm_workers": 1,
    }
    with LocalServer(tmp_path_factory.mktemp("turns"), slots=2, traits=traits) as server:
        jobs = Jobs(server)
        jobs.client.update_instance_group("default", quantum=float(QUANTUM))
        yield jobs


def stints(job: Job) -> int:
    """How often the job got its first slot."""
    return sum(1 for event in job.story() if event.kind == "slot_granted" and event.data["slots"] == 1)


@pytest.mark.long  # turns: server/core/test_turns.py; bits of a suspended job: chaos/test_short.py
def test_three_jobs_on_two_slots_all_get_on_in_turns_and_end_with_the_same_bits(turns: Jobs, tmp_path: Path) -> None:
    arguments = ["--epochs", "4", "--samples", "243", "--pause", "0.01", "--gates", str(tmp_path)]
    alone = turns.submit("cnn.py", *arguments, name="alone", max_workers=1).wait(300)

    three = [turns.submit("cnn.py", *arguments, name=f"job-{number}") for number in range(3)]
    until(lambda: any(job.refresh().state == "PENDING" for job in three), "one that waits")
    waiting = next(job for job in three if job.state == "PENDING")
    assert waiting.view.reason is not None
    assert "take turns" in waiting.view.reason.text
    until(lambda: all(turns.commits(job) for job in three), "updates of all three")
    assert not any(job.refresh().view.state.final for job in three), "they were all under way at once"

    for job in three:
        job.wait(300)
        commits = turns.commits(job)
        assert [commit["update"] for commit in commits] == list(range(len(commits)))
        assert turns.final_hash(job) == turns.final_hash(alone)
    assert sum(stints(job) for job in three) >= 5, "at least two of them were suspended and came back"
    assert "another job's turn begins" in " ".join(event.text for job in three for event in job.story())
