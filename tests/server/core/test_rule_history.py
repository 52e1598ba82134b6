"""Long random histories: targets kept up to date are those worked out from nothing, and nobody moves the wrong way.

EDT_RULE_EVENTS sets how many events, 10 000 by default; `make core-events` plays a million.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.rule import Claim, Rule
from tests.server.core.rule_by_definition import Definition

EVENTS = int(os.environ.get("EDT_RULE_EVENTS", "10000"))
FLAT = (InstanceGroup(name="g"),)
TREE = (
    InstanceGroup(name="a", own=6, share=2),
    InstanceGroup(name="b", own=3, lend=2),
    InstanceGroup(name="c", borrow=8),
    InstanceGroup(name="a1", parent="a", own=3),
    InstanceGroup(name="a2", parent="a", share=3),
    InstanceGroup(name="a21", parent="a2", own=1, lend=0),
    InstanceGroup(name="a22", parent="a2", user_shares={"u": 3, "*": 2}),
    InstanceGroup(name="c1", parent="c", policy="priority"),
    InstanceGroup(name="c2", parent="c", throughput_aware=True),
    InstanceGroup(name="c3", parent="c", policy="fifo"),
)
CROWDED = (
    *TREE[:-2],
    InstanceGroup(name="c2", parent="c"),
    InstanceGroup(name="c3", parent="c", policy="fifo", user_shares={"u": 2, "*": 1}),
    InstanceGroup(name="d", policy="priority", own=2, lend=1),
    InstanceGroup(name="e", own=4, borrow=1),
)
# A strict queue with users and slots of its own: within these, users take turns too.
OWNED = (*CROWDED[:-2], InstanceGroup(name="d", policy="priority", own=2, user_shares={"*": 1}), CROWDED[-1])
# With limits for users, under every policy, next to and below other limits.
LIMITED = (
    *CROWDED[:6],
    InstanceGroup(name="a22", parent="a2", user_shares={"u": 3, "*": 2}, user_slots=3),
    *CROWDED[7:9],
    InstanceGroup(name="c3", parent="c", policy="fifo", user_slots=1),
    InstanceGroup(name="d", policy="priority", own=2, lend=1, user_slots=2),
    InstanceGroup(name="e", own=4, borrow=3, user_slots=3),
)
TABLES = ((), ((1, 1.0), (2, 1.9), (4, 3.5)), ((1, 3.0), (4, 6.0), (8, 5.0)), ((2, 5.0),))
WEIGHTS = (1, 2, 3, 1000, 2000, 3000, 5000, 5000, 10000, 10**9)


def leaves(groups):
    parents = {group.parent for group in groups}
    return [group.name for group in groups if group.name not in parents]


def arrival(rng, number, groups, floors):
    return Claim(
        job=f"j{number}",
        group=rng.choice(groups),
        user=rng.choice("uvw"),
        weight=rng.choice(WEIGHTS),
        order=number,
        turn=number,
        floor=rng.choice(floors),
        cap=rng.choice((1, 2, 4, 8, 16, 100)),
        speeds=rng.choice(TABLES),
    )


class History:
    """A rule with the claims it was given, and the rule that is asked everything anew."""

    def __init__(self, groups, slots, seed, most_jobs, floors=(1,)):
        self.rng = random.Random(seed)
        self.groups, self.slots, self.most_jobs, self.floors = groups, slots, most_jobs, floors
        self.names = leaves(groups)
        self.rule = Rule(groups, slots)
        self.claims = {}
        self.turns = {}
        self.targets = {}
        self.number = 0

    def step(self):
        """One random event: (kind, job or None, old claim, new claim); the rule is not settled yet."""
        rng, self.number = self.rng, self.number + 1
        choice = rng.random()
        if not self.claims or (choice < 0.3 and len(self.claims) < self.most_jobs):
            claim = arrival(rng, self.number, self.names, self.floors)
            return self.put(claim, None)
        job = rng.choice(list(self.claims))
        old = self.claims[job]
        if choice < 0.5:
            self.rule.remove(job)
            del self.claims[job]
            return "less", job
        if choice < 0.75:
            return self.put(replace(old, weight=rng.choice(WEIGHTS)), old)
        if choice < 0.95:
            return self.put(replace(old, cap=max(old.floor, rng.choice((0, 1, 2, 4, 8, 16, 100)))), old)
        slots = max(0, self.slots + rng.choice((-8, -1, 1, 8)))
        kind = "less" if slots >= self.slots else "more"
        self.slots = slots
        self.rule.set_slots(slots)
        return kind, None

    def put(self, claim, old):
        self.rule.put(claim)
        self.claims[claim.job] = claim
        if old is None or (claim.weight >= old.weight and claim.cap >= old.cap):
            return "more", claim.job
        return "less", claim.job

    def settle(self):
        changed = self.rule.settle()
        after = {job: target for job, target in self.targets.items() if job in self.claims}
        assert all(after.get(job, 0) != target for job, target in changed.items()), "told of what did not change"
        return after | changed

    def replan(self):
        """A new rule under the present groups, as the core makes one for another plan: its targets start at 0."""
        self.rule, self.targets = self.made(), {}

    def made(self):
        rule = Rule(self.groups, self.slots)
        for claim in self.claims.values():
            rule.put(claim)
        for (group, user), turn in self.turns.items():
            rule.set_turn(group, user, turn)
        return rule

    def anew(self):
        rule = self.made()
        rule.settle()
        return {job: rule.target(job) for job in self.claims}

    def next_turn(self):
        """Somebody's turn is over: a job, or a leaf with a strict policy, goes behind all others."""
        self.number += 1
        strict = [group for group in self.groups if group.policy != "fairshare"]
        if strict and self.rng.random() < 0.3:
            group = self.rng.choice(strict)
            at = group.name, self.rng.choice("uvw") if group.weights_of_users is not None else ""
            self.turns[at] = self.number
            self.rule.set_turn(*at, self.number)
        elif self.claims:
            job = self.rng.choice(list(self.claims))
            self.put(replace(self.claims[job], turn=self.number), self.claims[job])

    def keep(self):
        """Somebody keeps what it has, or not any more."""
        if self.claims:
            job = self.rng.choice(list(self.claims))
            old = self.claims[job]
            self.put(replace(old, keep=self.rng.choice((0, min(old.cap, self.targets.get(job, 0))))), old)

    def compare(self):
        """What was kept up to date is what a rule says that has seen nothing else."""
        expected = self.anew()
        assert {name: self.targets.get(name, 0) for name in expected} == expected
        assert all(self.rule.target(name) == target for name, target in expected.items())


def check_ways(kind, job, before, after):
    """ "more" is asked for, or less is there: nobody else grows. "less": nobody else shrinks."""
    grew = [name for name in before if name != job and name in after and after[name] > before[name]]
    shrank = [name for name in before if name != job and name in after and after[name] < before[name]]
    assert not (grew if kind == "more" else shrank), (kind, job)
    if kind == "more" and job is not None:
        lost = sum(before[name] - after[name] for name in shrank)
        assert lost <= max(0, after.get(job, 0) - before.get(job, 0)), "more moved than it got"


@pytest.mark.parametrize(
    ("groups", "slots", "most_jobs", "share"),
    [
        (FLAT, 64, 40, 0.3),
        (TREE, 60, 40, 0.4),
        (TREE, 20, 30, 0.1),
        (FLAT, 8, 12, 0.1),
        (TREE, 500, 60, 0.08),
        (TREE, 5000, 60, 0.02),
    ],
    ids=("flat", "tree", "crowded-tree", "crowded", "roomy", "in-arrays"),
)
def test_kept_up_to_date_is_worked_out_from_nothing_and_nobody_moves_the_wrong_way(groups, slots, most_jobs, share):
    history = History(groups, slots, f"{slots}{most_jobs}", most_jobs)
    for number in range(int(EVENTS * share)):
        kind, job = history.step()
        before, history.targets = history.targets, history.settle()
        check_ways(kind, job, before, history.targets)
        if number % 25 == 0 or number < 500:
            history.compare()


def check_limits(groups, claims, targets):
    """The jobs of a user together have at most the quota of slots."""
    for group in groups:
        if group.user_slots is not None:
            for user in "uvw":
                mine = [claim.job for claim in claims if (claim.group, claim.user) == (group.name, user)]
                assert sum(targets.get(job, 0) for job in mine) <= group.user_slots, (group.name, user)


@pytest.mark.parametrize(
    ("groups", "slots", "most_jobs", "share"),
    [
        (CROWDED, 4, 60, 0.05),
        (CROWDED, 20, 60, 0.05),
        (CROWDED, 30, 300, 0.02),
        (OWNED, 20, 60, 0.05),
        (OWNED, 9, 60, 0.05),
        (LIMITED, 20, 60, 0.05),
        (LIMITED, 40, 40, 0.05),
        (LIMITED, 300, 60, 0.02),
    ],
    ids=("few", "some", "queues", "owned", "owned-few", "limited", "limited-some", "limited-roomy"),
)
def test_turns_are_kept_up_to_date_in_a_crowd(groups, slots, most_jobs, share):
    history = History(groups, slots, f"turns{slots}", most_jobs)
    rng = history.rng
    for number in range(int(EVENTS * share)):
        (history.next_turn if rng.random() < 0.5 else history.step)()
        history.targets = history.settle()
        check_limits(groups, history.claims.values(), history.targets)
        if number % 10 == 0 or number < 300:
            history.compare()
        if number % 50 == 0 or number < 60:
            by_definition = Definition(groups, history.slots, list(history.claims.values()), history.turns).targets()
            assert by_definition == {job: history.targets.get(job, 0) for job in by_definition}


@pytest.mark.parametrize("slots", [6, 25])
def test_what_jobs_keep_is_kept_up_to_date_in_a_crowd(slots):
    history = History(CROWDED, slots, f"keep{slots}", 50)
    for number in range(EVENTS // 30):
        history.rng.choice((history.keep, history.keep, history.next_turn, history.step))()
        history.targets = history.settle()
        if number % 5 == 0 or number < 300:
            history.compare()


def test_several_changes_in_one_settle_and_other_plans_between():
    history = History(TREE, 40, "several", 30, floors=(1, 1, 1, 2, 3))
    others = (*TREE[:-1], replace_group(TREE[-1], policy="fairshare"), InstanceGroup(name="d", own=5, share=9))
    for number in range(2_000):
        for _ in range(history.rng.randint(1, 4)):
            history.step()
        if number % 50 == 25:
            history.groups = others if history.groups is TREE else TREE
            history.replan()
        history.targets = history.settle()
        history.compare()


def replace_group(group, **settings):
    fields = {name: getattr(group, name) for name in group.__struct_fields__}
    return InstanceGroup(**(fields | settings))
