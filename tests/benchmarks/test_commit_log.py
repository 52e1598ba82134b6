"""Reading a log that grows."""

import json

import pytest

from benchmarks.commit_log import Commit, CommitLog, behind


def line(update, world=1, time=0.0):
    return json.dumps({"update": update, "world": world, "time": time, "generation": 1, "shards": []}) + "\n"


def test_half_a_line_waits_for_its_other_half(tmp_path):
    path = tmp_path / "log"
    log = CommitLog(path)
    assert log.read() == []
    path.write_text(line(0) + line(1)[:7])
    assert [commit.update for commit in log.read()] == [0]
    path.write_text(line(0) + line(1) + line(2))
    assert [commit.update for commit in log.read()] == [0, 1, 2]


def test_waiting_ends_when_nothing_more_can_come(tmp_path):
    with pytest.raises(SystemExit, match="an update: the job ended"):
        CommitLog(tmp_path / "log").wait(lambda commits: bool(commits), "an update", lambda: "the job ended")


def test_updates_in_a_row_at_a_size_are_counted_from_the_request_on():
    commits = [Commit(update=n, world=1 + (n > 2), time=float(n), generation=1) for n in range(6)]
    assert behind(commits, 2, 0.0) == 3
    assert behind(commits, 2, 3.5) == 2
    assert behind(commits, 1, 0.0) == 0
