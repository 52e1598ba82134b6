"""Hosts over HTTP: who sees what, who changes what, and what a server without joined hosts answers."""

from __future__ import annotations

import socket

import pytest

from edt_sdk.schemas.wire.control import Slot
from edt_server.core.events import SlotsChanged
from tests.fleets import FleetInMemory, joined
from tests.jupyter.users import AsAnn

BOB = {"Authorization": "token bob-secret"}
CHANGES = (
    ("POST", "hosts/tokens", {}),
    ("POST", "hosts/gpu-1/drain", {}),
    ("DELETE", "hosts/gpu-1", None),
)


@pytest.fixture
def fleet(edt):
    """A fleet with two hosts, of which the first offers a third slot of the server."""
    fleet = edt.service.hosts.fleet = FleetInMemory(joined(), joined("gpu-2", why="It has been silent for 7 s."))
    return fleet


@pytest.fixture
def three_slots(edt):
    async def offer():
        there = edt.service._ledger.core.slots
        slots = (*there, Slot(id=77, host="gpu-1"))
        await edt.service.change(lambda change: change.apply(SlotsChanged(slots)))

    return offer


class TestAServerWithoutJoinedHosts:
    async def test_has_one_host_its_own_machine(self, call, submit):
        job = (await submit()).json["id"]
        (host,) = (await call("GET", "hosts")).json["hosts"]
        own = {name: host[name] for name in ("name", "provider", "state", "slots", "used", "jobs")}
        assert own == {
            **{"name": socket.gethostname(), "provider": "machine", "state": "up"},
            **{"slots": 2, "used": 1, "jobs": [job]},
        }
        assert host["memory"] > host["memory_free"] > 0
        assert (await call("GET", f"hosts/{host['name']}")).json["name"] == host["name"]

    async def test_says_what_to_set_for_others(self, call):
        token = await call("POST", "hosts/tokens", body={})
        assert (token.status, "c.EdtApp.fleet_listen" in token.json["hint"]) == (422, True)
        name = socket.gethostname()
        for method, path, body in (("POST", f"hosts/{name}/drain", {}), ("DELETE", f"hosts/{name}", None)):
            answer = await call(method, path, body=body)
            assert (answer.status, answer.json["field"]) == (422, "name")
            assert "c.EdtApp.local_slots" in answer.json["hint"]
        assert (await call("GET", f"hosts/{name}/log")).json == {"log": ""}


class TestJoinedHosts:
    async def test_are_listed_after_the_servers_own_with_their_slots(self, call, fleet, three_slots):
        await three_slots()
        hosts = (await call("GET", "hosts")).json["hosts"]
        assert [(host["name"], host["slots"]) for host in hosts] == [
            *((socket.gethostname(), 2), ("gpu-1", 1), ("gpu-2", 0)),
        ]
        assert hosts[2]["why"] == "It has been silent for 7 s."

    async def test_a_host_that_is_both_is_listed_once(self, call, fleet):
        name = socket.gethostname()
        fleet.hosts[name] = joined(name)
        hosts = [host for host in (await call("GET", "hosts")).json["hosts"] if host["name"] == name]
        assert [(host["provider"], host["slots"]) for host in hosts] == [("joined", 2)]

    async def test_a_token(self, call, fleet):
        made = await call("POST", "hosts/tokens", body={"seconds": 60, "uses": 3})
        assert (made.status, made.json["token"], made.json["uses"]) == (201, "edt1:secret", 3)
        assert fleet.asked == [("token", 60.0, 3)]
        for wrong, field in (({"seconds": 0}, "seconds"), ({"uses": 0}, "uses"), ({"seconds": 1e9}, "seconds")):
            refused = await call("POST", "hosts/tokens", body=wrong)
            assert (refused.status, refused.json["field"]) == (422, field)

    async def test_drain_and_undo(self, call, fleet):
        assert (await call("POST", "hosts/gpu-1/drain", body={})).json["state"] == "draining"
        assert (await call("GET", "hosts/gpu-1")).json["state"] == "draining"
        assert (await call("POST", "hosts/gpu-1/drain", body={"draining": False})).json["state"] == "up"

    async def test_removal_is_refused_while_jobs_hold_slots_there(self, call, fleet):
        fleet.busy.add("gpu-1")
        refused = await call("DELETE", "hosts/gpu-1")
        assert (refused.status, refused.json["code"]) == (409, "conflict")
        assert (await call("DELETE", "hosts/gpu-1", params={"force": 1})).status == 204
        assert (await call("GET", "hosts/gpu-1")).status == 404
        missing = await call("DELETE", "hosts/gpu-1")
        assert (missing.status, "gpu-2" in missing.json["hint"]) == (404, True)

    async def test_the_log(self, call, fleet):
        assert (await call("GET", "hosts/gpu-1/log", params={"lines": 1})).json == {"log": "gpu-1 is up"}
        assert (await call("GET", "hosts/gpu-1/log", params={"lines": 0})).status == 400
        assert (await call("GET", "hosts/none/log")).status == 404


class TestAServerOfSeveralUsers(AsAnn):
    @pytest.fixture
    def edt_config(self):
        return {"admins": {"ann"}}

    async def test_only_an_admin_changes_hosts(self, call, fleet):
        for method, path, body in CHANGES:
            answer = await call(method, path, body=body, headers=dict(BOB))
            assert (answer.status, answer.json["code"]) == (403, "not_allowed"), (method, path)
            assert answer.json["message"] == (
                "You are bob, and may not change the hosts of this server: its admins may, ann."
            )
        assert set(fleet.hosts) == {"gpu-1", "gpu-2"}
        assert fleet.asked == []
        for method, path, body in CHANGES:
            assert (await call(method, path, body=body)).status < 300, (method, path)

    async def test_everybody_sees_how_many_slots_are_used_and_the_ids_of_own_jobs_alone(self, call, submit):
        job = (await submit()).json["id"]
        (mine,) = (await call("GET", "hosts")).json["hosts"]
        (seen,) = (await call("GET", "hosts", headers=dict(BOB))).json["hosts"]
        assert (mine["used"], mine["jobs"]) == (1, [job])
        assert (seen["used"], seen["jobs"]) == (1, [])
