"""Each route × verb asks the Authorizer for its own action and resource, and nobody reaches somebody else's job."""

from __future__ import annotations

import json

import pytest
from jupyter_server.auth import Authorizer
from tornado.httpclient import HTTPClientError

from edt_jupyter.api.routes import ROUTES, handlers
from edt_jupyter.http.base import EdtHandler
from tests.jupyter.users import AsAnn

# What each operation must ask for: the table of 1.0's decorators, written out here a second time on purpose.
DECLARED = {
    ("GET", "/"): ("read", "edt:cluster"),
    ("GET", "/spec.yaml"): ("read", "edt:cluster"),
    ("GET", "/jobs"): ("read", "edt:jobs"),
    ("POST", "/jobs"): ("write", "edt:jobs"),
    ("POST", "/jobs/stop"): ("write", "edt:jobs"),
    ("GET", "/jobs/{id}"): ("read", "edt:jobs"),
    ("PATCH", "/jobs/{id}"): ("write", "edt:jobs"),
    ("DELETE", "/jobs/{id}"): ("write", "edt:jobs"),
    ("POST", "/jobs/{id}/stop"): ("write", "edt:jobs"),
    ("POST", "/jobs/{id}/suspend"): ("write", "edt:jobs"),
    ("POST", "/jobs/{id}/resume"): ("write", "edt:jobs"),
    ("GET", "/jobs/{id}/logs"): ("read", "edt:logs"),
    ("GET", "/jobs/{id}/metrics"): ("read", "edt:logs"),
    ("GET", "/jobs/{id}/events"): ("read", "edt:jobs"),
    ("GET", "/jobs/{id}/timeline"): ("read", "edt:jobs"),
    ("GET", "/jobs/{id}/workers"): ("read", "edt:jobs"),
    ("GET", "/jobs/{id}/what-if"): ("read", "edt:jobs"),
    ("GET", "/jobs/{id}/checkpoints"): ("read", "edt:artifacts"),
    ("POST", "/jobs/{id}/validations"): ("write", "edt:jobs"),
    ("GET", "/jobs/{id}/validation"): ("read", "edt:artifacts"),
    ("GET", "/jobs/{id}/result"): ("read", "edt:artifacts"),
    ("POST", "/forecasts"): ("read", "edt:jobs"),
    ("GET", "/interpreters"): ("read", "edt:jobs"),
    ("POST", "/previews"): ("read", "edt:jobs"),
    ("POST", "/submissions"): ("write", "edt:jobs"),
    ("POST", "/searches/submissions"): ("write", "edt:searches"),
    ("GET", "/jobs/{id}/curve"): ("read", "edt:jobs"),
    ("GET", "/jobs/{id}/pictures/{picture}"): ("read", "edt:jobs"),
    ("GET", "/searches"): ("read", "edt:searches"),
    ("POST", "/searches"): ("write", "edt:searches"),
    ("POST", "/searches/preview"): ("read", "edt:searches"),
    ("POST", "/previews/deployment"): ("read", "edt:deployments"),
    ("GET", "/searches/{id}"): ("read", "edt:searches"),
    ("PATCH", "/searches/{id}"): ("write", "edt:searches"),
    ("DELETE", "/searches/{id}"): ("write", "edt:searches"),
    ("POST", "/searches/{id}/again"): ("write", "edt:searches"),
    ("GET", "/searches/{id}/replay"): ("read", "edt:searches"),
    ("GET", "/searches/{id}/what-if"): ("read", "edt:searches"),
    ("POST", "/searches/{id}/pause"): ("write", "edt:searches"),
    ("POST", "/searches/{id}/resume"): ("write", "edt:searches"),
    ("POST", "/searches/{id}/stop"): ("write", "edt:searches"),
    ("GET", "/searches/{id}/trials"): ("read", "edt:searches"),
    ("POST", "/searches/{id}/trials"): ("write", "edt:searches"),
    ("GET", "/searches/{id}/reports"): ("read", "edt:searches"),
    ("GET", "/searches/{id}/decisions"): ("read", "edt:searches"),
    ("GET", "/searches/{id}/pictures/{picture}"): ("read", "edt:searches"),
    ("GET", "/datasets"): ("read", "edt:catalogue"),
    ("POST", "/datasets"): ("write", "edt:catalogue"),
    ("GET", "/datasets/{name}"): ("read", "edt:catalogue"),
    ("DELETE", "/datasets/{name}"): ("write", "edt:catalogue"),
    ("GET", "/models"): ("read", "edt:catalogue"),
    ("POST", "/models"): ("write", "edt:catalogue"),
    ("GET", "/models/{name}"): ("read", "edt:catalogue"),
    ("PATCH", "/models/{name}"): ("write", "edt:catalogue"),
    ("DELETE", "/models/{name}"): ("write", "edt:catalogue"),
    ("POST", "/models/{name}/train"): ("write", "edt:jobs"),
    ("GET", "/projects"): ("read", "edt:jobs"),
    ("GET", "/projects/{project}/runs"): ("read", "edt:jobs"),
    ("GET", "/versions"): ("read", "edt:catalogue"),
    ("POST", "/versions"): ("write", "edt:catalogue"),
    ("POST", "/versions/folders"): ("write", "edt:catalogue"),
    ("GET", "/versions/{name}/{which}"): ("read", "edt:catalogue"),
    ("PATCH", "/versions/{name}/{which}"): ("write", "edt:catalogue"),
    ("DELETE", "/versions/{name}/{which}"): ("write", "edt:catalogue"),
    ("PUT", "/versions/{name}/{which}/aliases/{alias}"): ("write", "edt:catalogue"),
    ("DELETE", "/versions/{name}/{which}/aliases/{alias}"): ("write", "edt:catalogue"),
    ("GET", "/versions/{name}/{which}/archive"): ("read", "edt:artifacts"),
    ("GET", "/versions/{name}/{which}/example"): ("read", "edt:catalogue"),
    ("POST", "/versions/{name}/{which}/reproduce"): ("write", "edt:jobs"),
    ("GET", "/versions/{name}/{which}/comparison"): ("read", "edt:catalogue"),
    ("GET", "/deployments"): ("read", "edt:deployments"),
    ("POST", "/deployments"): ("write", "edt:deployments"),
    ("GET", "/deployments/{name}"): ("read", "edt:deployments"),
    ("PATCH", "/deployments/{name}"): ("write", "edt:deployments"),
    ("DELETE", "/deployments/{name}"): ("write", "edt:deployments"),
    ("POST", "/deployments/{name}/revisions"): ("write", "edt:deployments"),
    ("POST", "/deployments/{name}/promote"): ("write", "edt:deployments"),
    ("POST", "/deployments/{name}/abort"): ("write", "edt:deployments"),
    ("POST", "/deployments/{name}/rollback"): ("write", "edt:deployments"),
    ("POST", "/deployments/{name}/stop"): ("write", "edt:deployments"),
    ("POST", "/deployments/{name}/start"): ("write", "edt:deployments"),
    ("POST", "/deployments/{name}/keys"): ("write", "edt:deployments"),
    ("DELETE", "/deployments/{name}/keys/{key}"): ("write", "edt:deployments"),
    ("POST", "/deployments/{name}/predict"): ("write", "edt:deployments"),
    ("POST", "/deployments/{name}/infer"): ("write", "edt:deployments"),
    ("GET", "/timeline"): ("read", "edt:cluster"),
    ("GET", "/pictures/{picture}"): ("read", "edt:cluster"),
    ("GET", "/cluster"): ("read", "edt:cluster"),
    ("GET", "/quota"): ("read", "edt:cluster"),
    ("GET", "/hosts"): ("read", "edt:hosts"),
    ("POST", "/hosts/tokens"): ("write", "edt:hosts"),
    ("GET", "/hosts/{name}"): ("read", "edt:hosts"),
    ("DELETE", "/hosts/{name}"): ("write", "edt:hosts"),
    ("POST", "/hosts/{name}/drain"): ("write", "edt:hosts"),
    ("GET", "/hosts/{name}/log"): ("read", "edt:hosts"),
    ("GET", "/plan"): ("read", "edt:plan"),
    ("PUT", "/plan"): ("write", "edt:plan"),
    ("GET", "/instance-groups"): ("read", "edt:plan"),
    ("POST", "/instance-groups"): ("write", "edt:plan"),
    ("GET", "/instance-groups/{name}"): ("read", "edt:plan"),
    ("PATCH", "/instance-groups/{name}"): ("write", "edt:plan"),
    ("DELETE", "/instance-groups/{name}"): ("write", "edt:plan"),
    ("GET", "/resource-groups"): ("read", "edt:plan"),
    ("POST", "/resource-groups"): ("write", "edt:plan"),
    ("GET", "/resource-groups/{name}"): ("read", "edt:plan"),
    ("PATCH", "/resource-groups/{name}"): ("write", "edt:plan"),
    ("DELETE", "/resource-groups/{name}"): ("write", "edt:plan"),
}
VERBS = ("get", "head", "post", "put", "patch", "delete")


def operations():
    from tornado.web import RequestHandler

    for path, handler in ROUTES:
        for verb in VERBS:
            if getattr(handler, verb) is not getattr(RequestHandler, verb):
                yield verb.upper(), path


def test_the_declaration_names_every_operation():
    assert set(operations()) == set(DECLARED)


async def test_no_body_of_any_operation_is_a_fault_of_the_server(call):
    for method, path in DECLARED:
        for body in (b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"null", b"[]", b'"text"', b"1e999"):
            if method in ("POST", "PUT", "PATCH"):
                answer = await call(method, path.replace("{id}", "no-job").replace("{name}", "none"), body=body)
                assert answer.status < 500, (method, path, body[:9], answer.json)


class Recorder(Authorizer):
    asked: list[tuple[str, str, str, str]] = []
    answer = False

    def is_authorized(self, handler, user, action, resource):
        path = handler.request.path.partition("/edt/api")[2] or "/"
        self.asked.append((handler.request.method, path, action, resource))
        return self.answer


class TestRecorded:
    @pytest.fixture
    def jp_server_config(self, jp_server_config):
        Recorder.asked = []
        jp_server_config["ServerApp"]["authorizer_class"] = Recorder
        return jp_server_config

    async def test_every_operation_asks_once_for_its_own(self, call):
        for (method, path), declared in DECLARED.items():
            Recorder.asked.clear()
            url = path.replace("{id}", "somebodys-job")
            answer = await call(method, url, body=b"" if method in ("POST", "PUT", "PATCH") else None)
            assert answer.status == 403, (method, path)
            assert answer.json["code"] == "not_allowed"
            assert [(action, resource) for _, _, action, resource in Recorder.asked] == [declared], (method, path)

    async def test_unknown_paths_and_verbs_answer_json(self, call, monkeypatch):
        wrong = await call("PUT", "/jobs")
        assert (wrong.status, wrong.headers["Allow"]) == (405, "GET, POST, OPTIONS")
        monkeypatch.setattr(Recorder, "answer", True)
        answer = await call("GET", "/nothing/here")
        assert (answer.status, answer.json["code"]) == (404, "not_found")


@pytest.mark.parametrize("jupyter_lets_anyone_in", [False, True])
class TestWithoutAToken:
    @pytest.fixture
    def jp_server_config(self, jp_server_config, jupyter_lets_anyone_in):
        Recorder.asked = []
        jp_server_config["ServerApp"]["authorizer_class"] = Recorder
        jp_server_config["ServerApp"]["allow_unauthenticated_access"] = jupyter_lets_anyone_in
        return jp_server_config

    async def test_every_operation_is_refused(self, call):
        for method, path in DECLARED:
            answer = await call(
                method,
                path.replace("{id}", "job"),
                body=b"" if method in ("POST", "PUT", "PATCH") else None,
                headers={"Authorization": "token wrong"},
            )
            assert (answer.status, answer.json["code"]) == (403, "not_allowed"), (method, path)
            assert answer.json["login"] == "needed", (method, path)
        assert Recorder.asked == []


class Undeclared(EdtHandler):
    """A handler whose author forgot to name the resource."""

    async def get(self):
        self.reply({"secret": 1})


class Unmapped(Undeclared):
    """A handler with a method that has no action."""

    auth_resource = "edt:jobs"
    auth_actions = {"POST": "write"}


@pytest.mark.parametrize("handler", [Undeclared, Unmapped])
async def test_a_method_without_an_entry_is_refused(edt, jp_fetch, jp_base_url, handler, monkeypatch):
    edt.serverapp.web_app.add_handlers(".*$", [(f"{jp_base_url}edt/new", handler, {"name": edt.name})])
    with pytest.raises(HTTPClientError) as refused:
        await jp_fetch("edt", "new")
    assert refused.value.code == 403
    monkeypatch.setattr(handler, "auth_resource", "edt:jobs")
    monkeypatch.setattr(handler, "auth_actions", EdtHandler.auth_actions)
    assert json.loads((await jp_fetch("edt", "new")).body) == {"secret": 1}


async def test_jupyter_finds_every_method_authenticated(edt):
    check = edt.serverapp.web_app._check_handler_auth
    assert [found for pattern, handler in handlers() for found in check(pattern, handler)] == []


class TestSomebodyElse(AsAnn):
    async def test_may_do_nothing_with_my_job(self, submit, call):
        mine = (await submit(name="secret plan", args=["--key", "x"])).json
        assert mine["owner"] == "ann"
        bob = {"Authorization": "token bob-secret"}
        for method, path in DECLARED:
            if not path.startswith("/jobs/{id}"):
                continue
            body = b'{"priority": 9}' if method == "PATCH" else b"" if method == "POST" else None
            answer = await call(method, path.replace("{id}", mine["id"]), body=body, headers=dict(bob))
            assert answer.status == 403, (method, path, answer.json)
            assert answer.json["code"] == "not_allowed"
            assert answer.json["job"] == mine["id"]
        for path in ("logs", "metrics", "events"):
            answer = await call("GET", f"jobs/{mine['id']}/{path}", params={"follow": 1}, headers=dict(bob))
            assert answer.status == 403
        answer = await call("POST", f"jobs/{mine['id']}/resume", body={"checkpoint": "epoch-1"}, headers=dict(bob))
        assert (answer.status, answer.json["code"]) == (403, "not_allowed")
        answer = await submit(warm_start=mine["id"], headers=dict(bob))
        assert (answer.status, answer.json["code"], answer.json["job"]) == (403, "not_allowed", mine["id"])
        after = (await call("GET", f"jobs/{mine['id']}")).json
        assert (after["priority"], after["state"] in ("LAUNCHING", "RUNNING", "FAILED")) == (5000, True)

    async def test_sees_that_it_is_there_and_not_what_it_does(self, submit, call):
        mine = (await submit(name="plan", args=["--key", "x"])).json
        bob = {"Authorization": "token bob-secret"}
        assert (await call("GET", "jobs", headers=dict(bob))).json == {"jobs": []}
        (seen,) = (await call("GET", "jobs", params={"all": 1}, headers=dict(bob))).json["jobs"]
        assert (seen["id"], seen["owner"], seen["slots"]) == (mine["id"], "ann", 1)
        assert (seen["main"], seen["args"], seen["message"], seen["result_dir"]) == ("", [], "", "")
        assert (await call("POST", "jobs/stop", body=b"", headers=dict(bob))).json == {"jobs": []}

    async def test_a_name_cannot_leave_its_folder(self, submit, tmp_path):
        answer = await submit(headers={"Authorization": "token ../../ann-secret"})
        assert answer.json["owner"] == "..%2F..%2Fann".replace("..", "%2E.", 1)
        result = tmp_path / "edt" / "results" / answer.json["owner"]
        assert answer.json["result_dir"].startswith(str(result))
        assert result.is_dir()

    async def test_nobody_is_refused(self, call):
        answer = await call("GET", "jobs", headers={"Authorization": "token nobody"})
        assert (answer.status, answer.json["code"]) == (403, "not_allowed")


async def test_behind_one_token_everybody_is_the_account(edt, submit, call):
    """Jupyter's own provider invents a new name for each request."""
    import os
    import pwd

    account = pwd.getpwuid(os.getuid()).pw_name
    job = (await submit()).json
    assert job["owner"] == account
    assert (await call("GET", "/")).json["user"] == account
    assert (await call("GET", f"jobs/{job['id']}")).status == 200
