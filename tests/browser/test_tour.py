"""A tour of all that the front end does, short enough for every JupyterLab and Notebook that people have.

`make labs` takes it once for each of them, in an environment of its own, and makes a table. Of the newest
the other tests of this folder say more, and so `make test` leaves it out.
"""

import os
import re

import pytest
from playwright.sync_api import expect

from tests.browser.patience import until
from tests.browser.screen import Screen

pytestmark = pytest.mark.skipif(
    "EDT_LAB_PYTHON" not in os.environ, reason="For environments with other versions: make labs."
)
FIND = "from edt_sdk import Client\njob = Client().job({id!r})\n"


@pytest.fixture
def said(page) -> list[str]:
    """What the console says about our files, or about versions that we ask for."""
    lines: list[str] = []
    page.on("console", lambda line: lines.append(f"{line.type}: {line.text}"))
    return lines


def test_extension_loads(screen: Screen, said):
    page = screen.open()
    ours = page.evaluate("() => [...window.jupyterapp.listPlugins()].filter(id => id.startsWith('jupyter-edt:'))")
    assert len(ours) >= 8
    left = page.evaluate("ids => ids.filter(id => !window.jupyterapp.isPluginActivated(id))", ours)
    assert left == []
    # The widgets' own extension asks for a newer JupyterLab than it needs, in the same words.
    asked = re.compile(r"\(required \^(4\.[23]|6\.2|7\.2)\.0\)")
    assert [line for line in said if "jupyter-edt" in line or asked.search(line)] == []
    screen.shot("tour-lab")


def test_panel(screen: Screen, submit):
    job = submit("tour-panel")
    page = screen.open()
    screen.panel()
    row = page.locator(f"[data-edt-job={job.id}]")
    expect(row).to_contain_text("tour-panel")
    expect(row).to_contain_text("running")
    expect(page.locator(".jp-edt-status")).to_contain_text("slots")
    screen.shot("tour-panel")
    screen.context_menu(row, "Stop")
    screen.answer("Stop")
    until(page, lambda: job.refresh().view.state.final, "it is stopped")


def test_card(screen: Screen, server, submit, write_notebook):
    job = submit("tour-card")
    write_notebook(server, "card.ipynb", FIND.format(id=job.id) + "job")
    page = screen.open("lab/tree/card.ipynb")
    screen.run_cell()
    card = page.locator(".jp-edt-card-live")
    expect(card).to_contain_text("tour-card")
    expect(card).to_contain_text(re.compile(r"update [1-9]\d* of 200"))
    expect(card.locator("img")).to_have_attribute("alt", re.compile("loss"))
    screen.shot("tour-card")
    submit.finish()
    expect(card).to_contain_text("finished")


def test_magics(screen: Screen, server, submit, write_notebook):
    job = submit("tour-magics")
    write_notebook(server, "magics.ipynb", "%load_ext edt_sdk", "%edt_jobs", f"%edt_story {job.id}")
    page = screen.open("lab/tree/magics.ipynb")
    for cell in range(3):
        screen.run_cell(cell)
    outputs = page.locator(".jp-Cell .jp-OutputArea-output")
    expect(outputs.nth(0)).to_contain_text("tour-magics")
    expect(outputs.last).to_contain_text("training began")
    screen.shot("tour-magics")


def test_widget(screen: Screen, server, submit, write_notebook):
    job = submit("tour-widget", max_workers=4)
    write_notebook(server, "widget.ipynb", FIND.format(id=job.id) + "job.monitor()")
    page = screen.open("lab/tree/widget.ipynb")
    screen.run_cell()
    shown = page.locator(".jp-Cell").first.locator(".jp-edt-monitor")
    expect(shown).to_contain_text(re.compile(r"update \d+ of 200"))
    expect(shown.locator("[data-curve] [role=img]")).to_be_visible()
    screen.shot("tour-widget")
    shown.get_by_label("Maximum workers").fill("1")
    shown.get_by_role("button", name="Apply").click()
    expect(shown).to_contain_text("of at most 1")


def test_train_form_and_job_tab(screen: Screen, server, lasting_trainer, tmp_path):
    folder, stop = server.root / "project", tmp_path / "stop"
    folder.mkdir()
    (folder / "train.py").write_text(lasting_trainer)
    page = screen.open()
    page.locator(".jp-LauncherCard", has_text="Train …").click()
    form = page.locator("form[aria-label=Train]")
    form.get_by_label("What to train").fill("project")
    form.get_by_label("Main file").fill("train.py")
    form.get_by_label("Arguments").fill(f"'{stop}'")
    expect(page.get_by_role("region", name="Preview")).to_contain_text("It would start at once")
    screen.shot("tour-train-form")
    page.get_by_role("button", name="Submit").click()
    head = page.locator(".jp-edt-job-header")
    expect(head).to_contain_text("running")
    expect(page.locator("[data-curve] [role=img]")).to_have_attribute("aria-label", re.compile("loss"))
    screen.shot("tour-job")
    page.get_by_role("tab", name="Logs", exact=True).click()
    expect(page.locator(".jp-edt-log")).to_contain_text("Epoch ")
    stop.touch()
    expect(head).to_contain_text("finished")


def test_pages_in_the_dark(screen: Screen, submit):
    submit("tour-pages")
    page = screen.open()
    screen.dark()
    screen.run("edt:open-cluster")
    expect(page.locator(".jp-edt-cluster-page")).to_contain_text("tour-pages")
    screen.shot("tour-cluster-dark")
    screen.run("edt:open-catalogue")
    expect(page.locator(".jp-edt-catalogue-page")).to_contain_text("Data sets")
    screen.shot("tour-catalogue-dark")
    screen.theme("Light")


def test_notebook_7(screen: Screen, server, submit, write_notebook):
    job = submit("tour-seven")
    write_notebook(server, "seven.ipynb", FIND.format(id=job.id) + "job")
    page = screen.open("notebooks/seven.ipynb")
    screen.run_cell()
    expect(page.locator(".jp-edt-card-live")).to_contain_text(re.compile(r"update [1-9]\d* of 200"))
    screen.command("Show Jobs")
    expect(page.locator(".jp-edt-panel")).to_contain_text("tour-seven")
    screen.shot("tour-notebook")
    page = screen.open("tree")
    screen.run("edt:open-job", id=job.id)
    expect(page.locator(".jp-edt-job-header")).to_contain_text("tour-seven")
    screen.shot("tour-notebook-tree")
