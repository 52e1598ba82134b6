"""A script that decides between epochs how many workers it wants, on a server that has as many to give."""

from __future__ import annotations

from pathlib import Path

import pytest

from edt_sdk import JobFailed
from tests.e2e.harness import Jobs
from tests.waiting import until


def test_a_script_scales_itself_up_and_down(four_slots: Jobs, tmp_path: Path) -> None:
    limit = tmp_path / "limit"

    def allow(text: str) -> None:
        # In one piece: the script reads it at any moment.
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(limit)

    allow("1")
    job = four_slots.submit("scaled.py", str(limit))

    def world() -> int:
        commits = four_slots.commits(job)
        return commits[-1]["world"] if commits else 0

    until(lambda: len(four_slots.commits(job)) > 20, "twenty updates on one worker")
    assert four_slots.worlds(job) == [1]
    allow("3")
    until(lambda: world() == 3, "three workers")
    assert max(four_slots.worlds(job)) == 3
    allow("2")
    until(lambda: world() == 2, "two workers again")
    allow("no number")
    until(lambda: world() == 4, "all four workers")
    job.stop()
    with pytest.raises(JobFailed, match="STOPPED"):
        job.wait(300)
    said = job.logs(stream="stderr")
    assert said.count("scaleup_function is ignored: it raised ValueError") == 1
    story = str(job.story())
    assert "its training can use up to 3 slots" in story
    assert "its training can use up to 2 slots" in story
