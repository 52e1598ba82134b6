"""Why a job holds less than it asked for, in the words people read."""

from __future__ import annotations

import random
from fractions import Fraction

import msgspec
import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import REASON_CODES, JobPatch
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_server.core.core import Core
from edt_server.core.events import JobApart, JobArrived, JobChanged, JobDemand, PlanChanged, SpeedMeasured, TimePassed
from tests.server.core.test_properties import some_event, some_plan


def call(job: str) -> str:
    return f"digits-{job}"


def test_who_has_what_it_asked_for_needs_no_reason(play):
    p = play(4)
    p.arrive("a")
    assert p.core.reason("a") is None
    p.train("a", 4)
    assert p.core.reason("a") is None


def test_its_share_with_the_claim_that_beat_it(play):
    p = play(4)
    p.run("a", 5000, 4)
    p.run("b", 10000, 4)
    assert p.shares == {"a": 1, "b": 3}
    reason = p.core.reason("a", call)
    assert (reason.code, reason.held, reason.entitled, reason.asked) == ("share", 1, 1, 4)
    assert reason.text == (
        "It has 1 of 4 slots: digits-b has twice its priority (10000 vs 5000) and gets 3. More when digits-b ends."
    )
    assert reason.details == (
        "It could use 4. The strongest claims get the slots, and a claim to one more is the priority (of a group, the "
        "share) ÷ (slots held + ½). Its claim to a 2nd, 5000 ÷ 1.5 = 3333.3, comes after digits-b's to its 3rd, "
        "10000 ÷ 2.5 = 4000."
    )
    assert reason.numbers["rival"] == "b"
    assert reason.numbers["claim"] == float(Fraction(10000, 3))
    assert reason.numbers["rival_claim"] == 4000.0
    msgspec.json.encode(reason)
    other = p.core.reason("b", call)
    assert other.text == "It has 3 of 4 slots: digits-a has one slot, and a running job keeps its last."
    assert not other.details


@pytest.mark.parametrize(
    ("mine", "rivals", "said"),
    [
        (1000, 4000, "digits-b has 4 times its priority (4000 vs 1000) and gets 9."),
        (4000, 5000, "digits-b has a higher priority (5000 vs 4000) and gets 6."),
    ],
)
def test_priorities_are_compared_in_words(play, mine, rivals, said):
    p = play(11)
    p.run("a", mine, 11)
    p.run("b", rivals, 11)
    p.release_all()
    assert said in p.core.reason("a", call).text


def test_when_it_gets_more_is_in_the_same_sentence(play):
    p = play(4)
    p.run("a", 5000, 4)
    p.run("b", 10000, 4)
    p.release_all()
    told = p.core.reason("a", call, now=100.0, ends={"b": (1900.0, 1900.0)}).text
    assert told.endswith("and gets 3. More when digits-b ends, in about 30 min.")
    p.run("c", 10000, 1)
    p.release_all()
    told = p.core.reason("a", call, now=100.0, ends={"b": (1900.0, 7300.0)}).text
    assert told.endswith("It should get more in 0.5 to 2 h.")


def test_the_forecast_is_what_happens(play):
    p = play(9)
    for job, priority, most in (("a", 3000, 9), ("b", 5000, 9), ("c", 5000, 4)):
        p.run(job, priority, most)
    p.release_all()
    reason = p.core.reason("a")
    assert reason.code == "share"
    p.gone(reason.numbers["rival"])
    assert p.shares["a"] == reason.numbers["when_rival_ends"]


def test_the_rival_is_the_weakest_claim_that_won(play):
    """Were the winner's last slot any weaker, it would be the asker's."""
    p = play(12)
    for job, priority in (("a", 1000), ("b", 3000), ("c", 7000), ("d", 5000)):
        p.run(job, priority)
    p.release_all()
    reason = p.core.reason("a")
    beaten_by = reason.numbers["rival"]
    p.change("a", priority=1000 * 12)
    assert p.targets()[beaten_by] < reason.numbers["rival_entitled"]


def test_a_tie_says_how_it_was_settled(play):
    p = play(3)
    p.run("a")
    p.run("b")
    assert p.shares == {"a": 2, "b": 1}
    told = p.core.reason("b", call)
    assert told.text.startswith("It has 1 of 3 slots: digits-a has the same priority (5000), came earlier and gets 2.")
    assert "ties with and, as digits-a arrived earlier, comes after digits-a's to its 2nd" in told.details
    q = play(6)
    for job, priority in (("a", 3000), ("b", 5000), ("c", 5000)):
        q.run(job, priority)
    assert q.shares == {"a": 1, "b": 3, "c": 2}
    told = q.core.reason("a", call)
    assert "digits-b has a higher priority (5000 vs 3000) and gets 3." in told.text
    assert "as digits-b weighs more" in told.details


def test_slots_on_the_way(play):
    p = play(4)
    p.run("a")
    p.run("b")
    reason = p.core.reason("b", call)
    assert reason.code == "starting"
    assert reason.text == "It gets 2 of 4 slots and has 0 so far: 2 are on the way (digits-a is leaving 2)."
    assert reason.numbers["leaving"] == {"a": 2}
    p.gone("b")
    assert "its own former workers are still in 2" in p.core.reason("a").text


def test_busy(play):
    p = play(2)
    for job in "abcd":
        p.run(job)
    p.release_all()
    first, second = p.core.reason("c", call), p.core.reason("d", call)
    assert (first.code, first.held, first.entitled, first.asked) == ("busy", 0, 0, 100)
    assert first.text == (
        "Each of the 2 slots has a job of its own (digits-a and digits-b), and jobs take turns of 60 s: it is next."
    )
    assert second.text.endswith("jobs take turns of 60 s: 1 job is before it.")
    assert (first.numbers["ahead"], second.numbers["ahead"]) == (0, 1)
    assert p.core.reason("a", call).text.endswith("digits-b has one slot, and a running job keeps its last.")


def test_the_only_slot(play):
    p = play(1)
    p.run("a")
    p.run("b")
    assert p.core.reason("b", call).text.startswith("The only slot has a job (digits-a), and")


def test_whose_turn_it_is_next_and_when(play):
    p = play(1)
    for job in "abc":
        p.run(job)  # a runs from 1.0 on, and its turn ends at 61.0
    reason = p.core.reason("b", call, now=11.0)
    assert reason.numbers["forecast"] == {"earliest": 61.0, "latest": 61.0}
    assert reason.text.endswith("it is next. It should get a slot in 50 s.")
    assert p.core.reason("c", call, now=11.0).text.endswith("It should get a slot in 50 to 110 s.")
    assert p.core.reason("b", call, now=11.0, ends={"a": (20.0, 40.0)}).text.endswith("in 9 to 29 s.")
    p.now = 61.0
    p.step(TimePassed())
    p.release_all()
    assert p.core.holding("b") == (0,)


def test_without_preemption_and_in_strict_queues_there_are_no_turns(play):
    p = play(1, plan=Plan(instance_groups=(InstanceGroup(name="default", preemption=False),)))
    p.run("a")
    p.run("b")
    assert p.core.reason("b", call).text == (
        "The only slot has a job (digits-a), and none is taken from a job that runs: it is next when one of them ends."
    )
    q = play(2, plan=Plan(instance_groups=(InstanceGroup(name="default", policy="priority"),)))
    q.run("a", 9000, 2)
    q.run("b")
    reason = q.core.reason("b", call)
    assert (reason.code, reason.numbers["rival"]) == ("order", "a")
    assert reason.text == (
        "It waits: the instance group default serves the higher priority first (policy priority), and digits-a comes "
        "before it."
    )


GROUPS = Plan(
    instance_groups=(
        InstanceGroup(name="rich", own=6, lend=2),
        InstanceGroup(name="poor", borrow=3),
        InstanceGroup(name="other", share=2),
    )
)


def test_groups_beat_each_other_and_borrow(play):
    p = play(8, plan=Plan(instance_groups=(InstanceGroup(name="rich", own=6), InstanceGroup(name="poor"))))
    p.run("a", group="poor", max_workers=9)
    assert p.shares == {"a": 8}
    reason = p.core.reason("a", call)
    assert reason.numbers["borrowed"] == {"rich": 6}
    assert "It has borrowed 6 from rich, and gives back what the owner needs." in reason.text
    p.run("b", group="rich")
    p.release_all()
    reason = p.core.reason("a", call)
    assert reason.held < 8
    assert p.core.holdings()["rich"].own == 6


def test_never_fits_is_told_before_and_after(play):
    p = play(8, plan=GROUPS)
    p.core.fits("rich", 8)
    p.core.fits("poor", 3)
    with pytest.raises(Unprocessable, match="at most 3 of 8"):
        p.core.fits("poor", 4)
    with pytest.raises(Unprocessable, match="at most 4 of 8"):
        p.core.fits("other", 3, slots_per_unit=5)
    with pytest.raises(Unprocessable, match="no instance group"):
        p.core.fits("nobody")
    p.arrive("big", group="poor", min_workers=4)
    reason = p.core.reason("big")
    assert reason.code == "never_fits"
    assert "It needs 4 slots at once, which the instance group 'poor' can never have" in reason.text
    play(0, plan=GROUPS).core.fits("poor", 100)


def test_every_slot_there_is(play):
    p = play(4)
    p.run("a", max_workers=8)
    reason = p.core.reason("a")
    assert (reason.code, reason.held, reason.asked) == ("capped", 4, 8)
    assert reason.text == "It has all 4 slots of this server, and could use 8."


def test_no_slots_is_not_the_same_as_busy(play):
    p = play(0)
    p.arrive("a")
    assert p.core.reason("a").code == "never_fits"


def test_it_tells_since_when(play):
    p = play(2)
    p.run("a")
    p.run("b")  # events 1 to 4
    assert p.core.reason("a").numbers["since"] == 2.0  # it could use more than two from its training on
    p.release_all()
    assert p.core.reason("b").numbers["since"] == 3.0


def test_jobs_of_another_queue_are_in_the_way_but_not_before_it_in_its_own(play):
    plan = Plan(
        instance_groups=(
            InstanceGroup(name="default", preemption=False),
            InstanceGroup(name="night", policy="fifo"),
        )
    )
    p = play(2, plan=plan)
    p.run("a", max_workers=2)
    p.run("n", group="night")
    p.run("later", group="night")
    assert p.core.reason("n", call).text == (
        "digits-a has the slots, and none is taken from a job that runs: it is next when one of them ends."
    )
    assert p.core.reason("later", call).text == (
        "It waits: the instance group night serves who came first (policy fifo), and digits-n, which waits, comes "
        "before it."
    )


def every_reason(play):
    """Yield the reasons of the jobs of small worlds, and of a long random history under changing plans."""
    rng, core = random.Random(3), Core()
    for number in range(1_500):
        now, plan = float(number), core.plan
        event = some_event(core, rng, number, 8, 8)
        if number % 40 == 0:
            event = PlanChanged(some_plan(rng, {core._jobs[job].group for job in core.jobs}))
        elif isinstance(event, JobArrived):
            unit, groups = rng.choice((1, 1, 3)), [group.name for group in plan.leaves()]
            event = JobArrived(
                event.job, event.priority, 6, rng.choice(groups), owner=rng.choice(("ana", "bob")),
                min_workers=rng.choice((unit, 2 * unit)), slots_per_unit=unit,
            )  # fmt: skip
        elif isinstance(event, JobChanged):
            event = JobChanged(event.job, JobPatch(priority=rng.choice((1000, 2000, 5000))))
        core.apply(event, now)
        ends = {job: (now + 60.0, now + 9000.0) for job in core.jobs}
        yield from (core.reason(job, call, now=now, ends=ends) for job in core.jobs)
    p = play(8, plan=Plan(instance_groups=(InstanceGroup(name="default", throughput_aware=True),)))
    p.run("a", max_workers=8)
    p.step(SpeedMeasured("a", {1: 10.0, 2: 15.0, 4: 12.0}))
    p.release_all()
    yield p.core.reason("a", call)
    p = play(8, plan=Plan(instance_groups=(InstanceGroup(name="default", user_running=1),)))
    p.run("a", owner="ana")
    p.run("b", owner="ana")
    yield p.core.reason("b", call)
    p.step(JobDemand("a", 1, "The script restarts from nothing."))
    yield p.core.reason("a", call)
    p = play(slots=1)
    p.run("a")
    p.step(JobApart("a", ("elsewhere",), "Hosts h and elsewhere do not reach each other."))
    yield p.core.reason("a", call)


def test_no_reason_has_a_formula_in_its_sentence(play):
    known, explained = set(), 0
    for reason in every_reason(play):
        if reason is not None:
            known.add(reason.code)
            explained += bool(reason.details)
            assert not set("÷=") & set(reason.text), reason.text
            assert "claim" not in reason.text
            assert "÷" in reason.details or not reason.details
            assert reason.text[0].isupper() or reason.text.startswith("digits-")
            assert str(reason) == reason.text
    assert known == set(REASON_CODES)
    assert explained
