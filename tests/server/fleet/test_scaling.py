"""How many hosts a provider is asked for, played against one that gives them after a while."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_server.fleet.scaling import HostUse, Scaling, ScalingDecision, ScalingSettings, span


class Provided:
    """A provider that gives every host `start` seconds after it was asked, and the jobs that use as many as they can.

    It looks at `Scaling` once a second of its own time, and does at once what it is told.
    """

    def __init__(self, start=60.0, **settings):
        self.settings = ScalingSettings("ray", **{"max_hosts": 4, "slots": 8, **settings})
        self.scaling = Scaling(self.settings)
        self.start, self.now, self.demand, self.gives = start, 0.0, 0, True
        self.hosts: dict[str, HostUse] = {}
        self.asked = 0
        self.told = ScalingDecision(0)

    def look(self):
        left = max(0, self.demand)
        for name, host in self.hosts.items():
            if host.asked_since is not None and self.now - host.asked_since >= self.start:
                host = HostUse(name, self.settings.slots, idle_since=self.now)
            held = min(left, host.slots) if not host.draining else 0
            left -= held
            since = None if held or host.asked_since is not None else host.idle_since
            idle = self.now if host.held and not held else since
            self.hosts[name] = replace(host, held=held, idle_since=None if held else idle)
        self.told = self.scaling.decide(self.now, self.demand, list(self.hosts.values()))
        for name in self.told.release:
            assert not self.hosts[name].held, "a host with work was released"
            del self.hosts[name]
        coming = [name for name, host in self.hosts.items() if host.asked_since is not None]
        for name in coming[::-1][: max(0, len(self.hosts) - self.told.hosts)]:
            del self.hosts[name]
        if self.gives:
            for _ in range(self.told.hosts - len(self.hosts)):
                self.asked += 1
                self.hosts[f"h{self.asked}"] = HostUse(f"h{self.asked}", asked_since=self.now)
        elif self.told.hosts > len(self.hosts):
            self.asked += 1
            self.scaling.failed(self.now)

    def wait(self, seconds, demand=None):
        """Let so many seconds pass with this demand, and return (hosts with slots, hosts on their way)."""
        self.demand = self.demand if demand is None else demand
        for _ in range(seconds):
            self.look()
            self.now += 1
        coming = sum(host.asked_since is not None for host in self.hosts.values())
        return len(self.hosts) - coming, coming


def test_a_demand_that_lasts_is_met_and_hosts_without_work_go():
    p = Provided()
    assert p.wait(5, demand=20) == (0, 0), "not before it has stood for 5 s"
    assert p.wait(1) == (0, 3)
    assert p.wait(60) == (3, 0)
    assert p.wait(1, demand=8) == (3, 0)
    assert p.wait(299) == (3, 0), "idle for less than 300 s"
    assert p.wait(1) == (1, 0)
    assert p.wait(302, demand=0) == (0, 0)
    assert p.told == ScalingDecision(0)


@pytest.mark.parametrize(("slots", "hosts"), [(1, 1), (8, 1), (9, 2), (32, 4), (1000, 4), (-3, 0)])
def test_as_few_hosts_as_have_the_slots_and_never_more_than_allowed(slots, hosts):
    p = Provided()
    assert p.wait(200, demand=slots) == (hosts, 0)
    assert p.asked == hosts
    assert p.scaling.room() == 8 * (4 - hosts)


def test_the_fewest_hosts_are_there_without_demand_and_stay():
    p = Provided(min_hosts=2)
    assert p.wait(1) == (0, 2), "no patience is needed for what the settings say"
    assert p.wait(1000) == (2, 0)
    assert p.wait(100, demand=24) == (3, 0)
    assert p.wait(1000, demand=0) == (2, 0)


def test_a_burst_that_ends_before_the_patience_asks_for_nothing():
    p = Provided()
    for _ in range(20):
        p.wait(4, demand=30)
        p.wait(4, demand=0)
    assert p.asked == 0


def test_a_wish_rises_no_further_than_what_was_short_all_the_time():
    p = Provided()
    for demand in (30, 9, 32, 31):
        p.wait(2, demand=demand)
    assert len(p.hosts) == 2


def test_the_gap_between_two_bursts_is_bridged():
    p = Provided()
    for _ in range(10):
        p.wait(200, demand=32)
        p.wait(290, demand=8)
    assert p.asked == 4


def test_hosts_on_their_way_count_and_are_let_go_when_nobody_needs_them_any_more():
    p = Provided(start=600)
    assert p.wait(100, demand=32) == (0, 4)
    assert p.wait(4, demand=8) == (0, 4)
    assert p.wait(4, demand=32) == (0, 4)
    assert p.asked == 4
    assert p.wait(6, demand=8) == (0, 1)


def test_a_host_that_jobs_do_not_leave_stays_though_fewer_would_do():
    scaling = Scaling(ScalingSettings("ray", max_hosts=4, slots=8, patience=0))
    here = [HostUse("a", 8, held=1), HostUse("b", 8, held=1), HostUse("c", 8, idle_since=0.0)]
    assert scaling.decide(0.0, 2, here) == ScalingDecision(3)
    assert scaling.decide(299.0, 2, here) == ScalingDecision(3)
    assert scaling.next_look() == 300.0
    assert scaling.decide(300.0, 2, here) == ScalingDecision(2, ("c",))
    assert scaling.decide(301.0, 2, here) == ScalingDecision(2, ("c",)), "asking twice is asking once"
    assert scaling.decide(302.0, 2, [*here[:2], replace(here[2], draining=True)]) == ScalingDecision(2)


def test_an_idle_host_that_the_demand_needs_stays():
    """Its slots may be owned and not lent: without them the others' jobs would lose theirs."""
    scaling = Scaling(ScalingSettings("ray", max_hosts=4, slots=8))
    here = [HostUse("a", 8, held=8), HostUse("b", 8, idle_since=0.0), HostUse("c", 8, idle_since=5.0)]
    assert scaling.decide(700.0, 17, here) == ScalingDecision(3)
    assert scaling.decide(1000.0, 15, here) == ScalingDecision(3), "they were needed until now"
    assert scaling.decide(1300.0, 15, here) == ScalingDecision(2, ("b",)), "the longest idle goes"


def test_packed_jobs_move_together_when_there_was_room_for_long_enough():
    scaling = Scaling(ScalingSettings("ray", max_hosts=4, slots=8, patience=0, pack=True))
    a, b, c = HostUse("a", 8, held=3), HostUse("b", 8, held=2, pinned=True), HostUse("c", 8, held=4)
    assert scaling.decide(0.0, 9, [a, b, c]) == ScalingDecision(3)
    assert scaling.decide(200.0, 8, [a, b, c]) == ScalingDecision(3), "from now on one would do, if b could be left"
    assert scaling.decide(300.0, 8, [a, b, c]) == ScalingDecision(2, ("a",)), "b has less to move, but is pinned"
    draining = replace(a, draining=True)
    assert scaling.decide(301.0, 8, [draining, b, c]) == ScalingDecision(2)
    assert scaling.decide(499.0, 8, [draining, b, c]) == ScalingDecision(2), "a second one is too many for 299 s"
    assert scaling.decide(500.0, 8, [b, c]) == ScalingDecision(1, ("c",))


def test_without_packing_work_is_never_moved():
    scaling = Scaling(ScalingSettings("ray", max_hosts=4, slots=8))
    here = [HostUse("a", 8, held=1), HostUse("b", 8, held=1)]
    assert {scaling.decide(float(now), 2, here) for now in range(0, 5000, 100)} == {ScalingDecision(2)}


def test_draining_hosts_are_replaced_within_the_limit():
    scaling = Scaling(ScalingSettings("ray", max_hosts=3, slots=8, patience=0))
    a, b, c = (HostUse(name, 8, held=8) for name in "abc")
    assert scaling.decide(0.0, 16, [a, b]) == ScalingDecision(2)
    assert scaling.decide(1.0, 16, [a, replace(b, draining=True)]) == ScalingDecision(2), "a and one that replaces b"
    assert scaling.decide(2.0, 24, [a, replace(b, draining=True), c]) == ScalingDecision(2), "b still counts as a host"
    assert "given all 3 hosts" in scaling.coming(2.0)
    assert scaling.decide(3.0, 24, [a, c]) == ScalingDecision(3)
    assert scaling.coming(3.0) == ""


def test_a_lost_host_is_replaced_only_while_it_is_needed():
    p = Provided()
    p.wait(100, demand=16)
    del p.hosts["h1"]
    p.wait(3, demand=8)
    assert p.told == ScalingDecision(1)
    del p.hosts["h2"]
    p.wait(7)
    assert list(p.hosts) == ["h3"]


def test_hosts_that_offer_less_than_expected_are_more_of_them():
    scaling = Scaling(ScalingSettings("slurm", max_hosts=9, slots=8, patience=0))
    assert scaling.decide(0.0, 16, [HostUse("a", 4, held=4), HostUse("b", 4, held=4)]) == ScalingDecision(3)


def test_a_provider_that_fails_is_asked_less_and_less_often():
    p = Provided(max_hosts=2)
    p.gives = False
    p.wait(3600, demand=16)
    assert 10 <= p.asked <= 22, "the pauses double to 5 minutes"
    assert p.scaling.coming(p.now).startswith("the provider ray could not give a host and is asked again in ")
    p.gives = True
    assert p.wait(400) == (2, 0)
    assert p.scaling.coming(p.now) == ""
    p.gives, before = False, p.asked
    p.hosts.clear()
    p.wait(30)
    assert p.asked - before >= 2, "a host has come in between: the pauses begin small again"


def test_a_failure_does_not_take_back_the_hosts_that_are_there_or_coming():
    p = Provided(start=30)
    p.wait(100, demand=8)
    p.wait(8, demand=16)
    p.scaling.failed(p.now)
    assert p.wait(1, demand=32) == (1, 1)


def test_the_sentence_about_hosts_on_their_way():
    p = Provided(start=90)
    assert p.scaling.coming(0.0) == ""
    p.wait(46, demand=8)
    assert p.scaling.coming(p.now) == "1 host was asked of ray 41 s ago"
    assert p.scaling.expected(p.now) is None
    p.wait(100)
    assert p.scaling.coming(p.now) == ""
    p.wait(26, demand=32)
    assert p.scaling.coming(p.now) == (
        "3 hosts were asked of ray, the first 21 s ago; such hosts took 90 s (median of 1)"
    )
    assert p.scaling.expected(p.now) == 69.0
    p.wait(600)
    assert p.scaling.expected(p.now) is None
    for _ in range(4):
        p.start = 30
        p.wait(400, demand=0)
        p.wait(100, demand=32)
    p.wait(400, demand=0)
    p.wait(7, demand=8)
    assert "took 30 s (median of 9)" in p.scaling.coming(p.now)


def test_the_next_look_is_when_something_would_be_decided():
    scaling = Scaling(ScalingSettings("ray", max_hosts=4, slots=8))
    assert (scaling.decide(0.0, 0, []), scaling.next_look()) == (ScalingDecision(0), None)
    assert (scaling.decide(1.0, 8, []), scaling.next_look()) == (ScalingDecision(0), 6.0)
    assert (scaling.decide(6.0, 8, []), scaling.next_look()) == (ScalingDecision(1), None)
    scaling.failed(7.0)
    assert scaling.decide(7.0, 8, []) == ScalingDecision(0)
    assert scaling.next_look() == 12.0


@pytest.mark.parametrize(
    "wrong", [{"max_hosts": -1}, {"min_hosts": 5}, {"slots": 0}, {"idle_after": -1.0}, {"patience": -1.0}]
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="cannot be"):
        ScalingSettings("ray", **{"max_hosts": 4, **wrong})


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (40.4, "40 s"), (119, "119 s"), (300, "5 min"), (7200, "2 h"), (5400 * 2.5, "3.8 h")],
)
def test_spans_of_time(seconds, words):
    assert span(seconds) == words


@given(st.lists(st.tuples(st.integers(1, 120), st.integers(0, 50)), max_size=12), st.integers(0, 2), st.integers(0, 90))
def test_whatever_the_demand_does_the_limits_hold_and_at_rest_there_is_just_enough(history, least, start):
    """The demand stands still in the end: enough hosts are there, none too many, and nothing is decided any more."""
    p = Provided(start=start, min_hosts=least)
    for seconds, demand in history:
        for _ in range(seconds):
            p.wait(1, demand=demand)
            assert least <= p.told.hosts <= 4
            assert len(p.hosts) <= 4
    p.wait(600)
    right = max(least, min(4, -(-p.demand // 8)))
    assert p.wait(1) == (right, 0)
    assert p.scaling.next_look() is None
