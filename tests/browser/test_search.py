"""A search in the output of a cell, in the panel and as a page: current without a kernel, and with buttons that act."""

from __future__ import annotations

import math
import re

import pytest
from playwright.sync_api import expect

from edt_sdk import log
from tests.browser.patience import until

# The last two trials wait until the test has looked.
SCRIPT = """
import os, sys, time
import torch
from torch import nn
from fabric_model import FabricModel

def data(samples, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())

def datasets():
    return data(64, 1), data(32, 2)

while int(os.environ["EDT_TRIAL"]) > 1 and not os.path.exists(sys.argv[2]):
    time.sleep(0.1)
torch.manual_seed(3)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
FabricModel(model, datasets, nn.functional.cross_entropy, optimizer).train(2, 8, 1)
"""


def brush(page, picture, least):
    """Choose the rates from `least` up, with the pointer."""
    ends = picture.evaluate(
        """svg => {
            const [axis, place] = [svg.querySelector('[data-axis]'), svg.getBoundingClientRect()];
            const scale = place.width / svg.getAttribute('width');
            const [x, top, bottom] = ['x1', 'y1', 'y2'].map(name => axis.getAttribute(name) * scale);
            return [place.left + x, place.top + top, place.top + bottom];
        }"""
    )
    x, top, bottom = ends
    page.mouse.move(x + 5, bottom - (bottom - top) * (math.log10(least) + 3) / 3)
    page.mouse.down()
    page.mouse.move(x + 3, (top + bottom) / 2)
    page.mouse.move(x - 3, top - 10)
    page.mouse.up()


@pytest.fixture
def search(server, tmp_path):
    folder, enough = tmp_path / "digits", tmp_path / "enough"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    made = server.client().search(
        folder,
        name="digits-lr",
        args=["{lr}", str(enough)],
        space={"lr": log(1e-3, 1.0)},
        metric="test_loss",
        trials=4,
        epochs=2,
        min_epochs=1,
        eta=2,
        max_workers=1,
        progress=False,
    )
    made.enough = enough.touch
    yield made
    enough.touch()
    if not made.state.final:
        made.stop()
    made.delete()


def test_its_card_its_page_and_its_row(screen, server, search, write_notebook):
    until(screen.page, lambda: search.refresh().view.counts.get("HELD", 0) == 2, "two trials are held")
    write_notebook(server, "search.ipynb", "search", bundles=[search._repr_mimebundle_()])
    page = screen.open("lab/tree/search.ipynb")
    card = page.locator(".jp-edt-card-live")
    expect(card).to_contain_text("digits-lr")
    expect(card).to_contain_text(re.compile(r"0 of 4 trials · rung 1 of 2 · best \S+ \(trial \d\) · \d of 4 slots"))
    drawn = card.locator("[data-picture] svg")
    expect(drawn).to_have_attribute(
        "aria-label", re.compile("digits-lr: test_loss of 2 trials; the best so far is trial")
    )
    screen.shot("search-card")
    card.get_by_role("tab", name="Parallel").click()
    expect(drawn).to_have_attribute("aria-label", re.compile("test_loss of 2 trials over lr; the best is trial"))
    screen.shot("search-parallel")
    card.get_by_role("tab", name="Rungs").click()
    expect(drawn).to_have_attribute("aria-label", "digits-lr: after 1 epoch 2 of 4 compared.")
    card.get_by_role("tab", name="Best trials").click()
    expect(card.get_by_role("row")).to_have_count(5)
    card.get_by_role("button", name="Pause").click()
    expect(card).to_contain_text("paused")
    card.get_by_role("button", name="Resume").click()
    expect(card).to_contain_text("running")

    card.get_by_role("button", name="Open", exact=True).click()
    tab = page.locator(".jp-edt-search-page")
    expect(tab.locator("[data-picture] svg")).to_have_attribute("aria-label", re.compile("test_loss of 2 trials"))
    screen.shot("search-page")
    search.enough()
    search.wait(300)
    expect(tab).to_contain_text("4 of 4 trials · rung 2 of 2 · best")
    expect(tab.get_by_role("button", name="Stop")).to_have_count(0)
    tab.get_by_label("Over").select_option("time")
    expect(tab.locator("[data-picture] svg")).to_have_attribute("aria-label", re.compile("test_loss of 4 trials"))
    tab.get_by_role("tab", name="Rungs").click()
    rungs = "digits-lr: after 1 epoch 4 of 4 compared, 2 went on; after 2 epochs 2 of 2 compared."
    expect(tab.locator("[data-picture] svg")).to_have_attribute("aria-label", rungs)
    screen.shot("search-rungs")
    tab.get_by_role("tab", name="Slots").click()
    expect(tab.locator("[data-picture] svg")).to_have_attribute(
        "aria-label", re.compile("Slots held over .*digits-lr-")
    )
    screen.shot("search-slots")
    tab.get_by_role("tab", name="Parallel").click()
    drawn, says = tab.locator("[data-picture] svg"), tab.locator(".jp-edt-toolbar")
    expect(drawn).to_have_attribute("aria-label", re.compile("test_loss of 4 trials over lr"))
    expect(says).to_contain_text("Drag along an axis")
    rates = sorted(trial.params["lr"] for trial in search.trials)
    brush(page, drawn, (rates[1] * rates[2]) ** 0.5)
    expect(says).to_contain_text("2 of 4 trials.")
    expect(tab.get_by_role("row")).to_have_count(3)
    listed = {tab.get_by_role("row").nth(at).get_by_role("button").inner_text() for at in (1, 2)}
    assert listed == {str(trial.number) for trial in search.trials if trial.params["lr"] >= rates[2]}
    screen.shot("search-brushed")
    picture = tab.get_by_role("group", name=re.compile("Left and right go to an axis"))
    picture.press("Escape")
    expect(tab.get_by_role("row")).to_have_count(0)
    picture.press("ArrowLeft")  # from the first axis to the last one, the metric's
    picture.press("ArrowUp")
    worst = max(trial.value for trial in search.trials)
    upper = [trial for trial in search.trials if trial.value > (worst + search.best.value) / 2]
    expect(tab.get_by_role("row")).to_have_count(1 + len(upper))
    tab.get_by_role("button", name="Show all").click()
    expect(says).to_contain_text("Drag along an axis")
    tab.get_by_role("tab", name="Trials").click()
    best = search.best
    first = tab.get_by_role("row").nth(1)
    expect(first.get_by_role("button")).to_have_text(str(best.number))
    tab.get_by_label("Sorted by").select_option("number")
    expect(first.get_by_role("button")).to_have_text("0")
    screen.shot("search-trials")
    screen.panel()
    tab.get_by_role("button", name=f"Open the job of trial {best.number}", exact=True).click()
    expect(page.locator(".jp-edt-job-header:visible")).to_contain_text("finished")
    # Not after a while: the next answer with the whole list would take it away again.
    assert page.locator(".jp-edt-row", has_text="digits-lr-").count() == 0


def test_a_search_that_runs_is_in_the_panel_and_is_stopped_from_its_card(screen, server, search, write_notebook):
    bundle = search._repr_mimebundle_()
    write_notebook(server, "stop.ipynb", "search", bundles=[bundle])
    page = screen.open("lab/tree/stop.ipynb")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    screen.panel()
    row = page.get_by_role("list", name="Searches").get_by_role("button")
    expect(row).to_contain_text("of 4 trials")
    status = page.locator(".jp-edt-status")
    expect(status).to_have_attribute("aria-label", re.compile(": 1 job of mine with slots, 0 without a slot; 2 of 4"))
    screen.shot("search-panel")
    card = page.locator(".jp-edt-card-live")
    card.get_by_role("button", name="Stop").click()
    screen.answer("Stop", says="The search can be resumed")
    expect(card).to_contain_text("stopped")
    expect(card.get_by_role("button", name="Resume")).to_be_visible()
    expect(row).to_contain_text("stopped")  # for an hour
    expect(page.locator(".jp-edt-row", has_text="digits-lr-")).to_have_count(0)
    expect(page.locator(".Toastify__toast")).to_have_count(0)
    row.click()
    expect(page.locator(".jp-edt-search-page")).to_contain_text("stopped")
    assert not [url for url in asked if "/edt/api/jobs/digits-lr-" in url], "no trial is asked for on its own"


def test_it_is_started_from_the_train_form(screen, server, tmp_path):
    (server.root / "widths").mkdir()
    (server.root / "widths/train.py").write_text(SCRIPT)
    enough = tmp_path / "enough"
    page = screen.open()
    screen.run("edt:train")
    form = page.locator("form[aria-label=Train]")
    page.get_by_role("tab", name="Search").click()
    form.get_by_label("What to train").fill("widths")
    form.get_by_label("Arguments").fill(f"{{lr}} '{enough}'")
    form.get_by_label("Hyper-parameters").fill("lr=log(1,0)")
    expect(form.get_by_text("its range begins at 1 and ends before that")).to_be_visible()
    form.get_by_label("Hyper-parameters").fill("lr=log(1e-3,1)")
    form.get_by_label("Metric").fill("test_loss")
    form.get_by_label("Trials").fill("9")
    form.get_by_label("Epochs", exact=True).fill("9")
    form.get_by_label("Compare first after").fill("1")
    expect(page.get_by_label("Preview")).to_contain_text("9 trials, 21 epochs instead of 81. It would start at once")
    screen.shot("search-form")
    page.get_by_role("button", name="Start the Search").click()
    expect(page.locator(".jp-edt-search-page")).to_contain_text("of 9 trials")
    found = server.client().search_named("widths")
    assert (found.view.spec.metric, found.view.spec.min_epochs) == ("test_loss", 1)
    enough.touch()
    found.stop()
    found.delete()
