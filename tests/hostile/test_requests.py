"""Generated requests to every route: no fault of the server's, no answer that is not documented, and it goes on."""

from __future__ import annotations

import inspect
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from edt_jupyter.api.routes import ROUTES as NATIVE
from edt_jupyter.wmla.routes import FAMILIES
from edt_jupyter.wmla.routes import ROUTES as WMLA
from tests.hostile.requests_made import VERBS, Sent, filled, operations, sent
from tests.hostile.world import ROOT, SCRIPT, World, running, table
from tests.packages import packed

API = "/edt/api"
# Examples of an operation. EDT_FUZZ_EXAMPLES sets another number, EDT_FUZZ_SEED repeats a run.
LONG = int(os.environ.get("EDT_FUZZ_EXAMPLES", "20"))
SHORT = 2
GROWTH = 100 << 20  # bytes that the server may keep of thousands of requests
_NAME = re.compile(r'\b(?:get_query_argument|number|real|flag|_given|get|field=)\(?"(\w+)"')
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("requests"), **{"EdtApp.max_upload_bytes": 8 << 20}) as world:
        yield world


class Run:
    """What a run of requests has met: statuses, and what was wrong with the first answer of each kind."""

    def __init__(self, world: World, examples: int) -> None:
        self.world = world
        self.examples = examples
        self.seed = int(os.environ.get("EDT_FUZZ_SEED", "0")) or (secrets.randbits(32) if examples > SHORT else 1)
        self.statuses: Counter[int] = Counter()
        self.operations = 0
        self.wrong: dict[str, str] = {}
        self.memory = world.memory()
        self.begin = world.log_end()

    def each(self, strategy: st.SearchStrategy[Any], send: Callable[[Any], requests.Response], name: str) -> None:
        """Send requests of one operation, as many as were asked for."""
        self.operations += 1

        @seed(self.seed)
        @settings(
            max_examples=self.examples,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def run(request: Any) -> None:
            answer = send(request)
            self.statuses[answer.status_code] += 1
            # 501 is the right answer of a route that is not built.
            if answer.status_code >= 500 and answer.status_code != 501:
                self.note(f"{name} {answer.status_code}", f"{request!r:.600} {answer.text:.300}")
            self.world.learn(answer)

        run()

    def note(self, what: str, example: str) -> None:
        """Keep the first example of what is wrong."""
        self.wrong.setdefault(what, example)

    def ended(self, title: str) -> None:
        """Print the run, and check that the server is as it was."""
        cases, wrong = sum(self.statuses.values()), self.world.faults(self.begin)
        grown = self.world.memory() - self.memory
        rows = {
            "operations": self.operations,
            "cases": cases,
            "5xx": sum(count for status, count in self.statuses.items() if status >= 500 and status != 501),
            "faults in the log": len(wrong),
            "memory": f"{self.memory / 2**20:.0f} MiB, {grown / 2**20:+.0f} MiB",
            "statuses": dict(sorted(self.statuses.items())),
            "seed": self.seed,
        }
        print(table(title, rows))
        self.world.is_well()
        assert not self.wrong, table("what went wrong", self.wrong)
        assert wrong == [], "\n\n".join(dict.fromkeys(wrong[:20]))
        assert grown < GROWTH, rows
        assert min(self.statuses) < 300, rows


# --- native operations ------------------------------------------------------------------------------------------------


def _plain(found: Any) -> Any:
    """Turn what would start torch into a plain job."""
    if isinstance(found, dict):
        if "framework" in found or {"main", "max_workers"} & set(found):
            found["framework"] = "PyTorch"
        if isinstance(found.get("spec"), dict):
            found["spec"] = {**found["spec"], "framework": "PyTorch"}
    return found


@st.composite
def _case(draw: Callable[[Any], Any], operation: Any, world: World) -> Any:
    modes = [GenerationMode.POSITIVE, GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
    case = draw(operation.as_strategy(generation_mode=modes[draw(st.integers(0, 2))]))
    pick, known, usable = draw(st.integers(0, 1 << 16)), draw(st.integers(0, 3)), draw(st.integers(0, 2))
    for name in case.path_parameters or {}:
        if known:
            case.path_parameters[name] = filled(f"{{{name}}}", world.jobs, pick)
    body = case.body
    if case.media_type == "multipart/form-data" and isinstance(body, dict) and usable:
        spec = _plain(body.get("spec") if isinstance(body.get("spec"), dict) else {})
        body = {"spec": {**spec, "main": "train.py", "code_dir": ""}, "package": packed({"train.py": SCRIPT})}
        if operation.path == "/jobs":
            body["spec"] |= {"framework": "PyTorch", "python": None, "python_version": None, "warm_start": ""}
        case.body = body
    else:
        _plain(body)
    return case, ("ann", "bob", "ann", "eve")[pick % 4]


def _native(world: World, examples: int) -> None:
    run = Run(world, examples)
    served = world.send("GET", f"{API}/spec.yaml")
    schema = schemathesis.openapi.from_file(served.text)
    found = [each.ok() for each in schema.get_all_operations()]
    assert {(each.method.upper(), each.path) for each in found} == set(operations(NATIVE))
    order = [verb for verb, _ in operations(NATIVE)]
    for operation in sorted(found, key=lambda each: order.index(each.method.upper())):

        def send(drawn: Any, label: str = operation.label) -> requests.Response:
            case, user = drawn
            arguments = case.as_transport_kwargs(base_url=world.server.url.rstrip("/") + API)
            arguments["headers"] = {**arguments.get("headers", {}), "Authorization": f"token {user}-secret"}
            answer = world.answered(arguments.pop("method"), arguments.pop("url"), **arguments)
            try:
                case.validate_response(answer, checks=CHECKS)
            except FailureGroup as failures:
                for failure in failures.exceptions:
                    run.note(f"{label}: {failure.title} ({answer.status_code})", f"{failure.message:.600}")
            return answer

        run.each(_case(operation, world), send, operation.label)
    run.ended("generated requests to the native routes")


def test_native_routes(world: World) -> None:
    _native(world, SHORT)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_native_routes_at_length(world: World) -> None:
    _native(world, LONG)


# --- any routes -------------------------------------------------------------------------------------------------------


def _families() -> list[tuple[str, type]]:
    """A path of each family of routes that answers with 501 or 404."""
    return [
        (
            family.replace("(?:inferences|edimodels)", "inferences")
            .replace("[^/]+", "{id}")
            .replace("(?:/.*)?", "/{name}"),
            kind,
        )
        for family, kind in FAMILIES
    ]


def _names(files: Iterable[Path]) -> list[str]:
    """The names of queries and fields that the code in these files reads."""
    return sorted({name for file in files for name in _NAME.findall(file.read_text())})


def _own(handler: type) -> list[str]:
    """Those that the modules of a handler and of its bases read."""
    return _names(Path(inspect.getfile(each)) for each in handler.__mro__ if each.__module__.startswith("edt_jupyter"))


def _any(world: World, examples: int, title: str, routes: list[tuple[str, type]], fields: list[str], api: str) -> None:
    run = Run(world, examples)
    handlers = {path.removesuffix("/?"): handler for path, handler in routes}
    for verb, path in operations(handlers.items()):

        def send(request: Sent, verb: str = verb) -> requests.Response:
            url = world.server.url.rstrip("/") + api + request.path + (f"?{request.query}" if request.query else "")
            return world.answered(verb, url, headers=request.headers, data=request.body)

        run.each(sent(verb, path, _own(handlers[path]), fields, world.jobs), send, f"{verb} {path}")
    run.ended(title)


def _grammar(world: World, examples: int) -> None:
    fields = _names(
        [*(ROOT / "jupyter_ext/edt_jupyter/wmla").glob("*.py"), *(ROOT / "server/edt_server/wmla").glob("*.py")]
    )
    assert {"trainName", "lastlines", "sigId"} <= set(fields)
    _any(world, examples, "the grammar of WMLA's routes", [*WMLA, *_families()], fields, "")
    fields = _names([*(ROOT / "jupyter_ext/edt_jupyter/api").glob("*.py"), *(ROOT / "edt_sdk/schemas").glob("*.py")])
    _any(world, examples, "the same grammar on the native routes", NATIVE, fields, API)


def test_the_grammar_of_routes(world: World) -> None:
    _grammar(world, SHORT)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_the_grammar_of_routes_at_length(world: World) -> None:
    _grammar(world, LONG)


# --- two users --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_each_route_and_verb_as_another_user(world: World) -> None:
    """The short form is `test_authorization` of both groups of routes, for the verbs that they have."""
    secret = "bobs-" + secrets.token_hex(4)
    job = world.submit(f"print({secret!r}, flush=True)\nimport time; time.sleep(600)\n".encode(), "bob", notes=secret)
    for kind in ("datasets", "models"):
        new = {"name": "bobs", "path": "code", "description": secret}
        assert world.send("POST", f"{API}/{kind}", "bob", json=new).status_code == 201

    def state() -> list[Any]:
        entries = [world.send("GET", f"{API}/{kind}/bobs", "bob").json() for kind in ("datasets", "models")]
        return [
            world.view(job, "bob")["state"] not in ("KILLED", "SUSPENDED"),
            world.view(job, "bob")["notes"],
            *entries,
        ]

    before, begin, statuses = state(), world.log_end(), Counter[str]()
    routes = [(API + path, handler) for path, handler in NATIVE] + WMLA
    known = set(operations(routes))
    wrong: dict[str, str] = {}
    for path in dict(routes):
        for verb in VERBS:
            url = filled(path, [job], 0).replace("default", "bobs")
            answer = world.send(verb, url, "eve", data=b'{"notes": "eve"}' if verb == "PATCH" else b"")
            statuses[f"{verb} {answer.status_code}"] += 1
            # A search of that id there is none, whosever it were.
            own = ("{id}" in path or "{driverId}" in path) and "/searches/" not in path
            expected = (403,) if own else (200, 202, 400, 403, 404, 422)
            # A verb that a route does not have. HEAD is GET without its body where there is one.
            if (verb, path) not in known:
                expected = (405,)
            hidden = secret.encode() not in answer.content
            if not hidden or answer.status_code not in expected:
                wrong[f"{verb} {path}"] = f"{answer.status_code} {answer.text[:100]}"
    print(table(f"{len(dict(routes))} routes as another user", dict(sorted(statuses.items()))))
    assert not wrong, table("what another user may do", wrong)
    assert state() == before
    assert world.faults(begin) == []
