"""The plan over REST: read, replaced, changed one group at a time, and refused where it cannot be, changing nothing."""

from __future__ import annotations

import pytest
from jupyter_server.auth import Authorizer

from edt_sdk.schemas.plan import QUOTAS

GROUP = {
    "name": "default", "resource_group": "default", "parent": "", "policy": "fairshare", "preemption": True, "share": 1,
    "own": 0, "lend": None, "borrow": None, "user_shares": None, "throughput_aware": False, "quantum": 60.0,
    "pending_timeout": None, "max_priority": 10000, **dict.fromkeys(QUOTAS),
}  # fmt: skip


@pytest.fixture
def edt_config():
    return {"local_slots": 8}


@pytest.fixture
def plan(call):
    async def read():
        return (await call("GET", "plan")).json

    return read


async def test_a_new_store_begins_with_the_default(plan, call):
    assert await plan() == {
        "resource_groups": [{"name": "default", "hosts": [], "slots": "", "portable": False}],
        "instance_groups": [GROUP],
    }
    assert (await call("GET", "instance-groups")).json == {"instance_groups": [GROUP]}
    assert (await call("GET", "resource-groups/default")).json == {
        "name": "default",
        "hosts": [],
        "slots": "",
        "portable": False,
    }


async def test_replaced_as_a_whole(plan, call):
    wanted = {
        "resource_groups": [{"name": "cpu", "hosts": [], "slots": "4", "portable": True}],
        "instance_groups": [
            {**GROUP, "name": "lab", "resource_group": "cpu"},
            {**GROUP, "name": "day", "resource_group": "cpu", "parent": "lab", "own": 2, "lend": 1},
            {**GROUP, "name": "night", "resource_group": "cpu", "parent": "lab", "policy": "fifo", "share": 3},
        ],
    }
    answer = await call("PUT", "plan", body=wanted)
    assert (answer.status, answer.json) == (200, wanted)
    assert await plan() == wanted
    assert (await call("GET", "/")).json["instance_groups"] == ["day", "night"]
    assert len((await call("GET", "cluster")).json["slots"]) == 4
    again = await call("PUT", "plan", body=wanted)
    assert (again.status, await plan()) == (200, wanted)


async def test_two_administrators_do_not_overwrite_each_other(plan, call):
    read = await call("GET", "plan")
    tag = read.headers["ETag"]
    first = {**read.json, "instance_groups": [{**GROUP, "share": 2}]}
    second = {**read.json, "instance_groups": [{**GROUP, "own": 1}]}
    done = await call("PUT", "plan", body=first, headers={"If-Match": tag})
    assert (done.status, done.json) == (200, first)
    late = await call("PUT", "plan", body=second, headers={"If-Match": tag})
    assert (late.status, late.json["code"]) == (412, "changed_meanwhile")
    assert "changed by somebody else" in late.json["message"]
    assert "Read it again" in late.json["hint"]
    assert await plan() == first
    again = (await call("GET", "plan")).headers["ETag"]
    assert again == done.headers["ETag"] != tag
    assert (await call("PUT", "plan", body=second, headers={"If-Match": f"W/{again}"})).status == 200
    for whatever in ({}, {"If-Match": "*"}):
        assert (await call("PUT", "plan", body=first, headers=whatever)).status == 200
    refused = await call("PUT", "plan", body={"groups": []}, headers={"If-Match": tag})
    assert (refused.status, "ETag" in refused.headers) == (422, False)


async def test_one_group_at_a_time(plan, call):
    made = await call("POST", "instance-groups", body={"name": "night shift", "share": 2})
    assert (made.status, made.json) == (201, {**GROUP, "name": "night shift", "share": 2})
    changed = await call("PATCH", "instance-groups/night shift", body={"own": 3, "policy": "priority", "lend": 1})
    assert (changed.status, changed.json["own"], changed.json["share"]) == (200, 3, 2)
    assert (await call("PATCH", "instance-groups/night shift", body={"lend": None})).json["lend"] is None
    assert (await call("GET", "instance-groups/night shift")).json["policy"] == "priority"
    assert [group["name"] for group in (await plan())["instance_groups"]] == ["default", "night shift"]
    assert (await call("DELETE", "instance-groups/night shift")).status == 204
    assert (await plan())["instance_groups"] == [GROUP]
    gpus = {"name": "gpus", "hosts": ["far-away"], "slots": "ngpus", "portable": True}
    made = await call("POST", "resource-groups", body=gpus)
    assert (made.status, made.json) == (201, gpus)
    assert (await call("PATCH", "resource-groups/gpus", body={"slots": "2"})).json["slots"] == "2"
    assert [group["name"] for group in (await call("GET", "resource-groups")).json["resource_groups"]][1] == "gpus"
    assert (await call("DELETE", "resource-groups/gpus")).status == 204


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", "plan", {"instance_groups": []}, "instance_groups"),
        ("PUT", "plan", {"groups": []}, "groups"),
        ("PUT", "plan", {"instance_groups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]}, "parent"),
        ("PUT", "plan", {"instance_groups": [{"name": "a", "share": "much"}]}, "share"),
        ("PUT", "plan", {"resource_groups": [{"name": "default", "slots": "a lot"}]}, "slots"),
        ("PUT", "plan", [], None),
        ("POST", "instance-groups", {"name": "default"}, "name"),
        ("POST", "instance-groups", {"name": "a/b"}, "name"),
        ("POST", "instance-groups", {"share": 2}, "name"),
        ("POST", "instance-groups", {"name": "a", "share": -1}, "share"),
        ("POST", "instance-groups", {"name": "a", "share": 0}, "share"),
        ("POST", "instance-groups", {"name": "a", "parent": "nobody"}, "parent"),
        ("POST", "instance-groups", {"name": "a", "resource_group": "moon"}, "resource_group"),
        ("POST", "instance-groups", {"name": "a", "colour": "red"}, "colour"),
        ("POST", "instance-groups", {"name": "a", "quantum": "soon"}, "quantum"),
        ("PATCH", "instance-groups/default", {"own": -1}, "own"),
        ("PATCH", "instance-groups/default", {"policy": "lottery"}, "policy"),
        ("PATCH", "instance-groups/default", {"parent": "default"}, "parent"),
        ("PATCH", "instance-groups/default", {"name": "other"}, "name"),
        ("PATCH", "instance-groups/default", {"colour": "red"}, "colour"),
        ("PATCH", "instance-groups/default", [], None),
        ("DELETE", "instance-groups/default", None, "instance_groups"),
        ("POST", "resource-groups", {"name": "b"}, "hosts"),
        ("POST", "resource-groups", {"name": "b", "hosts": ["h"], "slots": "1.5"}, "slots"),
        ("PATCH", "resource-groups/default", {"slots": "ncpus+1"}, "slots"),
        ("PATCH", "resource-groups/default", {"hosts": ["a", "a"]}, "hosts"),
        ("DELETE", "resource-groups/default", None, "name"),
    ],
)
async def test_what_cannot_be_is_refused_and_changes_nothing(plan, call, method, path, body, field):
    before = await plan()
    answer = await call(method, path, body=body)
    assert (answer.status, answer.json["code"]) == (422, "unprocessable"), answer.json
    assert answer.json.get("field") == field, answer.json
    assert answer.json["message"].endswith(".")
    assert await plan() == before


async def test_what_is_not_there_and_what_is_no_json(call):
    for method in ("GET", "PATCH", "DELETE"):
        for kind in ("instance-groups", "resource-groups"):
            answer = await call(method, f"{kind}/nobody", body={"own": 1} if method == "PATCH" else None)
            assert (answer.status, answer.json["code"], answer.json["hint"]) == (
                404, "not_found", "There are: default.",
            )  # fmt: skip
    for method, path in (("PUT", "plan"), ("POST", "instance-groups"), ("PATCH", "resource-groups/default")):
        assert (await call(method, path, body=b"{")).status == 400


async def test_a_group_with_jobs_stays_until_they_have_moved(call, submit, plan):
    await call("POST", "instance-groups", body={"name": "night"})
    job = (await submit(instance_group="night")).json["id"]
    before = await plan()
    for method, path, body in (
        ("DELETE", "instance-groups/night", None),
        ("PUT", "plan", {}),
        ("POST", "instance-groups", {"name": "late", "parent": "night"}),
    ):
        answer = await call(method, path, body=body)
        assert (answer.status, await plan()) == (422, before)
        assert job in answer.json["message"]
    moved = await call("PATCH", f"jobs/{job}", body={"instance_group": "default"})
    assert (moved.status, moved.json["instance_group"]) == (200, "default")
    assert (await call("DELETE", "instance-groups/night")).status == 204
    story = " ".join(event["text"] for event in (await call("GET", f"jobs/{job}/events")).json["events"])
    assert "instance group is now default (was night)" in story


async def test_a_job_that_names_no_group_goes_into_the_first(call, submit):
    await call("PUT", "plan", body={"instance_groups": [{"name": "day"}, {"name": "night"}]})
    assert (await submit()).json["instance_group"] == "day"
    refused = await submit(instance_group="default")
    assert (refused.status, refused.json["hint"]) == (422, "Choose one of: day, night.")


async def test_slots_follow_the_plan_while_jobs_run(call, submit, edt):
    import os

    jobs = [(await submit()).json["id"] for _ in range(3)]

    async def slots():
        return {slot["id"]: slot["job"] for slot in (await call("GET", "cluster")).json["slots"]}

    assert sorted(await slots()) == list(range(8))
    assert (await call("PATCH", "resource-groups/default", body={"slots": "3"})).status == 200
    assert await slots() == dict(enumerate(jobs))  # those that stay are the same
    assert (await call("PATCH", "resource-groups/default", body={"slots": "ncpus"})).status == 200
    assert len(await slots()) == len(os.sched_getaffinity(0))
    await call("PATCH", "resource-groups/default", body={"slots": "0"})

    async def why():
        return {(await call("GET", f"jobs/{job}")).json["reason"]["code"] for job in jobs}

    assert await why() == {"never_fits"}
    assert (await call("PATCH", "resource-groups/default", body={"slots": ""})).status == 200
    assert len(await slots()) == 8


async def test_the_list_of_events_tells_who_changed_what(call, edt):
    await call("PATCH", "instance-groups/default", body={"own": 2})
    event = edt.service._ledger.store.events(kinds=["plan_changed"])[-1]
    assert event.data["plan"]["instance_groups"][0]["own"] == 2
    assert event.data["before"]["instance_groups"][0]["own"] == 0
    assert event.data["by"] == (await call("GET", "/")).json["user"]


class OnlyReads(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return action == "read" or resource != "edt:plan"


class TestWhoMayNot:
    @pytest.fixture
    def jp_server_config(self, jp_server_config):
        jp_server_config["ServerApp"]["authorizer_class"] = OnlyReads
        return jp_server_config

    async def test_reads_and_submits_but_does_not_administer(self, call, submit, plan):
        before = await plan()
        for method, path, body in (
            ("PUT", "plan", {}),
            ("POST", "instance-groups", {"name": "mine"}),
            ("PATCH", "instance-groups/default", {"own": 8}),
            ("DELETE", "instance-groups/default", None),
            ("POST", "resource-groups", {"name": "mine", "hosts": ["h"]}),
            ("PATCH", "resource-groups/default", {"slots": "8"}),
            ("DELETE", "resource-groups/default", None),
        ):
            answer = await call(method, path, body=body)
            assert (answer.status, answer.json["code"]) == (403, "not_allowed")
        assert await plan() == before
        assert (await submit()).status == 201


class TestConfigured:
    @pytest.fixture
    def edt_config(self):
        return {
            "local_slots": 4,
            "instance_groups": ["day", {"name": "night", "policy": "fifo", "own": 1}],
            "resource_groups": [{"name": "cpus", "slots": "2"}],
        }

    async def test_is_what_a_new_store_begins_with(self, plan, call):
        day, night = (await plan())["instance_groups"]
        assert (day["name"], day["resource_group"], day["policy"]) == ("day", "cpus", "fairshare")
        assert (night["name"], night["resource_group"], night["own"]) == ("night", "cpus", 1)
        assert len((await call("GET", "cluster")).json["slots"]) == 2


class TestConfiguredWrongly:
    @pytest.fixture
    def edt_config(self):
        return {"instance_groups": [{"name": "day", "share": 0}]}

    async def test_every_route_says_why(self, call):
        answer = await call("GET", "jobs")
        assert (answer.status, answer.json["field"]) == (422, "share")
