"""The OpenAPI description is valid, describes every route and no other, and is what the server serves."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
import yaml
from openapi_spec_validator import validate
from tornado.web import RequestHandler

from edt_jupyter.api.openapi import document, schemas
from edt_jupyter.api.routes import ROUTES, handlers
from edt_sdk.schemas.fields import descriptions
from edt_sdk.schemas.job import JobPatch, JobResume, JobSettings, JobSpec, JobView
from edt_sdk.schemas.validation import NewValidation

VERBS = ("get", "head", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def spec():
    return yaml.safe_load(document())


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
    patterns = [(pattern, handler) for pattern, handler in handlers()]
    for path, handler in ROUTES:
        url = "/edt/api" + path.replace("{id}", "a-job")
        assert next(found for pattern, found in patterns if re.fullmatch(pattern, url)) is handler


def test_no_reference_leads_nowhere_and_no_schema_is_unused(spec):
    assert set(re.findall(r"#/components/schemas/(\w+)", document())) == set(spec["components"]["schemas"])


def test_no_schema_is_written_by_hand_that_a_struct_has(spec):
    hand = yaml.safe_load(files("edt_jupyter").joinpath("openapi.yaml").read_text())["components"]["schemas"]
    assert set(hand) & set(schemas()) == set()


@pytest.mark.parametrize("struct", [JobSpec, JobPatch, JobResume, NewValidation], ids=lambda struct: struct.__name__)
def test_every_field_that_people_give_is_described(struct):
    assert set(descriptions(struct)) == set(struct.__struct_fields__)


def test_a_change_may_set_every_setting_and_nothing_else():
    assert set(JobPatch.__struct_fields__) == set(JobSettings.__struct_fields__)
    assert set(JobSettings.__struct_fields__) <= set(JobSpec.__struct_fields__) & set(JobView.__struct_fields__)


async def test_is_served(call, spec):
    answer = await call("GET", "/spec.yaml")
    assert answer.headers["Content-Type"].startswith("application/yaml")
    assert yaml.safe_load(answer.body) == spec
