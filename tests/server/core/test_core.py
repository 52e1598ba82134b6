"""The core's behaviour, told in the words of its users."""

from __future__ import annotations

import pytest

from edt_sdk.schemas.errors import Conflict, NotFound, Unprocessable
from edt_sdk.schemas.job import JobPatch
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import (
    JobArrived,
    JobBudget,
    JobChanged,
    JobDemand,
    JobGone,
    JobHeld,
    JobSuspended,
    SlotReleased,
    SlotsChanged,
)
from edt_server.core.instructions import Grant, Revoke
from tests.server.core.invariants import replayed


def test_the_demo(play):
    """Two jobs on four slots: 4, then 2/2, then 1/3, then 4."""
    p = play(4)
    assert p.arrive("one", max_workers=4) == [Grant("one", 0, 1)]  # starts with one slot
    assert p.train("one", 8) == [Grant("one", 1, 2), Grant("one", 2, 3), Grant("one", 3, 4)]
    assert p.shares == {"one": 4}

    assert p.arrive("two", max_workers=4) == [Revoke("one", 3, entitled=3)]
    assert p.release("one", 3) == [Grant("two", 3, 1)]  # free only when it was left
    assert p.train("two", 8) == [Revoke("one", 2, entitled=2)]
    assert p.shares == {"one": 2, "two": 2}

    assert p.change("two", priority=10000) == [Revoke("one", 1, entitled=1)]
    assert p.shares == {"one": 1, "two": 3}

    assert p.gone("one") == [Grant("two", 0, 4)]
    assert p.shares == {"two": 4}
    assert p.core.holding("two") == (3, 2, 1, 0)  # in the order of the grants


@pytest.mark.parametrize("heavy_first", [False, True])
def test_ibms_example_in_either_order_of_arrival(play, heavy_first):
    p = play(8)
    jobs = [("light", 5000), ("heavy", 10000)]
    for job, priority in reversed(jobs) if heavy_first else jobs:
        p.run(job, priority)
    assert p.shares == {"light": 3, "heavy": 5}
    p.gone("light")
    assert p.shares == {"heavy": 8}


class TestSuspension:
    def test_all_slots_come_back_and_go_to_the_others(self, play):
        p = play(4)
        p.run("a")
        p.run("b")
        assert p.shares == {"a": 2, "b": 2}
        assert {type(each) for each in p.suspend("a")} == {Revoke}
        assert p.core.suspended("a")
        assert p.shares == {"a": 0, "b": 4}
        p.resume("a")
        assert not p.core.suspended("a")
        assert p.shares == {"a": 2, "b": 2}

    def test_what_it_could_use_meanwhile_is_remembered_and_asked_for_later(self, play):
        p = play(4)
        p.arrive("a")
        p.suspend("a")
        assert p.train("a", 3) == []
        assert p.core.asked("a") == 0
        p.release_all()
        p.resume("a")
        assert p.shares == {"a": 3}

    def test_who_comes_back_takes_nobodys_turn(self, play):
        p = play(1)
        for job in "abc":
            p.run(job)
        p.suspend("a")
        p.release_all()
        assert p.core.holding("b") == (0,)
        p.resume("a")
        assert p.core.holding("b") == (0,), "who runs is not suspended for it"
        p.gone("b")
        assert p.core.holding("c") == (0,), "which has waited all the time"
        p.gone("c")
        assert p.core.holding("a") == (0,)

    def test_resumed_before_its_workers_have_left_it_waits_for_their_slots(self, play):
        p = play(2)
        p.run("a")
        p.suspend("a")
        assert p.resume("a") == []
        assert p.core.leaving("a") == (1, 0)
        assert p.core.reason("a").code == "starting"
        assert p.release("a", 1) == [Grant("a", 1, 1)]

    def test_twice_is_once(self, play):
        p = play(2)
        p.run("a")
        p.suspend("a")
        digest = p.core.digest()
        assert p.suspend("a") == []
        assert p.core.digest() == digest
        p.resume("a")
        assert p.resume("a") == []

    def test_a_suspended_job_says_how_to_go_on(self, play):
        p = play(2)
        p.run("a")
        p.suspend("a")
        assert p.core.reason("a").text.startswith("It is being suspended: its workers still leave 2 slots.")
        p.release_all()
        reason = p.core.reason("a")
        assert (reason.code, reason.asked) == ("suspended", 0)
        assert "job.resume()" in reason.text
        assert "edt resume a" in reason.text


def test_three_equal_ones_and_a_heavier(play):
    p = play(8)
    for job, priority in (("a", 5000), ("b", 5000), ("c", 5000), ("d", 10000)):
        p.run(job, priority)
    assert p.shares == {"a": 2, "b": 2, "c": 1, "d": 3}


def test_a_slot_more_shrinks_nobody(play):
    p = play(6)
    for job, priority in (("a", 3000), ("b", 5000), ("c", 5000)):
        p.run(job, priority)
    assert p.shares == {"a": 1, "b": 3, "c": 2}
    assert p.slots(7) == [Grant("c", 6, 3)]
    assert p.shares == {"a": 1, "b": 3, "c": 3}


def test_a_job_that_leaves_shrinks_nobody(play):
    p = play(8)
    for job, priority in (("a", 1000), ("b", 2000), ("c", 3000), ("d", 10000)):
        p.run(job, priority)
    assert p.shares == {"a": 1, "b": 1, "c": 1, "d": 5}
    instructions = p.gone("b")
    assert [type(each) for each in instructions] == [Grant]
    assert p.shares == {"a": 1, "c": 2, "d": 5}


def test_maximum_and_demand_cap_a_job(play):
    p = play(8)
    p.run("a", max_workers=3)
    assert p.shares == {"a": 3}
    p.train("a", 2)
    assert p.shares == {"a": 2}
    p.train("a", 8)
    p.change("a", max_workers=5)
    assert p.shares == {"a": 5}
    p.change("a", max_workers=1)
    assert p.shares == {"a": 1}
    assert p.core.asked("a") == 1


def test_a_job_between_trainings_holds_nothing_and_is_no_claim(play):
    p = play(4)
    p.run("a")
    p.run("b")
    assert p.shares == {"a": 2, "b": 2}
    p.train("a", 0)
    assert p.shares == {"a": 0, "b": 4}
    assert p.core.reason("a") is None
    p.train("a", 8)
    assert p.shares == {"a": 2, "b": 2}


def test_the_newest_grants_are_taken_back_first_and_the_lowest_free_slot_is_granted(play):
    p = play(4)
    p.run("a")
    assert p.train("a", 2) == [Revoke("a", 3, 2), Revoke("a", 2, 2)]
    p.release("a", 3)
    p.release("a", 2)
    assert p.train("a", 3) == [Grant("a", 2, 3)]


def test_a_first_slot_comes_before_any_second_and_the_older_jobs_first_of_all(play):
    p = play(4)
    p.run("a")
    p.run("b", 1000)
    p.run("c", 10000)
    assert p.targets() == {"a": 1, "b": 1, "c": 2}
    assert p.core.leaving("a") == (3, 2, 1)
    assert [p.release("a", slot) for slot in (3, 1, 2)] == [[Grant("b", 3, 1)], [Grant("c", 1, 1)], [Grant("c", 2, 2)]]


def test_further_slots_go_to_the_strongest_claims_first(play):
    p = play(6)
    p.run("guest", 10**9)
    p.run("a", 5000)
    p.run("b", 10000)
    assert p.shares == {"guest": 4, "a": 1, "b": 1}
    p.train("guest", 0)
    assert p.targets() == {"guest": 0, "a": 2, "b": 4}
    grants = [p.release("guest", slot)[0] for slot in p.core.leaving("guest")]
    assert [grant.job for grant in grants] == ["b", "b", "a", "b"]  # 6667, 4000, 3333, 2857


def test_a_revoked_slot_does_not_count_until_it_is_released(play):
    p = play(2)
    p.run("a")
    p.arrive("b")
    assert p.core.leaving("a") == (1,)
    assert p.core.holder(1) == "a"
    assert p.core.free() == ()
    p.gone("b")  # a is entitled to both again, but it is already leaving slot 1
    assert (p.core.holding("a"), p.core.entitled("a"), p.core.settled()) == ((0,), 2, False)
    assert p.release("a", 1) == [Grant("a", 1, 2)]
    assert p.core.settled()


def test_a_job_that_ends_while_leaving_frees_everything_at_once(play):
    p = play(2)
    p.run("a")
    p.run("b")
    assert p.core.leaving("a") == (1,)
    assert p.gone("a") == [Grant("b", 0, 1), Grant("b", 1, 2)]


def test_a_slot_left_without_being_asked_is_free_for_whom_it_is_due(play):
    p = play(2)
    p.run("a")
    assert p.release("a", 0) == [Grant("a", 0, 2)]


class TestMoreJobsThanSlots:
    def test_who_runs_stays_and_the_others_follow_as_they_came(self, play):
        p = play(2)
        for job in "abcd":
            p.run(job)
        assert p.shares == {"a": 1, "b": 1, "c": 0, "d": 0}
        p.change("d", priority=10**9)  # a weight is no claim to somebody's only slot
        assert p.shares == {"a": 1, "b": 1, "c": 0, "d": 0}
        p.gone("b")
        assert p.shares == {"a": 1, "c": 1, "d": 0}
        p.gone("a")
        p.gone("c")
        assert p.shares == {"d": 2}

    def test_who_was_let_in_is_not_pushed_out_by_an_older_job_that_comes_back(self, play):
        p = play(2)
        p.arrive("old")
        p.train("old", 0)
        p.run("a")
        p.release_all()
        p.run("b")
        assert p.core.leaving("a")  # b waits for it
        p.train("old", 8)
        assert p.targets() == {"old": 0, "a": 1, "b": 1}
        assert p.shares == {"old": 0, "a": 1, "b": 1}

    def test_without_slots_everybody_waits(self, play):
        p = play(0)
        p.run("a")
        assert p.shares == {"a": 0}
        p.slots(1)
        assert p.shares == {"a": 1}


class TestSlotsChange:
    def test_slots_that_are_gone_are_revoked_whoever_has_them(self, play):
        p = play(4)
        p.run("a")
        p.run("b")
        assert p.shares == {"a": 2, "b": 2}
        assert p.slots(2, 3) == [Revoke("a", 0, 1), Revoke("a", 1, 1), Revoke("b", 2, 1)]
        assert p.core.slots == (Slot(id=2, host="h"), Slot(id=3, host="h"))
        assert p.shares == {"a": 1, "b": 1}
        assert set(p.core.holding("a") + p.core.holding("b")) == {2, 3}

    def test_a_released_slot_that_does_not_exist_any_more_is_granted_to_nobody(self, play):
        p = play(2)
        p.run("a")
        p.slots(1)
        assert p.release("a", 1) == []
        assert p.core.free() == ()

    def test_a_slot_that_comes_back_is_free_only_when_it_was_left(self, play):
        p = play(2)
        p.run("a")
        assert p.slots(1) == [Revoke("a", 1, 1)]
        assert p.slots(2) == []
        assert p.release("a", 1) == [Grant("a", 1, 2)]

    def test_another_device_under_the_same_id_is_another_slot(self, play):
        p = play(2)
        p.run("a")
        instructions = p.step(SlotsChanged((Slot(id=0, host="h"), Slot(id=1, host="h", device="cuda:1"))))
        assert instructions == [Revoke("a", 1, 2)]
        assert p.release("a", 1) == [Grant("a", 1, 2)]

    def test_the_same_slots_again_change_nothing(self, play):
        p = play(4)
        p.run("a")
        assert p.slots(4) == []

    def test_two_slots_of_one_id_are_refused(self, play):
        with pytest.raises(Unprocessable, match="same id"):
            play(0).step(SlotsChanged((Slot(id=0, host="a"), Slot(id=0, host="b"))))


class TestRefusals:
    @pytest.mark.parametrize(
        ("event", "error"),
        [
            (JobDemand("nobody", 1), NotFound),
            (JobChanged("nobody", JobPatch(priority=1)), NotFound),
            (JobGone("nobody"), NotFound),
            (SlotReleased("nobody", 0), NotFound),
            (SlotReleased("a", 3), Conflict),
            (JobArrived("a", 5000, 1, "default"), Conflict),
            (JobArrived("b", 5000, 1, "nogroup"), Unprocessable),
            (JobArrived("b", 0, 1, "default"), Unprocessable),
            (JobArrived("b", 5000, 0, "default"), Unprocessable),
            (JobChanged("a", JobPatch(priority=7, max_workers=0)), Unprocessable),
            (JobChanged("a", JobPatch(instance_group="nogroup")), Unprocessable),
            (JobDemand("a", -1), Unprocessable),
        ],
    )
    def test_a_refused_event_changes_nothing(self, play, event, error):
        p = play(2)
        p.arrive("a")
        before = p.core.digest()
        with pytest.raises(error):
            p.core.apply(event, 9.0)
        assert p.core.digest() == before

    @pytest.mark.parametrize("ask", ["holding", "leaving", "entitled", "asked", "reason"])
    def test_questions_about_an_unknown_job(self, play, ask):
        with pytest.raises(NotFound, match="nobody"):
            getattr(play(1).core, ask)("nobody")


class TestReplay:
    def test_equal_histories_give_equal_states(self, play):
        p = play(4)
        p.run("a")
        p.run("b", 10000)
        p.release_all()
        p.gone("a")
        again = replayed(p.history)
        assert again.digest() == p.core.digest()
        assert again.holding("b") == p.core.holding("b")

    def test_every_part_of_the_state_is_in_the_digest(self, play):
        def digest(*events):
            p = play(2)
            for event in events:
                p.step(event)
            return p.core.digest()

        arrival = JobArrived("a", 5000, 9, "default")
        histories = [
            (),
            (arrival,),
            (arrival, JobDemand("a", 0)),
            (arrival, JobDemand("a", 2)),
            (arrival, JobDemand("a", 2), JobDemand("a", 1)),
            (arrival, JobDemand("a", 2), JobDemand("a", 1), SlotReleased("a", 1)),
            (arrival, JobChanged("a", JobPatch(priority=6))),
            (arrival, JobChanged("a", JobPatch(max_workers=8))),
            (arrival, JobGone("a")),
            (arrival, JobSuspended("a")),
            (arrival, JobBudget("a", 3)),
            (arrival, JobBudget("a", 3), JobHeld("a", 3, 9)),
            (arrival, JobBudget("a", 3), JobHeld("a", 3, 27)),
            (arrival, JobDemand("a", 2), JobSuspended("a")),
            (SlotsChanged((Slot(id=0, host="h"),)),),
            (SlotsChanged((Slot(id=0, host="other"), Slot(id=1, host="h"))),),
        ]
        digests = [digest(*history) for history in histories]
        # A slot taken back and left is as if it had never been granted.
        assert digests.pop(5) != digests[4]
        assert len(set(digests)) == len(digests)

    def test_a_group_that_is_not_configured_any_more_does_not_stop_a_server(self):
        before = Core(Plan(instance_groups=(InstanceGroup(name="default"), InstanceGroup(name="summer"))))
        events = [(JobArrived("a", 5000, 1, "summer"), 1.0), (JobGone("a"), 2.0)]
        for event, now in events:
            before.apply(event, now)
        after = replayed(events)
        assert after.jobs == ()
        with pytest.raises(Unprocessable):
            after.apply(JobArrived("b", 5000, 1, "summer"), 3.0)
