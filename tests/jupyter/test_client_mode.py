"""`c.EdtApp.remote_url` that cannot be right, and the token that goes there."""

from __future__ import annotations

import json

import pytest
from tornado.httpclient import HTTPClientError

from edt_jupyter.remote import Remote


class TestNoAddress:
    @pytest.fixture
    def edt_config(self):
        return {"remote_url": "hub/services/edt"}

    async def test_every_answer_says_so(self, edt, jp_fetch):
        with pytest.raises(HTTPClientError) as refused:
            await jp_fetch("edt", "api", "jobs")
        body = json.loads(refused.value.response.body)
        assert "remote_url" in body["message"]
        assert "https://" in body["hint"]


def test_the_hubs_token_is_taken_where_none_is_configured():
    environ = {"JUPYTERHUB_API_TOKEN": "hubs"}
    assert Remote("https://hub/services/edt/", "", environ).peer().headers == {"Authorization": "token hubs"}
    assert Remote("https://hub/services/edt/", "own", environ).peer().headers == {"Authorization": "token own"}
    assert Remote("https://hub/services/edt/", "", {}).peer().url == "https://hub/services/edt"
