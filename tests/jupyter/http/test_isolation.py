"""A server that several people share, and how their jobs are kept apart."""

from __future__ import annotations

import pytest

from tests.jupyter.users import AsAnn


class TestNothingWasChosen(AsAnn):
    @pytest.fixture
    def edt_config(self):
        return {"isolation": ""}

    async def test_no_job_is_accepted_and_the_answer_says_what_to_set(self, edt, submit):
        refused = await submit()
        assert refused.status == 503
        assert "nothing says how their jobs are kept apart" in refused.json["message"]
        assert "c.EdtApp.isolation to 'sandbox'" in refused.json["hint"]


class TestAMachineWithoutSandboxes(AsAnn):
    @pytest.fixture
    def edt_config(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        return {"isolation": "sandbox"}

    async def test_no_job_runs_without_one(self, edt, submit):
        refused = await submit()
        assert refused.status == 503
        assert "there is no bwrap on this machine" in refused.json["message"]
