"""What an event costs, by the updates that were noted."""

from __future__ import annotations

from benchmarks.commit_log import Commit
from benchmarks.fleet_ray import Cost, cost


def noted(*lines: tuple[int, int, float]) -> list[Commit]:
    return [Commit(update=update, world=world, time=time, generation=1) for update, world, time in lines]


def test_updates_of_the_old_workers_are_not_the_first_one_of_the_new_workers():
    commits = noted((0, 2, 1.0), (1, 2, 2.0), (2, 2, 3.0), (3, 1, 7.0), (4, 1, 8.0))
    assert cost(commits, 2.5, 1) == Cost(first=4.5, still=4.0, repeated=0)


def test_a_repeated_update_is_no_new_one():
    commits = noted((0, 2, 1.0), (1, 2, 2.0), (2, 2, 3.0), (1, 1, 6.0), (2, 1, 7.0), (3, 1, 9.0), (4, 1, 10.0))
    assert cost(commits, 3.5, 1) == Cost(first=2.5, still=6.0, repeated=2)
