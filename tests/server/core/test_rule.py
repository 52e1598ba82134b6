"""The rule on a tree: against its definition, its lemmas, and every kind of group by example."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_server.core.rule import Claim, Rule
from tests.server.core.rule_by_definition import Definition

ONE = (InstanceGroup(name="g"),)


def group(name, parent="", **settings):
    return InstanceGroup(name=name, parent=parent, **settings)


def job(number, weight=5000, cap=99, in_group="g", **settings):
    row = {"user": "", "turn": 0, "floor": 1} | settings
    return Claim(job=f"j{number}", group=in_group, weight=weight, order=number, cap=cap, **row)


def settled(groups, slots, *claims):
    rule = Rule(groups, slots)
    for claim in claims:
        rule.put(claim)
    rule.settle()
    return rule


def targets(groups, slots, *claims):
    rule = settled(groups, slots, *claims)
    return tuple(rule.target(claim.job) for claim in claims)


# --- one group --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "weights", "expected"),
    [
        (8, (5000,), (8,)),
        (8, (5000, 5000), (4, 4)),
        (8, (5000, 10000), (3, 5)),
        (8, (10000, 5000), (5, 3)),
        (8, (5000, 5000, 5000, 10000), (2, 2, 1, 3)),
        (6, (3000, 5000, 5000), (1, 3, 2)),
        (7, (3000, 5000, 5000), (1, 3, 3)),
        (8, (1000, 2000, 3000, 10000), (1, 1, 1, 5)),
        (8, (1000, 3000, 10000), (1, 2, 5)),
        (8, (1000, 10000, 10000), (1, 4, 3)),
    ],
)
def test_the_rows_that_tell_rules_apart(slots, weights, expected):
    assert targets(ONE, slots, *[job(n, weight) for n, weight in enumerate(weights)]) == expected


def test_settle_tells_what_changed_and_nothing_else():
    rule = Rule(ONE, 8)
    assert rule.settle() == {}
    rule.put(job(0))
    assert rule.settle() == {"j0": 8}
    rule.put(job(1, 10000))
    assert rule.settle() == {"j0": 3, "j1": 5}
    rule.put(job(1, 10000))
    assert rule.settle() == {}
    rule.remove("j0")
    assert rule.settle() == {"j1": 8}
    rule.set_slots(9)
    assert rule.settle() == {"j1": 9}
    rule.put(job(1, cap=0))
    assert rule.settle() == {"j1": 0}
    rule.remove("j1")
    assert rule.settle() == {}


def test_a_group_that_is_not_there_is_refused_and_nothing_changes():
    rule = settled(ONE, 8, job(0))
    with pytest.raises(KeyError):
        rule.put(job(1, in_group="other"))
    assert rule.settle() == {}


def test_priority_and_fifo_are_strict():
    claims = (job(0, 1, 3), job(1, 9, 3), job(2, 9, 3), job(3, 5, 3))
    assert targets((group("g", policy="priority"),), 8, *claims) == (0, 3, 3, 2)
    assert targets((group("g", policy="fifo"),), 8, *claims) == (3, 3, 2, 0)


def test_users_divide_before_their_jobs_do():
    groups = (group("g", user_shares={"ann": 3, "*": 1}),)
    claims = (job(0, user="ann"), job(1, user="bob"), job(2, 10000, user="ann"), job(3, 10000, user="cid"))
    assert targets(groups, 15, *claims) == (3, 3, 6, 3)


def test_least_sizes_by_turn_while_they_fit():
    claims = (job(0, floor=4, turn=1), job(1, floor=4, turn=2), job(2, floor=3, turn=3), job(3, turn=4))
    assert targets(ONE, 8, *claims) == (4, 4, 0, 0)
    assert targets(ONE, 7, *claims) == (4, 0, 3, 0)
    assert targets(ONE, 5, *claims) == (4, 0, 0, 1)
    assert targets(ONE, 3, *claims) == (0, 0, 3, 0)  # a job that never fits does not hold back the others


def test_more_jobs_than_slots_run_by_turn():
    claims = [job(n, turn=(n + 3) % 6) for n in range(6)]
    assert targets(ONE, 3, *claims) == (0, 0, 0, 1, 1, 1)


def test_units():
    assert targets(ONE, 8, job(0, floor=4, cap=8, unit=4), job(1)) == (4, 4)
    assert targets(ONE, 7, job(0, floor=4, cap=8, unit=4), job(1)) == (4, 3)
    assert targets(ONE, 9, job(0, floor=2, cap=8, unit=2), job(1, floor=2, cap=8, unit=2)) == (4, 4)
    assert targets(ONE, 9, job(0, floor=2, cap=8, unit=2), job(1, floor=2, cap=8, unit=2), job(2, 1)) == (4, 4, 1)


def test_what_units_leave_over_goes_to_other_groups():
    groups = (group("a"), group("b"))
    four = {"floor": 4, "unit": 4, "cap": 8}
    assert targets(groups, 12, job(0, in_group="a", **four), job(1, in_group="b", **four)) == (8, 4)
    assert targets(groups, 12, job(0, in_group="a", **four), job(1, in_group="b")) == (4, 8)


def test_what_a_job_keeps_is_not_taken():
    assert targets(ONE, 8, job(0, keep=7), job(1, 10000), job(2, 10000)) == (7, 1, 0)
    owners = (group("a", own=4), group("b", own=4))
    assert targets(owners, 8, job(0, in_group="a", keep=6), job(1, in_group="b")) == (6, 2)
    assert targets(owners, 8, job(0, in_group="a", keep=8), job(1, in_group="b")) == (8, 0)
    assert targets(ONE, 2, job(0, keep=4), job(1)) == (1, 1), "what is kept cannot be more than there is"


# --- own, lend, borrow ------------------------------------------------------------------------------------------------

OWNERS = (group("a", own=4), group("b", own=4), group("c", share=2))


def test_owners_have_their_own_and_the_rest_is_shared():
    claims = [job(n, in_group=name) for n, name in enumerate("abc")]
    assert targets(OWNERS, 12, *claims) == (5, 5, 2)
    assert targets(OWNERS, 16, *claims) == (6, 6, 4)
    assert targets(OWNERS, 12, claims[0], claims[2]) == (7, 5)
    assert targets(OWNERS, 12, claims[2]) == (12,)


def test_slots_that_are_lost_are_lost_to_all_owners_alike():
    claims = [job(n, in_group=name) for n, name in enumerate("abc")]
    assert targets(OWNERS, 6, *claims[:2]) == (3, 3)
    assert targets(OWNERS, 5, *claims) == (3, 2, 0)


def test_limits_on_lending_and_borrowing():
    groups = (group("a", own=4, lend=1), group("b", own=2, borrow=3), group("c"))
    assert targets(groups, 8, job(0, in_group="c")) == (5,)
    assert targets(groups, 8, job(0, in_group="b")) == (5,)
    assert targets(groups, 8, job(0, in_group="b"), job(1, in_group="a", cap=1)) == (5, 1)
    rule = settled(groups, 8, job(0, in_group="b"))
    holding = rule.groups()
    assert (holding["b"].entitled, holding["b"].own, holding["b"].borrowed, holding["b"].lenders) == (5, 2, 3, {"a": 1})
    assert holding["a"].lent == 1
    assert rule.cut("j0").why == "borrow"
    assert rule.cut("j0").borrowed == {"a": 1}


@pytest.mark.parametrize("back", range(1, 5))
def test_reclaimed_slots_come_from_who_borrows_most_for_its_share(back):
    groups = (group("a", own=6), group("b", share=1), group("c", share=2), group("d", own=2))
    claims = [job(n, in_group=name, cap=cap) for n, (name, cap) in enumerate([("b", 99), ("c", 99), ("d", 2)])]
    before = targets(groups, 12, *claims)
    assert before == (3, 7, 2)
    after = targets(groups, 12, *claims, job(3, in_group="a", cap=back))
    lost = tuple(x - y for x, y in zip(before, after, strict=False))
    assert sum(lost) == after[3] == back
    assert lost[2] == 0, "who has only its own loses nothing"
    # One by one: always the last slot of the borrower whose claim to it was the weakest.
    expected = list(before)
    for _ in range(back):
        worst = min((0, 1), key=lambda n: ((1, 2)[n] / (expected[n] - 0.5), (1, 2)[n]))
        expected[worst] -= 1
    assert list(after[:3]) == expected


def test_three_levels():
    groups = (
        group("lab", own=6, share=2),
        group("vision", "lab", share=2),
        group("text", "lab"),
        group("ocr", "vision", own=2),
        group("video", "vision"),
        group("guests"),
    )
    assert Plan(instance_groups=groups).check()
    names = ("ocr", "video", "text", "guests")
    claims = [job(n, in_group=name) for n, name in enumerate(names)]
    assert targets(groups, 12, *claims) == (5, 2, 3, 2)
    assert targets(groups, 12, *claims[1:]) == (7, 3, 2)
    assert targets(groups, 12, *claims[2:]) == (10, 2)
    assert targets(groups, 12, claims[3]) == (12,)


# --- measured speed ---------------------------------------------------------------------------------------------------

AWARE = (group("g", throughput_aware=True),)
STEEP = ((1, 10.0), (2, 19.0), (4, 36.0), (8, 70.0))
FLAT = ((1, 100.0), (2, 130.0), (4, 150.0), (8, 155.0))


def test_slots_go_where_they_speed_up_most():
    assert targets(AWARE, 8, job(0, speeds=STEEP), job(1, speeds=FLAT)) == (6, 2)
    assert targets(AWARE, 8, job(0), job(1)) == (4, 4)
    assert targets(AWARE, 8, job(0, speeds=FLAT), job(1, speeds=FLAT)) == (4, 4)


def test_sizes_that_slow_a_job_down_are_not_used():
    slower = ((1, 10.0), (2, 15.0), (4, 12.0))
    rule = settled(AWARE, 8, job(0, speeds=slower))
    assert rule.target("j0") == 2
    assert rule.cut("j0").why == "slower"


# --- the cut ----------------------------------------------------------------------------------------------------------


def test_the_cut_names_the_claim_that_won():
    rule = settled(ONE, 8, job(0), job(1, 10000))
    cut = rule.cut("j0")
    assert (cut.why, cut.rival, cut.weight, cut.held, cut.rival_weight, cut.rival_held) == (
        "share", "j1", 5000, 3, 10000, 4,
    )  # fmt: skip
    assert cut.worth < cut.rival_worth
    assert rule.cut("j1").rival == "j0"
    assert settled(ONE, 8, job(0, cap=8)).cut("j0").why == "met"
    assert settled(ONE, 2, job(0), job(1)).cut("j1").why == "floors"
    assert settled(ONE, 1, job(0), job(1)).cut("j1").why == "turn"
    assert settled(ONE, 1, job(0, floor=2)).cut("j0").why == "never"
    assert settled((group("g", policy="fifo"),), 2, job(0), job(1)).cut("j1").rival == "j0"


def test_a_job_alone_in_its_group_is_beaten_by_another_group():
    rule = settled((group("a", share=2), group("b")), 8, job(0, in_group="a"), job(1, in_group="b"))
    cut = rule.cut("j1")
    assert (cut.why, cut.level, cut.claimant, cut.rival) == ("share", "", "b", "a")


# --- against the definition, and the lemmas ---------------------------------------------------------------------------

limits = st.one_of(st.none(), st.integers(0, 4))
one_group = st.fixed_dictionaries(
    {
        "share": st.integers(1, 4),
        "own": st.sampled_from((0, 0, 0, 1, 2, 3, 6)),
        "lend": limits,
        "borrow": limits,
        "policy": st.sampled_from(("fairshare", "fairshare", "fairshare", "priority", "fifo")),
        "user_shares": st.sampled_from((None, None, None, {"u": 2, "*": 1}, {})),
    }
)


@st.composite
def plans(draw):
    groups = []
    for number in range(draw(st.integers(1, 6))):
        parent = draw(st.sampled_from(["", *[each.name for each in groups]]))
        groups.append(group(f"g{number}", parent, **draw(one_group)))
    return groups


@st.composite
def claims_of(draw, groups, number, floors=(1,)):
    parents = {each.parent for each in groups}
    return Claim(
        job=f"j{number}",
        group=draw(st.sampled_from([each.name for each in groups if each.name not in parents])),
        user=draw(st.sampled_from("uvw")),
        weight=draw(st.sampled_from((1, 2, 3, 5, 1000, 3000, 5000, 10000))),
        order=number,
        turn=draw(st.integers(0, 3)),
        floor=draw(st.sampled_from(floors)),
        cap=draw(st.integers(0, 12)),
    )


@st.composite
def situations(draw, floors=(1,)):
    groups = draw(plans())
    claims = [draw(claims_of(groups, number, floors)) for number in range(draw(st.integers(0, 8)))]
    return groups, draw(st.integers(0, 20)), claims


# A group at its limit, because one below it keeps a slot that nobody asks for.
KEPT = [group("g0", borrow=1), group("g1", "g0"), group("g2", "g0", own=1, lend=0), group("g3")]


@settings(max_examples=120, deadline=None)
@given(situations())
@example((KEPT, 5, [job(0, 1, 2, "g1"), job(1, 1, 3, "g3")]))
def test_it_is_its_definition(situation):
    groups, slots, claims = situation
    rule = settled(groups, slots, *claims)
    expected = {claim.job: 0 for claim in claims} | Definition(groups, slots, claims).targets()
    assert {claim.job: rule.target(claim.job) for claim in claims} == expected
    for claim in claims:
        cut = rule.cut(claim.job)
        assert (cut.why == "met") == (rule.target(claim.job) >= claim.cap)
        assert cut.worth <= cut.rival_worth
    limits = {each.name: each.lend for each in groups}
    for name, holding in rule.groups().items():
        assert sum(holding.lenders.values()) <= holding.borrowed, name
        assert holding.lent <= max(0, holding.own - holding.entitled), name
        assert limits[name] is None or holding.lent <= limits[name], name


def others(rule, claims, but=""):
    return {claim.job: rule.target(claim.job) for claim in claims if claim.job != but}


@settings(max_examples=80, deadline=None)
@given(situations(), st.data())
def test_nobody_grows_when_somebody_comes_and_nobody_shrinks_when_somebody_goes(situation, data):
    groups, slots, claims = situation
    rule = settled(groups, slots, *claims)
    before = others(rule, claims)
    new = data.draw(claims_of(groups, 99))
    rule.put(new)
    rule.settle()
    with_it = others(rule, claims)
    assert all(with_it[name] <= before[name] for name in before)
    assert sum(before.values()) - sum(with_it.values()) <= rule.target("j99"), "more moved than it got"
    rule.remove("j99")
    rule.settle()
    assert others(rule, claims) == before, "the path matters"


@settings(max_examples=80, deadline=None)
@given(situations(), st.integers(0, 3))
def test_slots_that_come_shrink_nobody(situation, more):
    groups, slots, claims = situation
    rule = settled(groups, slots, *claims)
    before = others(rule, claims)
    rule.set_slots(slots + more)
    rule.settle()
    assert all(rule.target(name) >= target for name, target in before.items())


@settings(max_examples=80, deadline=None)
@given(situations(), st.data())
def test_who_asks_for_more_lets_nobody_else_grow(situation, data):
    groups, slots, claims = situation
    if not claims:
        return
    rule = settled(groups, slots, *claims)
    claim = data.draw(st.sampled_from(claims))
    before = others(rule, claims, claim.job)
    mine = rule.target(claim.job)
    weight, cap = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 5))
    rule.put(replace(claim, weight=claim.weight * weight, cap=claim.cap + cap))
    rule.settle()
    assert rule.target(claim.job) >= mine
    after = others(rule, claims, claim.job)
    assert all(after[name] <= before[name] for name in before)


@settings(max_examples=80, deadline=None)
@given(situations(floors=(1, 1, 2, 3)), st.data())
def test_least_sizes_and_what_is_kept_hold(situation, data):
    groups, slots, claims = situation
    rule = settled(groups, slots, *claims)
    kept = []
    for claim in claims:
        target = rule.target(claim.job)
        assert target == 0 or target >= min(claim.floor, claim.cap)
        keep = data.draw(st.sampled_from((0, target)))
        kept.append(replace(claim, keep=keep, weight=data.draw(st.sampled_from((1, 10**6)))))
    assert sum(others(rule, claims).values()) <= slots
    new = [data.draw(claims_of(groups, number)) for number in (97, 98)]
    after = settled(groups, slots, *kept, *new)
    for claim in kept:
        assert after.target(claim.job) >= claim.keep
    assert sum(others(after, [*kept, *new]).values()) <= slots
