"""Validations over HTTP: what is wrong with a request is said before anything runs."""

from __future__ import annotations

import json

import pytest
from tornado.httpclient import HTTPClientError


async def refusal(jp_fetch, *path, body=None):
    """Status and body of a refusal."""
    more = {} if body is None else {"method": "POST", "body": json.dumps(body)}
    with pytest.raises(HTTPClientError) as refused:
        await jp_fetch("edt", "api", "jobs", *path, **more)
    return refused.value.code, json.loads(refused.value.response.body)


@pytest.mark.parametrize(
    ("body", "status", "field", "says"),
    [
        ({"metrics": ["loss", "mAP"]}, 400, "metrics", "no metric 'mAP'"),
        ({"metrics": []}, 400, "metrics", "No metrics are named"),
        ({"metrics": 7}, 422, "metrics", "metrics"),
        ({"threshold": 2}, 422, "threshold", "between 0 and 1"),
        ({"threshold": "high"}, 422, "threshold", "threshold"),
        ({"nothing": 1}, 422, "nothing", "nothing"),
        ({}, 404, None, "no job"),
    ],
)
async def test_bad_input_has_a_sentence(edt, jp_fetch, body, status, field, says):
    code, told = await refusal(jp_fetch, "none", "validations", body=body)
    assert (code, told.get("field")) == (status, field), told
    assert says in told["message"]


async def test_there_is_no_result_of_what_is_not_there(edt, jp_fetch):
    code, told = await refusal(jp_fetch, "none", "validation")
    assert (code, told["code"]) == (404, "not_found")
