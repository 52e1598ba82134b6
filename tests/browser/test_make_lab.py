"""A tab of `make lab` stays open over a restart of the server, and goes on without a reload."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from edt_sdk import Client
from tests.browser.conftest import NO_NEWS
from tests.browser.patience import until
from tests.browser.screen import CONNECTED, PATIENCE
from tests.e2e.test_make_lab import Lab


@pytest.fixture
def checkout(tmp_path, front_end):
    """A folder that stands for a checkout, with the front end as it is now."""
    config = tmp_path / ".lab" / "config"
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(NO_NEWS))
    (config / "jupyter_lab_config.py").write_text(
        f"c.LabApp.extra_labextensions_path = [{str(front_end)!r}]\nc.LabApp.expose_app_in_browser = True\n"
    )
    return tmp_path


def test_an_open_tab_goes_on_after_a_restart(page: Page, checkout):
    lab = Lab(checkout, "--no-browser")
    client = Client(lab.exported["EDT_URL"], token=lab.exported["EDT_TOKEN"])
    try:
        page.goto(lab.address)
        page.wait_for_selector(".jp-NotebookPanel", timeout=PATIENCE)
        page.wait_for_function(CONNECTED, timeout=PATIENCE)
        page.evaluate("() => { window.sameTab = true; }")
        page.get_by_role("tab", name="Elastic training").click()
        expect(page.locator(".jp-edt-status")).to_contain_text("0/4 slots")

        lab.end()
        expect(page.locator(".jp-edt-status")).to_contain_text("no answer")
        # JupyterLab asks for sessions itself after a pause that grows. Then its dialog covers the page.
        page.evaluate("() => window.jupyterapp.serviceManager.sessions.refreshRunning().catch(() => null)")
        lost = page.get_by_role("dialog").filter(has_text="Server Connection Error")
        expect(lost).to_be_visible()

        lab = Lab(checkout, "--no-browser")
        expect(page.locator(".jp-edt-status")).to_contain_text("0/4 slots")
        expect(lost).to_have_count(0)
        # The tab speaks to the new server with the old session: a job that it did not know appears.
        job = client.submit(
            checkout / "my-notebooks" / "digits", main="train.py", name="after-the-restart", progress=False
        )
        expect(page.locator(f"[data-edt-job={job.id}]")).to_contain_text(re.compile("after-the-restart"))
        assert page.evaluate("() => window.sameTab")
        until(page, lambda: job.refresh().view.state != "SUBMITTED", "it is taken up")
    finally:
        if lab.process.poll() is None:
            client.stop_all()
            until(page, lambda: all(each.view.state.final for each in client.jobs()), "no job is left")
        page.goto("about:blank")
        lab.end()
