"""What a change cost, from logs whose times are written down by hand."""

import pytest

from benchmarks.changes import Request, changes, typical_updates
from benchmarks.commit_log import Commit


def log(*runs, start=100.0):
    """Commits of (world, updates, seconds each, pause before the first beyond its own length)."""
    commits, now, update = [], start, 0
    for generation, (world, count, each, pause) in enumerate(runs, 1):
        now += pause
        for _ in range(count):
            now += each
            commits.append(Commit(update=update, world=world, time=now, generation=generation))
            update += 1
    return commits


def test_the_stall_is_what_an_update_does_not_explain():
    commits = log((1, 6, 0.040, 0), (2, 6, 0.025, 0.030))
    (change,) = changes(commits, [Request(time=commits[3].time + 0.001, before=1, after=2)])
    assert change.stall == pytest.approx(0.030)
    assert change.delay == pytest.approx(commits[6].time - commits[3].time - 0.001)
    assert change.updates == pytest.approx(0.039 + 0.025)  # the rest of the one under way, and the first of two
    assert (change.repeated, change.steps) == (0, 1)


def test_updates_of_a_size_on_the_way_are_no_stall():
    commits = log((2, 6, 0.030, 0), (3, 4, 0.020, 0.010), (4, 6, 0.015, 0.012))
    (change,) = changes(commits, [Request(time=commits[4].time, before=2, after=4)])
    assert change.stall == pytest.approx(0.022)
    assert change.steps == 2


def test_a_single_update_of_a_size_on_the_way_counts_like_those_of_the_next_smaller():
    commits = log((2, 6, 0.030, 0), (3, 1, 0.030, 0.010), (4, 6, 0.015, 0.012))
    (change,) = changes(commits, [Request(time=commits[4].time, before=2, after=4)])
    assert change.stall == pytest.approx(0.022)


def test_several_requests_each_have_their_own_change():
    commits = log((1, 6, 0.040, 0), (2, 6, 0.025, 0.030), (1, 6, 0.040, 0.005), (2, 6, 0.025, 0.050))
    asked = [
        Request(time=commits[4].time, before=1, after=2),
        Request(time=commits[10].time, before=2, after=1),
        Request(time=commits[16].time, before=1, after=2),
    ]
    assert [change.stall for change in changes(commits, asked)] == pytest.approx([0.030, 0.005, 0.050])


def test_updates_done_again_after_a_restart_are_counted():
    before = log((1, 8, 0.040, 0))
    again = [
        Commit(update=5 + n, world=2, time=before[-1].time + 3.0 + 0.025 * (n + 1), generation=2) for n in range(6)
    ]
    (change,) = changes(before + again, [Request(time=before[6].time, before=1, after=2)])
    assert change.stall == pytest.approx(3.0)
    assert change.repeated == 3


def test_the_usual_update_leaves_out_the_first_gap_of_each_generation_and_the_change_itself():
    commits = log((1, 2, 9.0, 0), (1, 5, 0.040, 5.0))
    commits[3] = Commit(update=3, world=1, time=commits[3].time - 0.02, generation=2)
    assert typical_updates(commits) == {1: pytest.approx(0.040, abs=0.011)}


def test_a_log_without_the_new_size_is_refused():
    commits = log((1, 6, 0.040, 0))
    with pytest.raises(ValueError, match="no commit of 2 workers"):
        changes(commits, [Request(time=commits[2].time, before=1, after=2)])


def test_a_size_that_lasted_too_shortly_is_refused():
    commits = log((1, 6, 0.040, 0), (2, 2, 0.025, 0.030))
    with pytest.raises(ValueError, match="let each size last longer"):
        changes(commits, [Request(time=commits[4].time, before=1, after=2)])
