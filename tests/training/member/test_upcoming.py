"""The next generation's group is made ahead, taken by whoever comes to it, dropped when a newer one is announced."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from edt_sdk.schemas.wire.link import Generation, Member
from edt_sdk.training.exchange.peer_errors import Superseded
from edt_sdk.training.member.next_group import NextGroup

DEADLINE = 180


def generation(number, *workers):
    members = tuple(
        Member(worker=worker, slot=worker, pid=1, host="127.0.0.1", store_port=1, fresh=False) for worker in workers
    )
    return Generation(training=0, number=number, members=members)


@dataclass
class Made:
    """What stands for a membership here."""

    number: int
    group: str = ""
    closed: threading.Event = field(default_factory=threading.Event)

    def close(self):
        self.closed.set()


class Maker:
    """Makes memberships; those in `held` take until they are given up."""

    def __init__(self, *held):
        self.held = held
        self.made = {}
        self.given_up = threading.Event()
        self.met = []
        self.expected = []
        self.expecting = threading.Event()

    def make(self, generation, waiting):
        if generation.number in self.held:
            try:
                while not self.given_up.wait(0.001):
                    waiting()
            except Superseded:
                self.given_up.set()
                raise
        self.made[generation.number] = Made(generation.number, f"group {generation.number}")
        return self.made[generation.number]

    def expect(self, rank, world):
        self.expected.append((rank, world))
        self.expecting.set()

    def upcoming(self):
        return NextGroup(7, self.make, self.met.append, self.expect)


def nothing():
    pass


def test_it_is_made_and_met_before_somebody_comes_for_it():
    maker = Maker()
    upcoming = maker.upcoming()
    upcoming.announce(generation(2, 3, 7))
    assert upcoming.take(generation(2, 3, 7), nothing).number == 2
    assert maker.met == ["group 2"]
    assert maker.expecting.wait(DEADLINE)
    assert maker.expected == [(1, 2)]
    upcoming.drop()
    assert not maker.made[2].closed.is_set()  # it is whose who took it


def test_what_was_not_announced_is_made_when_it_is_wanted():
    assert Maker().upcoming().take(generation(1, 7), nothing).number == 1


def test_a_newer_one_ends_an_unfinished_attempt():
    maker = Maker(2)
    upcoming = maker.upcoming()
    upcoming.announce(generation(2, 3, 7))
    upcoming.announce(generation(3, 7))
    assert maker.given_up.wait(DEADLINE)
    with pytest.raises(Superseded):
        upcoming.take(generation(2, 3, 7), nothing)
    assert upcoming.take(generation(3, 7), nothing).number == 3


def test_a_newer_one_closes_what_nobody_has_taken_yet():
    met = threading.Event()
    maker = Maker()
    upcoming = NextGroup(7, maker.make, lambda group: met.set(), maker.expect)
    upcoming.announce(generation(2, 3, 7))
    assert met.wait(DEADLINE)
    upcoming.announce(generation(3, 3))  # without this worker
    assert maker.made[2].closed.wait(DEADLINE)


def test_who_waits_may_give_up_and_what_is_made_later_is_closed():
    maker = Maker(2)
    upcoming = maker.upcoming()

    def waiting():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upcoming.take(generation(2, 7), waiting)
    assert maker.given_up.wait(DEADLINE)


@pytest.mark.parametrize("where", ["make", "meet"])
def test_an_error_is_that_of_whoever_waits(where):
    maker = Maker()

    def fails(*_):
        raise RuntimeError("a member is gone")

    make, meet = (fails, maker.met.append) if where == "make" else (maker.make, fails)
    upcoming = NextGroup(7, make, meet, maker.expect)
    with pytest.raises(RuntimeError, match="gone"):
        upcoming.take(generation(2, 7), nothing)
    if where == "meet":
        assert maker.made[2].closed.is_set()
