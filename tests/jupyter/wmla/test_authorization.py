"""Each of WMLA's routes × verbs asks the Authorizer for what it does, and nobody reaches somebody else's exec."""

from __future__ import annotations

import pytest
from jupyter_server.auth import Authorizer
from tornado.web import RequestHandler

from edt_jupyter.wmla.routes import FAMILIES, ROUTES, handlers
from tests.jupyter.users import AsAnn
from tests.jupyter.wmla.test_logon import ask  # noqa: F401

DLI = "/platform/rest/deeplearning/v1"
CONDUCTOR = "/platform/rest/conductor/v1"
_OURS = "edt:deployments"
_TUNING = f"{DLI}/models/{{name}}/hypersearch/{{tuning}}"
# What each operation must ask for. Written out here a second time on purpose.
DECLARED = {
    ("GET", "/auth/v1/logon"): ("read", "edt:cluster"),
    ("POST", "/auth/v1/logoff"): ("read", "edt:cluster"),
    ("GET", f"{CONDUCTOR}/auth/logon"): ("read", "edt:cluster"),
    ("GET", f"{CONDUCTOR}/instances/{{sigId}}/applications"): ("read", "edt:jobs"),
    ("GET", f"{CONDUCTOR}/instances/{{sigId}}/applications/{{driverId}}/logs/{{kind}}/download"): ("read", "edt:logs"),
    ("GET", f"{CONDUCTOR}/instances/{{sigId}}/applications/{{driverId}}/{{executorId}}/logs/{{kind}}/download"): (
        "read",
        "edt:logs",
    ),
    ("GET", f"{DLI}/conf"): ("read", "edt:cluster"),
    ("GET", f"{DLI}/status"): ("read", "edt:cluster"),
    ("GET", f"{DLI}/execs"): ("read", "edt:jobs"),
    ("POST", f"{DLI}/execs"): ("write", "edt:jobs"),
    ("DELETE", f"{DLI}/execs"): ("write", "edt:jobs"),
    ("GET", f"{DLI}/execs/frameworks"): ("read", "edt:cluster"),
    ("GET", f"{DLI}/execs/{{id}}"): ("read", "edt:jobs"),
    ("DELETE", f"{DLI}/execs/{{id}}"): ("write", "edt:jobs"),
    ("GET", f"{DLI}/execs/{{id}}/log"): ("read", "edt:logs"),
    ("GET", f"{DLI}/execs/{{id}}/result"): ("read", "edt:artifacts"),
    ("POST", f"{DLI}/execs/{{id}}/stop"): ("write", "edt:jobs"),
    ("GET", f"{DLI}/frameworks"): ("read", "edt:cluster"),
    ("GET", f"{DLI}/frameworks/all"): ("read", "edt:cluster"),
    ("GET", f"{DLI}/scheduler/applications"): ("read", "edt:jobs"),
    ("PUT", f"{DLI}/scheduler/applications/{{id}}/stop"): ("write", "edt:jobs"),
    ("GET", f"{DLI}/scheduler/applications/{{id}}/driver/logs/{{kind}}"): ("read", "edt:logs"),
    ("GET", f"{DLI}/scheduler/applications/{{id}}/executor/{{n}}/logs/{{kind}}"): ("read", "edt:logs"),
    ("GET", f"{DLI}/scheduler/engine/applications"): ("read", "edt:jobs"),
    ("GET", f"{DLI}/scheduler/engine/applications/{{id}}"): ("read", "edt:jobs"),
    ("GET", f"{DLI}/scheduler/instances"): ("read", "edt:plan"),
    ("GET", f"{DLI}/scheduler/kubernetesobjects"): ("read", "edt:jobs"),
    ("GET", f"{DLI}/resplans/resplantree"): ("read", "edt:plan"),
    ("GET", f"{DLI}/resplans/resplan/{{name}}"): ("read", "edt:plan"),
    ("DELETE", f"{DLI}/resplans/resplan/{{name}}"): ("write", "edt:plan"),
    ("GET", f"{DLI}/datasets"): ("read", "edt:catalogue"),
    ("POST", f"{DLI}/datasets"): ("write", "edt:catalogue"),
    ("GET", f"{DLI}/datasets/{{name}}"): ("read", "edt:catalogue"),
    ("DELETE", f"{DLI}/datasets/{{name}}"): ("write", "edt:catalogue"),
    ("GET", f"{DLI}/datasets/{{name}}/csvs"): ("read", "edt:catalogue"),
    ("GET", f"{DLI}/datasets/{{name}}/objectimages"): ("read", "edt:catalogue"),
    ("PUT", f"{DLI}/datasets/{{name}}/stop"): ("write", "edt:catalogue"),
    ("GET", f"{DLI}/modeltemplates"): ("read", "edt:catalogue"),
    ("POST", f"{DLI}/modeltemplates"): ("write", "edt:catalogue"),
    ("GET", f"{DLI}/modeltemplates/files/{{file}}"): ("read", "edt:catalogue"),
    ("GET", f"{DLI}/modeltemplates/{{name}}"): ("read", "edt:catalogue"),
    ("PUT", f"{DLI}/modeltemplates/{{name}}"): ("write", "edt:catalogue"),
    ("DELETE", f"{DLI}/modeltemplates/{{name}}"): ("write", "edt:catalogue"),
    ("GET", f"{DLI}/modeltemplates/{{name}}/files"): ("read", "edt:catalogue"),
    ("GET", f"{DLI}/models"): ("read", "edt:catalogue"),
    ("POST", f"{DLI}/models"): ("write", "edt:catalogue"),
    ("POST", f"{DLI}/models/weightfile"): ("write", "edt:catalogue"),
    ("GET", f"{DLI}/models/files/{{file}}"): ("read", "edt:catalogue"),
    ("GET", f"{DLI}/models/{{name}}"): ("read", "edt:catalogue"),
    ("PUT", f"{DLI}/models/{{name}}"): ("write", "edt:catalogue"),
    ("DELETE", f"{DLI}/models/{{name}}"): ("write", "edt:catalogue"),
    ("GET", f"{DLI}/models/{{name}}/files"): ("read", "edt:catalogue"),
    ("PUT", f"{DLI}/models/{{name}}/files"): ("write", "edt:catalogue"),
    ("GET", f"{DLI}/models/{{name}}/trainingnames"): ("read", "edt:jobs"),
    ("GET", f"{DLI}/models/{{name}}/trainings"): ("read", "edt:jobs"),
    ("POST", f"{DLI}/models/{{name}}/trainings"): ("write", "edt:jobs"),
    ("GET", f"{DLI}/models/{{name}}/trainings/{{training}}"): ("read", "edt:jobs"),
    ("DELETE", f"{DLI}/models/{{name}}/trainings/{{training}}"): ("write", "edt:jobs"),
    ("PUT", f"{DLI}/models/{{name}}/trainings/{{training}}/stop"): ("write", "edt:jobs"),
    ("GET", f"{DLI}/models/{{name}}/trainings/{{training}}/weightfile"): ("read", "edt:artifacts"),
    ("GET", f"{DLI}/models/{{name}}/validations"): ("read", "edt:jobs"),
    ("POST", f"{DLI}/models/{{name}}/validations"): ("write", "edt:jobs"),
    ("DELETE", f"{DLI}/models/{{name}}/validations/{{validation}}"): ("write", "edt:jobs"),
    ("PUT", f"{DLI}/models/{{name}}/validations/{{validation}}/stop"): ("write", "edt:jobs"),
    ("GET", f"{DLI}/hypersearch"): ("read", "edt:searches"),
    ("POST", f"{DLI}/hypersearch"): ("write", "edt:searches"),
    ("DELETE", f"{DLI}/hypersearch"): ("write", "edt:searches"),
    ("GET", f"{DLI}/hypersearch/{{name}}"): ("read", "edt:searches"),
    ("PUT", f"{DLI}/hypersearch/{{name}}"): ("write", "edt:searches"),
    ("DELETE", f"{DLI}/hypersearch/{{name}}"): ("write", "edt:searches"),
    ("PUT", f"{DLI}/hypersearch/{{name}}/force"): ("write", "edt:searches"),
    ("PUT", f"{DLI}/hypersearch/{{name}}/restart"): ("write", "edt:searches"),
    ("GET", f"{DLI}/models/{{name}}/hypersearch"): ("read", "edt:searches"),
    ("POST", f"{DLI}/models/{{name}}/hypersearch"): ("write", "edt:searches"),
    ("GET", _TUNING): ("read", "edt:searches"),
    ("DELETE", _TUNING): ("write", "edt:searches"),
    ("PUT", f"{_TUNING}/stop"): ("write", "edt:searches"),
    ("PUT", f"{_TUNING}/force"): ("write", "edt:searches"),
    ("PUT", f"{_TUNING}/restart"): ("write", "edt:searches"),
    ("PUT", f"{_TUNING}/update"): ("write", "edt:catalogue"),
    ("PUT", f"{_TUNING}/create/{{new}}"): ("write", "edt:catalogue"),
    ("GET", f"{DLI}/hypersearch/algorithm"): ("read", "edt:searches"),
    ("POST", f"{DLI}/hypersearch/algorithm/install"): ("write", "edt:searches"),
    ("GET", f"{DLI}/hypersearch/algorithm/{{algorithm}}"): ("read", "edt:searches"),
    ("DELETE", f"{DLI}/hypersearch/algorithm/{{algorithm}}"): ("write", "edt:searches"),
    ("POST", "/dlim/v1/auth/token"): ("read", "edt:cluster"),
    ("POST", "/dlim/v1/auth/token/inference"): ("read", "edt:cluster"),
    ("POST", "/dlim/v1/deployment/model"): ("write", _OURS),
    ("POST", "/dlim/v1/deployment/model/{model}"): ("write", _OURS),
    ("GET", "/dlim/v1/deployment/runtime"): ("read", _OURS),
    ("POST", "/dlim/v1/deployment/runtime"): ("write", _OURS),
    ("GET", "/dlim/v1/deployment/runtime/{runtime}"): ("read", _OURS),
    ("PUT", "/dlim/v1/deployment/runtime/{runtime}"): ("write", _OURS),
    ("DELETE", "/dlim/v1/deployment/runtime/{runtime}"): ("write", _OURS),
    ("POST", "/dlim/v1/inference/{model}"): ("write", _OURS),
    ("GET", "/dlim/v1/model"): ("read", _OURS),
    ("POST", "/dlim/v1/model"): ("write", _OURS),
    ("GET", "/dlim/v1/modelextension"): ("read", _OURS),
    ("POST", f"{DLI}/execs/{{id}}/deploy"): ("write", _OURS),
    ("GET", f"{DLI}/edimodels"): ("read", _OURS),
    ("POST", f"{DLI}/edimodels/new"): ("write", _OURS),
    ("POST", f"{DLI}/edimodels/{{modelname}}"): ("write", _OURS),
    ("POST", f"{DLI}/edimodels/{{modelname}}/inference"): ("write", _OURS),
    **{
        (verb, path): ("read" if verb == "GET" else "write", _OURS)
        for model in ("/dlim/v1/model/{model}", f"{DLI}/edimodels/{{modelname}}")
        for verb, path in (
            ("GET", model),
            ("PUT", model),
            ("DELETE", model),
            ("PUT", f"{model}/operation/start"),
            ("PUT", f"{model}/operation/stop"),
            ("GET", f"{model}/instance"),
            ("GET", f"{model}/appprofile"),
            ("PUT", f"{model}/appprofile"),
            ("GET", f"{model}/readme"),
        )
    },
    ("PUT", "/dlim/v1/model/{model}/readme"): ("write", _OURS),
    # Those that have no work here ask before they say so.
    ("GET", f"{DLI}/edimodels/some/streaming"): ("read", "edt:cluster"),
    ("GET", "/dlim/v1/model/some/streaming"): ("read", "edt:cluster"),
    ("POST", f"{DLI}/inferences"): ("write", "edt:cluster"),
    ("GET", "/dlim/v1/nothing"): ("read", "edt:cluster"),
    ("GET", f"{DLI}/nothing"): ("read", "edt:cluster"),
    ("PATCH", f"{DLI}/nothing"): ("write", "edt:cluster"),
}
VERBS = ("get", "head", "post", "put", "patch", "delete")


def filled(path, job="somebodys-job"):
    return (
        path.replace("{id}", job)
        .replace("{driverId}", f"driver-{job}")
        .replace("{executorId}", f"0-{job}")
        .replace("{sigId}", "default")
        .replace("{kind}", "stdout")
        .replace("{n}", "1")
        .replace("{name}", "default")
        .replace("{training}", "first")
        .replace("{validation}", "first")
        .replace("{file}", "default%2Fmain.py")
    ).lstrip("/")


def test_the_declaration_names_every_operation():
    operations = {
        (verb.upper(), path)
        for path, handler in ROUTES
        for verb in VERBS
        if getattr(handler, verb) is not getattr(RequestHandler, verb)
    }
    assert operations <= set(DECLARED)


def test_no_route_hides_another():
    import re

    for path, handler in ROUTES:
        url = "/" + filled(path)
        assert next(found for known, found in handlers() if re.fullmatch(known, url)) is handler, path


def test_families_have_every_verb():
    for _, handler in FAMILIES:
        assert all(getattr(handler, verb) is not getattr(RequestHandler, verb) for verb in VERBS)


async def test_no_body_of_any_operation_is_a_fault_of_the_server(ask, jp_auth_header):  # noqa: F811
    for method, path in DECLARED:
        for body in (b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"null", b"[]", b'"text"', b"1e999"):
            if method in ("POST", "PUT", "PATCH"):
                answer = await ask(method, filled(path), dict(jp_auth_header), body=body)
                assert answer.status not in (500, 502, 503), (method, path, body[:9], answer.text)


class Recorder(Authorizer):
    asked: list[tuple[str, str]] = []
    answer = False

    def is_authorized(self, handler, user, action, resource):
        self.asked.append((action, resource))
        return self.answer


class TestRecorded:
    @pytest.fixture
    def jp_server_config(self, jp_server_config):
        Recorder.asked = []
        jp_server_config["ServerApp"]["authorizer_class"] = Recorder
        return jp_server_config

    async def test_every_operation_asks_once_for_its_own(self, ask, jp_auth_header):  # noqa: F811
        for (method, path), declared in DECLARED.items():
            Recorder.asked.clear()
            body = {"body": b""} if method in ("POST", "PUT", "PATCH") else {}
            answer = await ask(method, filled(path), dict(jp_auth_header), **body)
            assert answer.status == 403, (method, path)
            assert answer.text.startswith("Error 403: ")
            assert Recorder.asked == [declared], (method, path)

    async def test_without_a_token_every_operation_is_refused(self, ask):  # noqa: F811
        for method, path in DECLARED:
            body = {"body": b""} if method in ("POST", "PUT", "PATCH") else {}
            answer = await ask(method, filled(path), {"Authorization": "token wrong"}, **body)
            assert answer.status == 401, (method, path)
        assert Recorder.asked == []

    async def test_jupyter_finds_every_method_authenticated(self, edt):
        check = edt.serverapp.web_app._check_handler_auth
        assert [found for pattern, handler in handlers() for found in check(pattern, handler)] == []


class TestSomebodyElse(AsAnn):
    async def test_may_do_nothing_with_my_exec(self, submit, call, ask):  # noqa: F811
        mine = (await submit(name="plan", args=["--key", "x"])).json
        bob = (await ask("GET", "auth/v1/logon", {"X-Auth-Token": "bob-secret"})).json
        assert bob["username"] == "bob"
        headers = {"X-Auth-Token": bob["accessToken"]}
        for method, path in DECLARED:
            if "{id}" in path or "{driverId}" in path:
                body = {"body": b""} if method in ("POST", "PUT") else {}
                answer = await ask(method, filled(path, mine["id"]), dict(headers), **body)
                assert answer.status == 403, (method, path, answer.text)
                assert "belongs to ann" in answer.text
        for path in ("execs", "scheduler/engine/applications", "scheduler/applications"):
            assert (await ask("GET", f"{DLI}/{path}".lstrip("/"), dict(headers))).json == []
        assert (await ask("DELETE", f"{DLI}/execs".lstrip("/"), dict(headers))).status == 200
        ann = {"X-Auth-Token": "ann-secret"}
        (seen,) = (await ask("GET", f"{DLI}/execs".lstrip("/"), ann)).json
        # A native job is an exec too: its arguments stand for the args that it never had.
        assert (seen["id"], seen["creator"], seen["args"]) == (mine["id"], "ann", "--key x")
