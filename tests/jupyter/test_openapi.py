"""The OpenAPI file is valid, describes every route and no other, and is what the server serves."""

from __future__ import annotations

from importlib.resources import files

import pytest
import yaml
from openapi_spec_validator import validate
from tornado.web import RequestHandler

from edt_jupyter.api.routes import ROUTES, handlers

VERBS = ("get", "head", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def spec():
    return yaml.safe_load(files("edt_jupyter").joinpath("openapi.yaml").read_text())


def test_is_valid(spec):
    validate(spec)


def test_describes_every_route_and_no_other(spec):
    described = {(path, verb) for path, item in spec["paths"].items() for verb in item if verb in VERBS}
    registered = {
        (path, verb)
        for path, handler in ROUTES
        for verb in VERBS
        if getattr(handler, verb) is not getattr(RequestHandler, verb)
    }
    assert described == registered


def test_no_route_hides_another():
    import re

    patterns = [(pattern, handler) for pattern, handler in handlers()]
    for path, handler in ROUTES:
        url = "/edt/api" + path.replace("{id}", "a-job")
        assert next(found for pattern, found in patterns if re.fullmatch(pattern, url)) is handler


def test_schemas_have_the_fields_of_the_structs(spec):
    from edt_sdk.schemas import catalogue, validation
    from edt_sdk.schemas.events import Event
    from edt_sdk.schemas.forecast import Forecast, Picked, Preview
    from edt_sdk.schemas.job import JobPatch, JobProgress, JobSpec, JobView, Reason
    from edt_sdk.schemas.what_if import WhatIf
    from edt_server.outputs.logs import LoggedLine

    schemas = spec["components"]["schemas"]
    pairs = {"Job": JobView, "Spec": JobSpec, "Patch": JobPatch, "Progress": JobProgress, "Reason": Reason}
    asked = {"Forecast": Forecast, "Picked": Picked, "Preview": Preview}
    kept = ("FileEntry", "NewDataset", "Dataset", "NewModel", "ModelChange", "Model", "Training")
    pairs |= {name: getattr(catalogue, name) for name in kept}
    pairs |= {name: getattr(validation, name) for name in ("NewValidation", "Validated", "ClassScores")}
    for name, struct in {**pairs, "Event": Event, "LoggedLine": LoggedLine, "WhatIf": WhatIf, **asked}.items():
        assert set(schemas[name]["properties"]) == set(struct.__struct_fields__), name


async def test_is_served(call, spec):
    answer = await call("GET", "/spec.yaml")
    assert answer.headers["Content-Type"].startswith("application/yaml")
    assert yaml.safe_load(answer.body) == spec
