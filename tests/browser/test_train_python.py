"""What a job of the train form runs in: the Python of the notebook's kernel, unless a person says otherwise."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Request, expect

from tests.browser.screen import Screen


def test_a_notebook_trains_in_the_python_of_its_kernel(screen: Screen, server, write_notebook):
    write_notebook(server, "mine.ipynb", "print(1)  # FabricModel")
    page = screen.open("lab/tree/mine.ipynb")
    # Its kernel is there, so that it is known which it is.
    screen.run_cell()
    expect(page.locator(".jp-Cell").first.locator(".jp-OutputArea")).to_contain_text("1")
    # The form may ask for a preview before it knows the kernel's Python, and asks anew then.
    with page.expect_request(lambda request: "/previews" in request.url and "python" in settings(request)) as asked:
        screen.run("edt:submit-notebook")
    form = page.locator("form[aria-label=Train]")
    form.get_by_text("More", exact=True).click()
    field = form.get_by_label("Python")
    expect(field.locator("option:checked")).to_have_text(
        f"Python 3 (ipykernel) ({sys.version_info.major}.{sys.version_info.minor})"
    )
    expect(form).to_contain_text("That of this notebook's kernel")
    expect(page.get_by_label("Preview")).to_contain_text("It would start")
    assert Path(settings(asked.value)["python"]).samefile(sys.executable)
    screen.shot("train-python")


def settings(request: Request) -> dict[str, Any]:
    """The settings of the job that a request for a preview asks about."""
    spec: dict[str, Any] = json.loads(request.post_data or "{}").get("spec", {})
    return spec
