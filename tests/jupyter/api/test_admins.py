"""Who may change the plan: the admins of a server of several users, and the one user of a person's own server."""

from __future__ import annotations

import functools

import pytest

from tests.jupyter.users import AsAnn

CHANGES = (
    ("PUT", "plan", {}),
    ("POST", "instance-groups", {"name": "mine"}),
    ("PATCH", "instance-groups/default", {"own": 8}),
    ("DELETE", "instance-groups/default", None),
    ("POST", "resource-groups", {"name": "mine", "hosts": ["h"]}),
    ("PATCH", "resource-groups/default", {"slots": "8"}),
    ("DELETE", "resource-groups/default", None),
)
BOB = {"Authorization": "token bob-secret"}


@pytest.fixture
def submit(submit):
    """Elastic jobs, whose number of workers may change."""
    return functools.partial(submit, framework="edtPyTorch")


class TestAServerOfSeveralUsers(AsAnn):
    @pytest.fixture
    def edt_config(self):
        return {"admins": {"ann"}}

    async def test_only_an_admin_changes_the_plan(self, call):
        before = (await call("GET", "plan", headers=dict(BOB))).json
        for method, path, body in CHANGES:
            answer = await call(method, path, body=body, headers=dict(BOB))
            assert (answer.status, answer.json["code"]) == (403, "not_allowed"), (method, path)
            assert answer.json["message"] == (
                "You are bob, and may not change the plan of this server: its admins may, ann."
            )
            assert "adds 'bob' to c.EdtApp.admins" in answer.json["hint"]
        assert (await call("GET", "plan")).json == before
        assert (await call("POST", "instance-groups", body={"name": "night"})).status == 201
        assert (await call("DELETE", "instance-groups/night")).status == 204

    async def test_a_client_of_wmla_has_the_same_rights(self, call, jp_fetch):
        from tornado.httpclient import HTTPClientError

        await call("POST", "instance-groups", body={"name": "night"})
        path = ("platform", "rest", "deeplearning", "v1", "resplans", "resplan", "night")
        with pytest.raises(HTTPClientError) as refused:
            await jp_fetch(*path, method="DELETE", headers=dict(BOB))
        assert refused.value.code == 403
        assert b"You are bob" in refused.value.response.body
        assert (await call("GET", "instance-groups/night", headers=dict(BOB))).status == 200
        await jp_fetch(*path, method="DELETE")


class TestAServerWithoutAnAdmin(AsAnn):
    async def test_nobody_changes_the_plan_and_the_answer_says_how_to_grant_it(self, call):
        answer = await call("PATCH", "instance-groups/default", body={"own": 8})
        assert (answer.status, "has no admin yet" in answer.json["message"]) == (403, True)
        assert "c.EdtApp.admins" in answer.json["hint"]


class TestAServerOfAHubsUser(AsAnn):
    @pytest.fixture
    def jp_environ(self, jp_environ, monkeypatch):
        monkeypatch.setenv("JUPYTERHUB_USER", "ann")

    async def test_belongs_to_its_owner(self, call):
        assert (await call("PATCH", "instance-groups/default", body={"own": 1})).status == 200
        assert (await call("PATCH", "instance-groups/default", body={"own": 2}, headers=dict(BOB))).status == 403


class TestAServiceOfAHub(TestAServerOfAHubsUser):
    @pytest.fixture
    def jp_environ(self, jp_environ, monkeypatch):
        monkeypatch.setenv("JUPYTERHUB_USER", "ann")  # the account of the service
        monkeypatch.setenv("JUPYTERHUB_SERVICE_NAME", "edt")

    async def test_belongs_to_its_owner(self, call):
        assert (await call("PATCH", "instance-groups/default", body={"own": 1})).status == 403


async def test_the_one_user_of_a_server_is_its_admin(call):
    assert (await call("PATCH", "instance-groups/default", body={"own": 1})).status == 200


class TestTheHighestPriority(AsAnn):
    @pytest.fixture
    def edt_config(self):
        return {"admins": {"ann"}, "instance_groups": ["default", {"name": "low", "max_priority": 7000}]}

    async def test_is_met_at_submit_update_clone_and_resume(self, submit, call):
        refused = await submit(priority=10_001, headers=dict(BOB))
        assert (refused.status, refused.json["field"]) == (422, "priority")
        assert refused.json["message"] == "priority is at most 10000 in the instance group 'default', not 10001."
        assert "Only an admin" in refused.json["hint"]
        assert (await submit(priority=7001, instance_group="low", headers=dict(BOB))).status == 422
        job = (await submit(priority=10_000, headers=dict(BOB))).json["id"]
        for body in ({"priority": 20_000}, {"instance_group": "low"}):
            assert (await call("PATCH", f"jobs/{job}", body=body, headers=dict(BOB))).json["field"] == "priority"
        seen = await call("GET", f"jobs/{job}/what-if", params={"priority": 20_000}, headers=dict(BOB))
        assert (seen.status, seen.json["field"]) == (422, "priority")
        assert (await call("PATCH", f"jobs/{job}", body={"max_workers": 2}, headers=dict(BOB))).status == 200
        clone = {"source": {"job": job}, "spec": {"priority": 10_001}}
        assert (await call("POST", "submissions", body=clone, headers=dict(BOB))).json["field"] == "priority"
        moved = await call("POST", f"jobs/{job}/resume", body={"instance_group": "low"}, headers=dict(BOB))
        assert (moved.status, moved.json["field"]) == (422, "priority")
        assert (await call("GET", f"jobs/{job}", headers=dict(BOB))).json["priority"] == 10_000

    async def test_an_admin_exceeds_it_and_a_lower_bound_changes_no_job(self, submit, call):
        job = (await submit(priority=50_000)).json
        assert job["priority"] == 50_000
        his = (await submit(priority=9000, headers=dict(BOB))).json["id"]
        assert (await call("PATCH", "instance-groups/default", body={"max_priority": 8000})).status == 200
        changed = await call("PATCH", f"jobs/{his}", body={"max_workers": 2, "notes": "x"}, headers=dict(BOB))
        assert (changed.status, changed.json["priority"]) == (200, 9000)
        assert (await call("PATCH", f"jobs/{his}", body={"priority": 8001}, headers=dict(BOB))).status == 422


async def test_the_one_user_of_a_server_has_no_bound(submit):
    assert (await submit(priority=10**9)).json["priority"] == 10**9
