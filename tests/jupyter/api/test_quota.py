"""Quotas over REST: a submission above one is refused with what frees it, and jobs wait for the others."""

from __future__ import annotations

import pytest

from tests.jupyter.users import AsAnn
from tests.waiting import until_async

BOB = {"Authorization": "token bob-secret"}


class TestQuotas(AsAnn):
    @pytest.fixture
    def edt_config(self):
        return {"local_slots": 1, "admins": {"ann"}}

    @pytest.fixture
    def limit(self, call):
        async def change(**quotas):
            answer = await call("PATCH", "instance-groups/default", body=quotas)
            assert answer.status == 200, answer.json

        return change

    async def test_of_waiting_jobs_refuses_and_says_what_frees_it(self, submit, call, limit, leftovers):
        await limit(user_waiting=1)
        _, waits = [(await submit()).json["id"] for _ in range(2)]
        before = leftovers()
        refused = await submit()
        assert (refused.status, refused.json["code"], refused.json["quota"]) == (409, "conflict", "user_waiting")
        assert refused.json["message"] == (
            "A quota is used up: ann has 1 of at most 1 jobs without a slot in the instance group default "
            "(user_waiting)."
        )
        assert "edt stop ID" in refused.json["hint"]
        assert leftovers() == before
        assert (await submit(headers=dict(BOB))).status == 201, "the quota is of each user"
        assert (await call("POST", f"jobs/{waits}/stop", body=b"")).status == 202
        assert (await submit()).status == 201

    async def test_of_all_users_together(self, submit, limit):
        await limit(max_waiting=1)
        for _ in range(2):
            assert (await submit()).status == 201
        refused = await submit(headers=dict(BOB))
        assert (refused.status, refused.json["quota"]) == (409, "max_waiting")
        assert "all users together have 1" in refused.json["message"]

    async def test_is_met_by_a_move_and_by_a_resume(self, submit, call, limit):
        await call("POST", "instance-groups", body={"name": "night", "user_waiting": 1, "user_bytes": 1})
        job, other = [(await submit()).json["id"] for _ in range(2)]
        moved = await call("PATCH", f"jobs/{other}", body={"instance_group": "night"})
        assert moved.status == 200
        again = await call("PATCH", f"jobs/{job}", body={"instance_group": "night"})
        assert (again.status, again.json["quota"]) == (409, "user_bytes")
        await call("PATCH", "instance-groups/night", body={"user_bytes": None})
        third = (await submit()).json["id"]
        again = await call("PATCH", f"jobs/{third}", body={"instance_group": "night"})
        assert (again.status, again.json["quota"]) == (409, "user_waiting")

    async def test_of_stored_bytes_is_freed_by_delete(self, submit, call, limit):
        job = (await submit()).json["id"]
        await call("POST", f"jobs/{job}/stop", body=b"")

        async def over():
            return (await call("GET", f"jobs/{job}")).json["state"] == "KILLED"

        await until_async(over, "the end of the job, which may write until then")
        await limit(user_bytes=1)
        refused = await submit()
        assert (refused.status, refused.json["quota"]) == (409, "user_bytes")
        assert refused.json["used"] > 1
        assert "edt delete ID" in refused.json["hint"]
        await limit(user_bytes=None, max_bytes=10**12)
        (use,) = (await call("GET", "quota", headers=dict(BOB))).json["quotas"]
        assert (use["quota"], use["limit"], use["near"]) == ("max_bytes", 10**12, False)
        assert use["used"] == refused.json["used"], "bob sees what all users have stored"
        await limit(user_bytes=1, max_bytes=None)
        assert (await call("DELETE", f"jobs/{job}")).status == 204
        assert (await submit()).status == 201

    async def test_of_running_jobs_lets_them_wait_with_a_reason(self, submit, call, limit):
        await call("PATCH", "resource-groups/default", body={"slots": "4"})
        await limit(user_running=1, user_slots=3)
        first = (await submit(name="first")).json
        second = (await submit(name="second")).json
        assert (first["slots"], second["slots"], second["state"]) == (1, 0, "PENDING")
        assert second["reason"]["code"] == "quota"
        assert "1 job of ann may run at once in the instance group default, and first does" in second["reason"]["text"]
        found = {use["quota"]: use for use in (await call("GET", "quota")).json["quotas"]}
        assert {name: (use["used"], use["limit"], use["near"]) for name, use in found.items()} == {
            "user_running": (1, 1, True),
            "user_slots": (1, 3, False),
        }
        assert found["user_slots"]["text"] == (
            "ann has 1 of at most 3 slots in the instance group default (user_slots)."
        )
        await call("POST", f"jobs/{first['id']}/suspend", body=b"")
        story = await call("GET", f"jobs/{second['id']}")
        assert story.json["reason"] is None or story.json["reason"]["code"] != "quota"

    async def test_are_off_by_default(self, call):
        assert (await call("GET", "quota")).json == {"quotas": []}

    @pytest.mark.parametrize("body", [{"user_slots": 0}, {"max_bytes": -1}, {"max_running": "many"}])
    async def test_that_cannot_be(self, call, body):
        answer = await call("PATCH", "instance-groups/default", body=body)
        assert (answer.status, answer.json["field"]) == (422, next(iter(body)))

    async def test_belong_to_groups_with_jobs(self, call, limit):
        await limit(user_slots=2)
        answer = await call("POST", "instance-groups", body={"name": "inner", "parent": "default"})
        assert (answer.status, answer.json["field"]) == (422, "user_slots")
        assert "cannot have user_slots" in answer.json["message"]
