"""The pictures of the guides: every page, as a data scientist sees it who trains on handwritten digits.

`make screenshots` writes them to docs/images/screens/; nothing else runs this. Tests go on in the order of a day, on
one server: an empty panel, the form, trainings that share the machine, notebooks, queues.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from edt_sdk import Job, choice, log
from edt_sdk.testing import LocalServer
from tests.browser import camera
from tests.browser.camera import SIZE
from tests.browser.digits import Trainings, project, updates
from tests.browser.patience import until
from tests.browser.screen import Screen

pytestmark = pytest.mark.skipif(
    "EDT_SCREENSHOTS" not in os.environ, reason="Pictures for the guides; the pages have tests of their own."
)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """What the file browser shows: a project, its data, a notebook or two."""
    home = tmp_path_factory.mktemp("home")
    project(home)
    return home


@pytest.fixture(scope="module")
def server(start_server, home: Path) -> Iterator[LocalServer]:
    """One day on one machine; in a folder with a short name, because pages show it."""
    folder = Path(tempfile.mkdtemp(prefix="lab-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    running = start_server(folder, **{"ServerApp.root_dir": home, "EdtApp.warm_workers": 1})
    yield running
    running.stop()
    shutil.rmtree(folder)


@pytest.fixture
def page(page: Page) -> Page:
    page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
    return page


@pytest.fixture
def shoot(page: Page) -> Callable[..., None]:
    """Keep the window, or a part of it, or the left of that, under a name."""
    return partial(camera.shoot, page)


@pytest.fixture(scope="module")
def trainings(server: LocalServer, home: Path) -> Iterator[Trainings]:
    """The trainings of the project."""
    begun = Trainings(server, home)
    yield begun
    begun.stop()


@pytest.fixture(scope="module")
def finished(trainings: Trainings) -> list[Job]:
    return trainings.three_finished()


@pytest.fixture(scope="module")
def broken(trainings: Trainings, tmp_path_factory) -> Job:
    return trainings.one_broken(tmp_path_factory.mktemp("broken") / "digits")


@pytest.fixture(scope="module")
def running(trainings: Trainings, finished: list[Job]) -> list[Job]:
    return trainings.two_running()


def theme(screen: Screen, name: str) -> None:
    """Light or dark; kept in the settings of the server."""
    screen.theme(name)
    screen.page.wait_for_timeout(1500)  # until pictures of the other theme have come


def wide(page: Page) -> None:
    """No side bar: the page alone."""
    page.evaluate("() => { window.jupyterapp.shell.collapseLeft(); }")


def test_01_nothing_yet(screen: Screen, server, shoot):
    page = screen.open("lab")
    screen.panel()
    expect(page.locator(".jp-edt-panel")).to_contain_text("4 of 4 slots are free")
    page.locator(".jp-LauncherCard", has_text="Train …").scroll_into_view_if_needed()
    shoot("panel-empty")
    wide(page)
    screen.run("edt:open-cluster")
    expect(page.get_by_text("No job runs or waits: all slots are free.")).to_be_visible()


def test_02_the_form(screen: Screen, server, shoot):
    server.client().add_dataset("digits", str(Path(server.traits["ServerApp.root_dir"]) / "data"), type="CSV")
    page = screen.open("lab")
    wide(page)
    page.set_viewport_size({"width": SIZE[0], "height": 560})
    screen.run("edt:train")
    form = page.locator("form[aria-label=Train]")
    form.get_by_label("What to train").fill("digits")
    form.get_by_label("Main file").fill("train.py")
    form.get_by_label("Arguments").fill("--epochs 20 --lr 0.01")
    form.get_by_label("Data set").select_option("digits")
    form.get_by_label("Maximum workers").fill("4")
    expect(page.get_by_label("Preview")).to_contain_text("model.py")
    expect(page.get_by_label("Preview")).to_contain_text("It would start at once")
    shoot("train-form")


def test_02_a_search(screen: Screen, server, home, shoot):
    client = server.client()
    search = client.search(
        home / "digits", main="train.py", name="digits-lr", args="--epochs 4 --lr {lr} --batch-size {batch}",
        space={"lr": log(1e-4, 0.5), "batch": choice(16, 32)}, metric="test_accuracy", trials=9, epochs=4, min_epochs=1,
        eta=2, max_workers=2, progress=False,
    )  # fmt: skip
    until(screen.page, lambda: search.refresh().view.counts.get("PRUNED", 0) > 3, "the first trials are compared")
    write(home, "search.ipynb", "from edt_sdk import Client\n\nClient().search_named('digits-lr')")
    page = screen.open("lab/tree/search.ipynb")
    wide(page)
    screen.run_cell()
    card = page.locator(".jp-edt-card-live")
    expect(card.locator("[data-picture] svg")).to_have_attribute("aria-label", re.compile("best so far"))
    shoot("search-card", card)
    search.wait(280)
    page.set_viewport_size({"width": SIZE[0], "height": 520})
    screen.run("edt:open-search", id=search.id, name=search.name)
    tab = page.locator(".jp-edt-search-page")
    tab.get_by_role("tab", name="Rungs").click()
    expect(tab.locator("[data-picture] svg")).to_have_attribute("aria-label", re.compile("after 4 epochs . of . comp"))
    shoot("search-rungs", tab.locator(".jp-edt-search"))
    for trial in search.trials:
        trial.job.delete()
    search.delete()


def test_03_the_tab_of_a_job(screen: Screen, server, shoot, finished, broken, running):
    first = running[0]
    page = screen.open("lab")
    page.set_viewport_size({"width": SIZE[0], "height": 920})
    screen.run("edt:open-job", id=first.id)
    expect(page.locator(".jp-edt-job-header")).to_contain_text("running")
    screen.panel()
    expect(page.locator(".jp-edt-row")).to_have_count(6)
    loss = page.locator("[data-curve] [role=img]")
    expect(loss).to_have_attribute("aria-label", re.compile("loss"))
    shoot("lab")
    shoot("panel", page.locator(".jp-edt-panel"))
    wide(page)
    controls = page.get_by_label("Change this job")
    controls.get_by_label("Priority").fill("15000")
    expect(controls.locator("[data-said=true]")).to_contain_text("This job 2 → 3 slots")
    page.set_viewport_size({"width": SIZE[0], "height": 480})
    shoot("job-what-if")
    page.set_viewport_size({"width": SIZE[0], "height": 970})
    page.keyboard.press("Enter")
    until(page, lambda: first.refresh().view.slots == 3, "it has three")
    known = updates(first)
    until(page, lambda: updates(first) > known + 20, "it went on")
    shoot("job-metrics")
    page.get_by_role("tab", name="Allocation", exact=True).click()
    expect(page.locator("[data-picture$='/pictures/allocation'] svg")).to_be_visible()
    page.wait_for_timeout(1500)
    shoot("job-allocation")
    page.get_by_role("tab", name="Logs", exact=True).click()
    expect(page.locator(".jp-edt-log")).to_contain_text("Epoch ")
    page.set_viewport_size({"width": SIZE[0], "height": 1120})
    shoot("job-logs")
    for name, part, height in (
        ("Checkpoints", page.get_by_role("row", name="epoch").first, 760),
        ("Story", page.get_by_label("What happened, the newest first").get_by_text("worker").first, 970),
        ("Workers", page.get_by_role("row", name="worker 0"), 600),
    ):
        page.get_by_role("tab", name=name, exact=True).click()
        expect(part).to_be_visible()
        page.set_viewport_size({"width": SIZE[0], "height": height})
        shoot(f"job-{name.lower()}")
    page.get_by_role("tab", name="Metrics", exact=True).click()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".jp-Dialog")).to_contain_text("become")
    page.set_viewport_size({"width": SIZE[0], "height": 520})
    shoot("stop-says-what-it-costs")
    screen.answer("Leave it")
    page.set_viewport_size({"width": SIZE[0], "height": 970})
    theme(screen, "Dark")
    shoot("job-dark")
    theme(screen, "Light")


def test_04_a_failed_one(screen: Screen, server, shoot, broken):
    page = screen.open("lab")
    wide(page)
    screen.run("edt:open-job", id=broken.id)
    expect(page.locator(".jp-edt-job-header")).to_contain_text("failed")
    page.get_by_role("tab", name="Logs", exact=True).click()
    expect(page.locator(".jp-edt-log")).to_contain_text("FileNotFoundError")
    page.set_viewport_size({"width": SIZE[0], "height": 1140})
    shoot("job-failed")


def test_05_compare(screen: Screen, server, shoot, finished):
    page = screen.open("lab")
    wide(page)
    screen.run("edt:compare", ids=[job.id for job in finished])
    expect(page.locator(".jp-edt-compare-result [role=img]")).to_have_attribute("aria-label", re.compile("digits-slow"))
    page.set_viewport_size({"width": SIZE[0], "height": 940})
    shoot("compare")


def test_05_validated(screen: Screen, server, shoot, finished):
    trained = finished[0]
    trained.validate("loss,accuracy,f1,confusion").wait(280)
    page = screen.open("lab")
    wide(page)
    screen.run("edt:open-job", id=trained.id, tab="validation")
    expect(page.get_by_role("table", name="Confusion matrix")).to_be_visible()
    page.set_viewport_size({"width": SIZE[0], "height": 1060})
    shoot("job-validation")


def write(home: Path, name: str, *cells: str) -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for source in cells:
        new = nbformat.v4.new_markdown_cell if source.startswith("#") else nbformat.v4.new_code_cell
        notebook.cells.append(new(source))
    nbformat.write(notebook, home / name)


def test_06_in_a_notebook(screen: Screen, server, home, shoot, running):
    first = running[0]
    write(home, "cards.ipynb", "## A card", f'from edt_sdk import Client\n\njob = Client().job("{first.id}")\njob')
    page = screen.open("lab/tree/cards.ipynb")
    wide(page)
    screen.run_cell()
    card = page.locator(".jp-edt-card-live")
    expect(card).to_contain_text("running")
    expect(card.locator("img")).to_have_attribute("alt", re.compile("loss"))
    shoot("card-running", page.locator(".jp-CodeCell").first)
    theme(screen, "Dark")
    shoot("card-dark", page.locator(".jp-CodeCell").first)
    theme(screen, "Light")
    screen.save()


def test_07_the_monitor(screen: Screen, server, home, shoot, running):
    first = running[0]
    write(home, "watch.ipynb", f'from edt_sdk import Client\n\nClient().job("{first.id}").monitor()')
    page = screen.open("lab/tree/watch.ipynb")
    wide(page)
    screen.run_cell()
    shown = page.locator(".jp-CodeCell").first.locator(".jp-OutputArea")
    expect(shown).to_contain_text("at this pace")
    expect(shown.locator("[data-curve] [role=img]")).to_be_visible()
    shoot("monitor-overview")
    page.set_viewport_size({"width": SIZE[0], "height": 1500})
    cell = page.locator(".jp-CodeCell").first
    for name, part in (
        ("Allocation", shown.locator("[data-picture$='/pictures/allocation'] svg")),
        ("Logs", shown.get_by_role("list", name="Log").get_by_text("Epoch ").last),
        ("Checkpoints", shown.get_by_text("Resume from here").first),
    ):
        shown.get_by_role("tab", name=name).click()
        expect(part).to_be_visible()
        page.wait_for_timeout(1500)  # until its other parts have come
        shoot(f"monitor-{name.lower()}", cell)


def test_08_notebook_7(screen: Screen, server, home, shoot, running):
    write(home, "seven.ipynb", f'from edt_sdk import Client\n\njob = Client().job("{running[0].id}")\njob')
    page = screen.open("notebooks/seven.ipynb")
    screen.run_cell()
    card = page.locator(".jp-edt-card-live")
    expect(card).to_contain_text("running")
    screen.run("edt:open-panel")
    expect(page.locator(".jp-edt-panel")).to_contain_text("digits-a")
    expect(page.locator(".jp-edt-machine").get_by_role("img", name=re.compile("Slots held"))).to_be_visible()
    shoot("notebook-7")


def test_09_the_machine(screen: Screen, server, shoot, running, trainings):
    client = server.client()
    client.create_instance_group("night", policy="fifo", own=1)
    search = trainings.begin("search-1", 400, 0.02, instance_group="night", max_workers=2)
    page = screen.open("lab")
    until(page, lambda: search.refresh().view.slots > 0 and updates(search) > 5, "it trains")
    waits = trainings.begin("search-2", 20, 0.03, instance_group="night", max_workers=2)
    until(page, lambda: bool(waits.refresh().view.reason), "it waits")
    screen.panel()
    row = page.locator(f"[data-edt-job={waits.id}]")
    expect(row).to_contain_text("waiting")
    screen.run("edt:open-job", id=waits.id)
    expect(page.locator(".jp-edt-job-header")).to_contain_text("search-2")
    expect(page.locator(".jp-edt-status")).to_contain_text("4/4 slots")
    page.wait_for_timeout(1500)
    shoot("why-pending")
    shoot("status-bar", page.locator("#jp-bottom-panel"), 360)
    wide(page)
    page.set_viewport_size({"width": SIZE[0], "height": 1480})
    screen.run("edt:open-cluster")
    expect(page.locator("[data-picture='pictures/slots'] svg")).to_be_visible()
    expect(page.locator("[data-picture='pictures/shares'] svg")).to_be_visible()
    page.get_by_label("Show the").select_option("600")
    expect(page.locator("[data-picture='pictures/timeline'] svg")).to_be_visible()
    page.wait_for_timeout(1500)
    shoot("cluster")
    page.set_viewport_size({"width": SIZE[0], "height": 560})
    screen.run("edt:open-catalogue", tab="groups")
    expect(page.get_by_role("row", name=re.compile("^night"))).to_contain_text("first come, first served")
    shoot("catalogue-instance-groups")


def test_10_the_catalogue(screen: Screen, server, home, shoot):
    client = server.client()
    client.add_model(
        "digit-reader",
        home / "digits",
        main="train.py",
        dataset="digits",
        args=["--epochs", "20"],
        max_workers=4,
        description="three convolutions",
    )
    client.train_model("digit-reader")
    page = screen.open("lab")
    page.set_viewport_size({"width": SIZE[0], "height": 560})
    wide(page)
    screen.run("edt:open-catalogue", tab="models")
    expect(page.get_by_role("row", name="digit-reader")).to_contain_text("1 training")
    shoot("catalogue-models")
    screen.run("edt:open-catalogue", tab="datasets")
    page.get_by_role("tab", name="Data sets").click()
    expect(page.get_by_role("row", name="digits")).to_be_visible()
    page.get_by_role("button", name="Add a data set").click()
    form = page.get_by_role("form", name="Add a data set")
    form.get_by_label("Name").fill("letters")
    form.get_by_label("Folder or file").fill("data/letters")
    shoot("catalogue-data-sets")


def test_11_the_server_is_away(screen: Screen, server, shoot, running):
    page = screen.open("lab")
    screen.panel()
    screen.run("edt:open-job", id=running[0].id)
    expect(page.locator(".jp-edt-job-header")).to_contain_text("running")
    expect(page.locator("[data-curve] [role=img]")).to_be_visible()
    page.context.set_offline(True)
    expect(page.locator(".jp-edt-stale").first).to_contain_text("does not answer")
    expect(page.locator(".jp-edt-panel [role=alert]")).to_contain_text("Last seen")
    shoot("server-gone")
    page.context.set_offline(False)
