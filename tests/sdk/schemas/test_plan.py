"""What an administrator may set, and how each wrong value is refused: by its name, with the numbers."""

from __future__ import annotations

import json

import msgspec
import pytest

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.plan import InstanceGroup, Plan, ResourceGroup, parse_plan, slots_by_formula


def plan(*groups, resources=None):
    made = tuple(InstanceGroup(**group) for group in groups) or (InstanceGroup(name="default"),)
    if resources is None:
        return Plan(instance_groups=made)
    return Plan(instance_groups=made, resource_groups=tuple(ResourceGroup(**resource) for resource in resources))


def test_the_default_has_one_group_over_everything():
    default = Plan().check()
    assert [group.name for group in default.leaves()] == ["default"]
    assert default.group("default").resource_group == default.resource_groups[0].name


def test_survives_json():
    tree = plan(
        {"name": "lab", "own": 4, "lend": 2, "borrow": 0},
        {"name": "night", "parent": "lab", "policy": "fifo", "preemption": False, "pending_timeout": 3.5},
        {"name": "gpu", "resource_group": "big", "throughput_aware": True, "quantum": 1.0, "user_shares": {"ann": 3}},
        resources=[{"name": "default"}, {"name": "big", "hosts": ("a", "b"), "slots": "ncpus/2"}],
    ).check()
    assert parse_plan(msgspec.json.encode(tree)) == tree


@pytest.mark.parametrize(
    ("group", "field", "says"),
    [
        ({"name": ""}, "name", "cannot be the name"),
        ({"name": " a"}, "name", "cannot be the name"),
        ({"name": "a "}, "name", "cannot be the name"),
        ({"name": "a/b"}, "name", "'a/b'"),
        ({"name": ".."}, "name", "cannot be the name"),
        ({"name": "a\n"}, "name", "cannot be the name"),
        ({"name": "a" * 101}, "name", "1 to 100"),
        ({"name": "a", "policy": "lottery"}, "policy", "fairshare, priority, fifo, not 'lottery'"),
        ({"name": "a", "share": 0}, "share", "must lie in 1 … 1000000, not 0"),
        ({"name": "a", "share": -2}, "share", "not -2"),
        ({"name": "a", "share": 10**6 + 1}, "share", "not 1000001"),
        ({"name": "a", "own": -1}, "own", "cannot be -1"),
        ({"name": "a", "lend": -1}, "lend", "cannot be -1"),
        ({"name": "a", "borrow": -1}, "borrow", "cannot be -1"),
        ({"name": "a", "user_shares": {"ann": 0}}, "user_shares", "it is 0 for 'ann'"),
        ({"name": "a", "user_shares": {"": 1}}, "user_shares", "for ''"),
        ({"name": "a", "quantum": 0.0}, "quantum", "above 0, not 0.0"),
        ({"name": "a", "quantum": float("nan")}, "quantum", "nan"),
        ({"name": "a", "pending_timeout": float("inf")}, "pending_timeout", "inf"),
        ({"name": "a", "throughput_aware": True, "policy": "fifo"}, "throughput_aware", "needs policy fairshare"),
        ({"name": "a", "resource_group": "moon"}, "resource_group", "which is no resource group"),
        ({"name": "a", "parent": "b"}, "parent", "does not exist"),
        ({"name": "a", "parent": "a"}, "parent", "a → a"),
    ],
)
def test_a_wrong_group_is_refused_by_its_field(group, field, says):
    with pytest.raises(Unprocessable) as refused:
        plan(group).check()
    assert refused.value.ids["field"] == field
    assert says in str(refused.value)


@pytest.mark.parametrize("name", ["a", "A group of ann's".replace("'", ""), "night.2", "x_y-z", "a" * 100])
def test_names_that_people_use(name):
    assert plan({"name": name}).check().group(name).name == name


def test_a_cycle_is_told_as_it_goes():
    wrong = plan({"name": "a", "parent": "c"}, {"name": "b", "parent": "a"}, {"name": "c", "parent": "b"})
    with pytest.raises(Unprocessable, match="a → c → b → a are each other's parents"):
        wrong.check()
    with pytest.raises(Unprocessable, match="b → c → b"):
        plan({"name": "a", "parent": "b"}, {"name": "b", "parent": "c"}, {"name": "c", "parent": "b"}).check()


def test_a_group_that_holds_others_is_not_divided_among_users():
    with pytest.raises(Unprocessable, match="'lab' holds other groups: it is divided among them") as refused:
        plan({"name": "lab", "user_shares": {"ann": 1}}, {"name": "day", "parent": "lab"}).check()
    assert refused.value.ids["field"] == "user_shares"


def test_no_name_is_the_first_that_jobs_may_be_in():
    tree = plan({"name": "lab"}, {"name": "day", "parent": "lab"}, {"name": "night", "parent": "lab"})
    assert tree.group("").name == "day"


def test_parents_and_children_share_their_slots():
    with pytest.raises(Unprocessable, match="over different resource groups"):
        plan(
            {"name": "a"}, {"name": "b", "parent": "a", "resource_group": "big"},
            resources=[{"name": "default"}, {"name": "big", "hosts": ("h",)}],
        ).check()  # fmt: skip


def test_jobs_go_into_leaves_only():
    tree = plan({"name": "lab"}, {"name": "day", "parent": "lab"}, {"name": "night", "parent": "lab"}).check()
    assert [group.name for group in tree.leaves()] == ["day", "night"]
    with pytest.raises(Unprocessable, match=r"'lab' holds other groups, and no jobs\. Choose one of: day, night"):
        tree.group("lab")
    with pytest.raises(Unprocessable, match="There is no instance group 'noon'"):
        tree.group("noon")


@pytest.mark.parametrize(
    ("resources", "field", "says"),
    [
        ([], "instance_groups", "needs a resource group"),
        ([{"name": "default"}, {"name": "default", "hosts": ("a",)}], "name", "Two resource groups"),
        ([{"name": "default"}, {"name": "b"}], "hosts", "both take every host"),
        ([{"name": "default", "hosts": ("a",)}, {"name": "b", "hosts": ("a",)}], "hosts", "'default' and 'b'"),
        ([{"name": "default", "hosts": ("a", "a")}], "hosts", "'default' twice"),
        ([{"name": "default", "hosts": ("",)}], "hosts", "has no name"),
        ([{"name": "default", "slots": "ngpus+1"}], "slots", "'ngpus+1' is no formula"),
        ([{"name": "default", "slots": " "}], "slots", "no formula"),
        ([{"name": "a/b"}], "name", "resource group"),
    ],
)
def test_wrong_resource_groups(resources, field, says):
    with pytest.raises(Unprocessable) as refused:
        plan(resources=resources).check()
    assert refused.value.ids["field"] == field
    assert says in str(refused.value)


def test_two_groups_of_one_name():
    with pytest.raises(Unprocessable, match="Two instance groups have the name 'a'"):
        plan({"name": "a"}, {"name": "a", "share": 2}).check()
    with pytest.raises(Unprocessable, match="an instance group"):
        Plan(instance_groups=()).check()


@pytest.mark.parametrize(
    ("formula", "slots"),
    [
        ("ngpus", 2), ("ncpus", 9), ("ncpus/2", 4), ("ncpus / 2", 4), (" ngpus*3 ", 6), ("7", 7), ("0", 0),
        ("ncpus/10", 0),
    ],
)  # fmt: skip
def test_a_formula_counts_the_slots_of_a_host(formula, slots):
    assert slots_by_formula(formula, gpus=2, cpus=9) == slots


@pytest.mark.parametrize(
    "formula", ["", "ncpus/0", "-1", "1.5", "2*ncpus", "ncpus-1", "ncpus/2/2", "memory", "ncpus\n/2x", "1e3", "9" * 7]
)
def test_no_formula(formula):
    with pytest.raises(Unprocessable, match="is no formula for slots") as refused:
        slots_by_formula(formula, 1, 1)
    assert refused.value.ids["field"] == "slots"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"instance_groups": [{"name": "a", "share": "much"}]}, "share"),
        ({"instance_groups": [{"name": "a", "share": 1.5}]}, "share"),
        ({"instance_groups": [{"name": "a", "preemption": 1}]}, "preemption"),
        ({"instance_groups": [{"name": "a", "user_shares": {"ann": "x"}}]}, "user_shares"),
        ({"instance_groups": [{"name": "a", "shares": 1}]}, "shares"),
        ({"instance_groups": [{}]}, "name"),
        ({"resource_groups": [{"name": "a", "hosts": "h"}]}, "hosts"),
        ({"groups": []}, "groups"),
        ({"instance_groups": {}}, "instance_groups"),
    ],
)
def test_json_that_is_no_plan(body, field):
    with pytest.raises(Unprocessable) as refused:
        parse_plan(json.dumps(body))
    assert refused.value.ids.get("field") == field, str(refused.value)


def test_no_json():
    with pytest.raises(InvalidRequest, match="not JSON"):
        parse_plan(b"{")


def test_a_job_asks_for_no_other_instructions_than_its_portable_group():
    plan = Plan(
        resource_groups=(ResourceGroup(name="default"), ResourceGroup(name="mixed", hosts=("a",), portable=True)),
        instance_groups=(InstanceGroup(name="default"), InstanceGroup(name="any", resource_group="mixed")),
    ).check()
    exact, mixed = plan.instance_groups
    assert not plan.portable(exact, {"MKL_CBWR": "AVX2"})
    assert plan.portable(mixed, {"MKL_CBWR": "COMPATIBLE", "A": "b"})
    with pytest.raises(Unprocessable, match=r"env sets MKL_CBWR.*'mixed' is portable") as refused:
        plan.portable(mixed, {"MKL_CBWR": "AVX2"})
    assert refused.value.ids["field"] == "env"
