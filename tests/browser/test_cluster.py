"""Pages about more than one job: slots and queues, the catalogue, the comparison; in JupyterLab and Notebook 7."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.patience import kept, until
from tests.browser.screen import Screen


def test_slots_and_queues(screen: Screen, server, submit):
    page = screen.open("lab?reset")
    page.locator(".jp-LauncherCard", has_text="Slots and Queues").click()
    expect(page.get_by_text("No job runs or waits: all slots are free.")).to_be_visible()
    first, second = submit("first", max_workers=2), submit("second", max_workers=2)
    table = page.get_by_label("Jobs", exact=True)
    expect(table.get_by_role("row", name="first")).to_contain_text("default")
    expect(page.get_by_text("4 of 4 slots in use, 2 jobs")).to_be_visible()
    slots = page.locator("[data-picture='pictures/slots'] svg")
    expect(slots).to_have_attribute("aria-label", re.compile("first.*second|second.*first"))
    expect(page.locator("[data-picture='pictures/shares'] svg")).to_be_visible()
    expect(page.locator("[data-picture='pictures/timeline'] svg")).to_be_visible()
    table.get_by_role("button", name="second").click()
    expect(page.locator(".jp-edt-job-header")).to_contain_text(second.id)
    # The second command comes before the page of the first is drawn.
    page.evaluate(
        "ids => Promise.all(ids.map(id => window.jupyterapp.commands.execute('edt:compare', { ids: [id] })))"
        ".then(() => null)",
        [first.id, second.id],
    )
    curves = page.locator(".jp-edt-compare-result [role=img]")
    expect(curves).to_have_attribute("aria-label", re.compile("first.*second|second.*first"))
    # The id of the second alone is also in what is kept of its own page.
    both = json.dumps([first.id, second.id])
    until(page, lambda: kept(server, "jp-edt-compare", both), "the application has kept its layout")
    page.reload()
    expect(curves).to_have_attribute("aria-label", re.compile("first.*second|second.*first"))


def test_data_sets_and_models(screen: Screen, server, slow_trainer, tmp_path):
    code = server.root / "coded"
    code.mkdir()
    (code / "train.py").write_text(slow_trainer)
    (server.root / "numbers").mkdir()
    (server.root / "numbers" / "a.csv").write_text("1,2\n")
    stop = tmp_path / "stop"
    stop.touch()
    page = screen.open("lab?reset")
    page.locator(".jp-LauncherCard", has_text="Catalogue").click()
    expect(page.get_by_text("There is no data set yet.")).to_be_visible()
    page.get_by_role("button", name="Add a data set").click()
    form = page.get_by_role("form", name="Add a data set")
    form.get_by_label("Name").fill("no good name")
    form.get_by_label("Folder or file").fill("numbers")
    form.get_by_role("button", name="Add").click()
    expect(form.locator(".jp-edt-field.jp-mod-wrong")).to_contain_text("is no name for a data set")
    form.get_by_label("Name").fill("numbers")
    form.get_by_role("button", name="Add").click()
    expect(page.get_by_role("row", name="numbers")).to_contain_text("a copy of its own")

    page.get_by_role("tab", name="Models").click()
    page.get_by_role("button", name="Add a model").click()
    form = page.get_by_role("form", name="Add a model")
    form.get_by_label("Name").fill("reader")
    form.get_by_label("Folder, script or notebook").fill("coded")
    form.get_by_label("Arguments").fill(f"'{stop}'")
    form.get_by_label("Data set").select_option("numbers")
    form.get_by_role("button", name="Add").click()
    row = page.get_by_role("row", name="reader")
    expect(row).to_contain_text("none yet")
    page.get_by_role("button", name="Train reader").click()
    page.get_by_label("Maximum workers").fill("2")
    page.get_by_role("button", name="Start training").click()
    head = page.locator(".jp-edt-job-header")
    expect(head).to_contain_text("numbers")
    expect(head).to_contain_text("finished")

    screen.run("edt:open-catalogue", tab="models")
    row.get_by_role("button", name="1 training").click()
    expect(page.get_by_label("Trainings of reader")).to_contain_text("finished")
    page.get_by_role("button", name="Delete reader").click()
    expect(page.locator(".jp-Dialog")).to_contain_text("Its 1 training and their results stay.")
    screen.answer("Delete")
    expect(page.get_by_text("There is no model yet.")).to_be_visible()


def test_instance_groups(screen: Screen, server):
    page = screen.open("lab?reset")
    screen.run("edt:open-catalogue", tab="groups")
    page.get_by_role("button", name="Add an instance group").click()
    form = page.get_by_role("form", name="Add an instance group")
    form.get_by_label("Name").fill("night")
    form.get_by_label("Policy").select_option("fifo")
    form.get_by_label("By measured speed").select_option("on")
    form.get_by_role("button", name="Add").click()
    expect(form.locator(".jp-edt-field.jp-mod-wrong")).to_contain_text("needs policy fairshare")
    form.get_by_label("By measured speed").select_option("off")
    form.get_by_role("button", name="Add").click()
    row = page.get_by_role("row", name=re.compile("^night"))
    expect(row).to_contain_text("first come, first served")
    page.get_by_role("button", name="Change night").click()
    page.get_by_role("form", name="Change night").get_by_label("Own slots").fill("1")
    page.get_by_role("form", name="Change night").get_by_role("button", name="Change").click()
    expect(page.get_by_role("form", name="Change night")).to_have_count(0)
    groups = {group.name: group for group in server.client().plan().instance_groups}
    assert (groups["night"].own, groups["night"].policy) == (1, "fifo")
    page.get_by_role("button", name="Delete night").click()
    expect(page.locator(".jp-Dialog")).to_contain_text("No job is in it.")
    screen.answer("Delete")
    expect(row).to_have_count(0)


@pytest.mark.long  # Notebook 7: browser/test_panel.py and test_monitor.py, the button: test_train_form.py
def test_pages_in_notebook_7(screen: Screen, server, idle, write_notebook):
    job = idle("seven")
    write_notebook(server, "seven.ipynb", "# FabricModel\n1")
    page = screen.open("tree")
    screen.run("edt:open-job", id=job.id)
    head = page.locator(".jp-edt-job-header")
    expect(head).to_contain_text("seven")
    expect(head).to_contain_text("running")
    screen.shot("notebook7-job")
    screen.open("notebooks/seven.ipynb")
    page.locator(".jp-NotebookPanel-toolbar").get_by_text("Train", exact=True).click()
    expect(page.get_by_label("What to train")).to_have_value("seven.ipynb")
    expect(page.get_by_label("Preview")).to_be_visible()
    screen.shot("notebook7-train")


@pytest.mark.long  # dark: browser/test_panel.py and test_job_tab.py
def test_in_the_dark(screen: Screen, server, submit):
    """The last one: the theme is kept by the server."""
    job = submit("dark")
    page = screen.open("lab?reset")
    screen.dark()
    screen.run("edt:open-cluster")
    slots = page.locator("[data-picture='pictures/slots'] svg")
    expect(slots).to_have_attribute("aria-label", re.compile("dark"))
    expect(page.get_by_label("Jobs", exact=True).get_by_role("row", name="dark")).to_contain_text("default")
    screen.shot("cluster-dark")
    screen.run("edt:compare", ids=[job.id])
    expect(page.locator(".jp-edt-compare-result [role=img]")).to_be_visible()
    screen.shot("compare-dark")
