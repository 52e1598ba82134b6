"""What a kill cost, from logs whose times are written down by hand."""

import pytest

from benchmarks.commit_log import Commit
from benchmarks.recoveries import recovered, recovery, wrong_numbers


def commit(update, time, world, generation):
    return Commit(update=update, world=world, time=time, generation=generation)


SURVIVED = [
    *(commit(n, 10.0 + n / 100, 4, 1) for n in range(5)),
    commit(5, 10.051, 4, 1),  # committed by the old members just behind the kill at 10.050
    commit(6, 10.250, 3, 2),
    commit(7, 10.260, 3, 2),
    commit(8, 10.900, 4, 3),
    commit(9, 10.910, 4, 3),
]


def test_the_next_update_is_the_first_of_those_who_go_on():
    one = recovery(SURVIVED, 4, 10.050)
    assert one.next_update == pytest.approx(0.2)
    assert one.full == pytest.approx(0.85)
    assert one.repeated == 0


def test_recovered_means_as_many_workers_as_before_in_a_later_generation():
    assert not recovered(SURVIVED[:8], 4, 10.050, 1)
    assert recovered(SURVIVED, 4, 10.050, 2)
    assert not recovered(SURVIVED, 4, 10.050, 3)
    with pytest.raises(ValueError, match="no commit of 4 workers"):
        recovery(SURVIVED[:8], 4, 10.050)


def test_updates_made_again_from_a_checkpoint_are_counted():
    again = [*SURVIVED[:6], commit(3, 14.0, 4, 2), commit(4, 14.01, 4, 2), commit(5, 14.02, 4, 2)]
    assert recovery(again, 4, 10.050).repeated == 3


def test_every_update_is_there_once_or_counted():
    assert wrong_numbers(SURVIVED, 10) == 0
    assert wrong_numbers([*SURVIVED, SURVIVED[-1]], 10) == 1
    assert wrong_numbers(SURVIVED[1:], 10) == 1
    assert wrong_numbers(SURVIVED, 9) == 1
