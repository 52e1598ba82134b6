"""Several queues and groups of hosts: what a plan does to the core, and what a change of it does to jobs."""

from __future__ import annotations

import msgspec
import pytest

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.plan import InstanceGroup, Plan, ResourceGroup
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import PlanChanged, SlotsChanged
from edt_server.core.instructions import Grant, Revoke
from tests.server.core.invariants import replayed


def plan(*groups: InstanceGroup, resources: tuple[ResourceGroup, ...] = Plan().resource_groups) -> Plan:
    return Plan(instance_groups=groups, resource_groups=resources)


DAY, NIGHT = InstanceGroup(name="day"), InstanceGroup(name="night")


class TestGroups:
    def test_an_unknown_group_is_refused_with_those_there_are(self):
        core = Core(plan(DAY, NIGHT))
        with pytest.raises(EdtError, match="day, night"):
            core.fits("noon")
        assert core.plan.group("night").policy == "fairshare"
        assert [group.name for group in core.plan.leaves()] == ["day", "night"]

    def test_groups_share_the_slots_by_their_shares(self, play):
        p = play(8, plan=plan(DAY, InstanceGroup(name="night", share=3)))
        p.run("a", group="day")
        p.run("b", group="night")
        p.run("c", group="night")
        assert p.shares == {"a": 2, "b": 3, "c": 3}

    def test_a_job_moves_while_it_runs(self, play):
        p = play(8, plan=plan(DAY, NIGHT))
        p.run("a", group="day")
        p.run("b", group="day")
        p.run("c", group="night")
        assert p.shares == {"a": 2, "b": 2, "c": 4}
        p.change("b", instance_group="night")
        assert p.shares == {"a": 4, "b": 2, "c": 2}
        assert p.core.group_of("b").name == "night"

    def test_without_preemption_a_job_keeps_what_it_has_until_it_gives_it_up(self, play):
        p = play(4, plan=plan(InstanceGroup(name="default", preemption=False)))
        p.run("a")
        assert p.run("b") == []
        assert p.shares == {"a": 4, "b": 0}
        assert p.release("a", 1) == [Grant("b", 1, 1)]
        assert p.release("a", 2) == [Grant("b", 2, 2)]
        assert p.train("a", 2) == []
        p.train("a", 0)
        assert p.shares == {"a": 0, "b": 4}

    def test_priority_is_strict_and_fifo_is_too(self, play):
        p = play(4, plan=plan(InstanceGroup(name="default", policy="priority")))
        p.run("low", 5000)
        p.run("high", 5001, max_workers=3)
        assert p.shares == {"low": 1, "high": 3}
        p.run("top", 9000)
        assert p.shares == {"low": 0, "high": 0, "top": 4}
        q = play(4, plan=plan(InstanceGroup(name="default", policy="fifo")))
        q.run("first", 1, max_workers=3)
        q.run("second", 10**9)
        assert q.shares == {"first": 3, "second": 1}


class TestResourceGroups:
    PLAN = plan(
        InstanceGroup(name="fast", resource_group="gpus"),
        InstanceGroup(name="slow"),
        resources=(ResourceGroup(name="gpus", hosts=("g1", "g2")), ResourceGroup(name="default")),
    )

    @staticmethod
    def slots(**hosts: int) -> SlotsChanged:
        names = [host for host, number in hosts.items() for _ in range(number)]
        return SlotsChanged(tuple(Slot(id=number, host=host) for number, host in enumerate(names)))

    def test_each_job_has_slots_of_the_group_its_own_is_over(self, play):
        p = play(0, plan=self.PLAN)
        p.step(self.slots(g1=2, g2=1, old=2))
        p.run("a", group="fast")
        p.run("b", group="slow")
        assert p.core.holding("a") == (0, 1, 2)
        assert p.core.holding("b") == (3, 4)
        assert p.core.resource_group_of(2) == "gpus"

    def test_a_job_that_moves_leaves_its_slots_and_is_given_others(self, play):
        p = play(0, plan=self.PLAN)
        p.step(self.slots(g1=2, old=3))
        p.run("a", group="fast")
        p.run("b", group="fast")
        assert p.shares == {"a": 1, "b": 1}
        instructions = p.change("a", instance_group="slow")
        assert instructions == [Revoke("a", 0, 3), Grant("a", 2, 1), Grant("a", 3, 2), Grant("a", 4, 3)]
        assert p.shares == {"a": 3, "b": 2}

    def test_a_host_that_changes_sides_takes_its_slots_along(self, play):
        p = play(0, plan=self.PLAN)
        p.step(self.slots(g1=2, old=2))
        p.run("a", group="fast")
        p.run("b", group="slow")
        p.step(
            PlanChanged(
                msgspec.structs.replace(
                    self.PLAN,
                    resource_groups=(ResourceGroup(name="gpus", hosts=("g1", "old")), ResourceGroup(name="default")),
                )
            )
        )
        assert p.core.leaving("b") == (2, 3)
        assert p.shares == {"a": 4, "b": 0}

    def test_slots_of_hosts_that_nobody_takes_are_idle(self, play):
        p = play(0, plan=plan(DAY, resources=(ResourceGroup(name="default", hosts=("here",)),)))
        p.step(self.slots(here=1, there=2))
        p.run("a", group="day")
        assert p.shares == {"a": 1}
        assert p.core.resource_group_of(1) is None


class TestPlanChanges:
    def test_it_takes_effect_at_once(self, play):
        p = play(8, plan=plan(DAY, NIGHT))
        p.run("a", group="day")
        p.run("b", group="night")
        assert p.shares == {"a": 4, "b": 4}
        p.step(PlanChanged(plan(DAY, InstanceGroup(name="night", own=7))))
        assert p.shares == {"a": 1, "b": 7}
        assert replayed(p.history, plan(DAY, NIGHT)).digest() == p.core.digest()

    def test_the_same_plan_changes_nothing(self, play):
        p = play(4)
        p.run("a")
        p.run("b")
        digest = p.core.digest()
        assert p.step(PlanChanged(Plan())) == []
        assert p.core.digest() == digest

    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            (plan(NIGHT), "'day' cannot be removed: it has 1 job, such as a"),
            (plan(DAY, InstanceGroup(name="early", parent="day")), "'day' cannot hold other groups: it has 1 job"),
            (plan(DAY, DAY), "Two instance groups"),
            (plan(InstanceGroup(name="day", share=-1)), "share"),
            (plan(DAY, InstanceGroup(name="x", parent="y"), InstanceGroup(name="y", parent="x")), "parents"),
            (plan(DAY, resources=(ResourceGroup(name="default", slots="many"),)), "formula"),
        ],
    )
    def test_a_plan_that_does_not_fit_is_refused_and_changes_nothing(self, play, wrong, why):
        p = play(2, plan=plan(DAY, NIGHT))
        p.run("a", group="day")
        digest = p.core.digest()
        with pytest.raises(Unprocessable, match=why):
            p.core.apply(PlanChanged(wrong), 9.0)
        assert p.core.digest() == digest
