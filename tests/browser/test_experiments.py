"""The table of runs lives: it is sorted and filtered; chosen runs are compared, tagged, kept, stopped; also as CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from edt_sdk import Job
from tests.browser.front_end import evaluate
from tests.browser.screen import Screen

# Plain scripts that write metrics and weights themselves: no torch.
SCRIPT = """
import json, os, sys, time
from pathlib import Path
rate, width = float(sys.argv[2]), int(sys.argv[4])
while "--wait" in sys.argv:
    time.sleep(0.1)
result = Path(os.environ["RESULT_DIR"])
(result / "model" / "train").mkdir(parents=True)
(result / "model" / "train" / "model_epoch_final.pth").write_text("weights")
metrics = {"test_loss": rate * width / 10, "test_accuracy": 1 - rate}
(result / "val_dict_list.json").write_text(json.dumps([{"step": 1, **metrics}]))
"""
PROJECT, EXPERIMENT = "mnist ä", "rates"


@pytest.fixture
def submit(server, tmp_path) -> Callable[..., Job]:
    (tmp_path / "train.py").write_text(SCRIPT)
    experiment = server.client().project(PROJECT).experiment(EXPERIMENT)

    def send(rate: float, width: int, *more: str) -> Job:
        args = ["--lr", str(rate), "--width", str(width), "--epochs=5", *more]
        return experiment.submit(tmp_path / "train.py", args=args, framework="PyTorch", progress=False)

    return send


def shows_rates(page: Page, *expected: str) -> None:
    """Waits until the column lr, from top to bottom, is this."""
    table = page.get_by_role("table", name=f"Runs of {PROJECT} {EXPERIMENT}")
    at = table.locator("thead th").all_inner_texts().index("lr")
    expect(table.locator(f"tbody tr > :nth-child({at + 1})")).to_have_text(expected)


def test_runs_are_compared_where_they_appear(screen: Screen, server, submit):
    page = screen.open()
    screen.panel()
    page.get_by_role("button", name="Experiments", exact=True).click()
    tab = page.locator(".jp-edt-experiments")
    expect(tab).to_contain_text("You have no project yet.")
    screen.shot("experiments-none")

    # The first run makes the project, and the page shows it without being asked.
    jobs = [submit(rate, width) for rate, width in ((0.25, 64), (0.5, 8), (0.125, 16))]
    expect(tab.get_by_label("Project")).to_contain_text("mnist ä (3 runs)")
    tab.get_by_label("Experiment").select_option("rates")
    for job in jobs:
        job.wait(300, progress=False)
    table = page.get_by_role("table", name=f"Runs of {PROJECT} {EXPERIMENT}")
    expect(table.get_by_text("(the best)")).to_have_count(2)  # as soon as all have ended
    same = page.get_by_role("region", name="The same in all runs")
    expect(same).to_contain_text("epochs")
    expect(same).to_contain_text("finished")
    shows_rates(page, "0.125", "0.5", "0.25")  # the newest first

    # A click sorts, the best first, a second one turns it round.
    table.get_by_role("button", name="test_accuracy").click()
    shows_rates(page, "0.125", "0.25", "0.5")
    expect(table.locator("th[aria-sort=descending]")).to_contain_text("test_accuracy")
    screen.shot("experiments")
    table.get_by_role("button", name="width").click()
    expect(table.locator("th[aria-sort=ascending]")).to_contain_text("width")
    shows_rates(page, "0.5", "0.125", "0.25")  # numbers as numbers
    with page.expect_download() as started:
        tab.get_by_role("link", name="Download CSV").click()
    with started.value.path().open(newline="") as file:
        assert [line["width"] for line in csv.DictReader(file)] == ["8", "16", "64"]
    assert started.value.suggested_filename == "mnist ä-rates.csv"

    # Words filter.
    words = tab.get_by_label("Only runs with these words")
    words.fill("lr=0.5 finished")
    expect(tab.get_by_role("status")).to_contain_text("1 of 3 runs")
    shows_rates(page, "0.5")
    words.fill("")

    # What is chosen is tagged, kept and compared.
    does = tab.get_by_role("toolbar", name="The chosen runs")
    expect(does.get_by_role("button", name="Tag …")).to_be_disabled()
    for job in jobs[:2]:
        tab.get_by_label(f"Choose {job.id}").check()
    expect(does.get_by_role("button", name="Keep …")).to_be_disabled()
    does.get_by_role("button", name="Tag …").click()
    page.get_by_role("dialog").get_by_label("Tags to add").fill("wide, again")
    screen.answer("Add", says="Tag 2 runs")
    expect(table.get_by_text("wide, again")).to_have_count(2)
    tab.get_by_label(f"Choose {jobs[1].id}").uncheck()
    does.get_by_role("button", name="Keep …").click()
    page.get_by_role("dialog").get_by_label("Name").fill("net")
    screen.answer("Keep", says="Keep the model of “train”")
    expect(table.get_by_role("row", name=jobs[0].id)).to_contain_text("net/1")

    # A run that has not ended appears, can be stopped, and is shown as stopped.
    waits = submit(1, 32, "--wait")
    row = table.get_by_role("row", name=waits.id)
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("yes")  # the flag
    screen.shot("experiments-running")
    tab.get_by_label(f"Choose {jobs[0].id}").uncheck()
    tab.get_by_label(f"Choose {waits.id}").check()
    does.get_by_role("button", name="Stop …").click()
    screen.answer("Stop", says="Stop “train”?")
    expect(row).to_contain_text("stopped")
    tab.get_by_label("Choose all 4").check()
    does.get_by_role("button", name="Compare").click()
    expect(page.locator(".jp-edt-compare").get_by_role("checkbox", checked=True)).to_have_count(4)

    # The tab of a job leads back, and its labels may change there.
    screen.run("edt:open-job", id=waits.id)
    head = page.locator(".jp-edt-job-header:visible")
    form = page.get_by_label("Project, tags and notes")
    form.get_by_label("Experiment").fill("stopped ones")
    form.get_by_role("button", name="Save").click()
    head.get_by_role("button", name="mnist ä / stopped ones").click()
    expect(tab.get_by_label("Experiment")).to_have_value("stopped ones")
    expect(tab.get_by_role("status")).to_have_text("1 run")
    tab.get_by_role("button", name="New run …").click()
    page.get_by_text("More", exact=True).click()
    expect(page.locator(".jp-edt-train-page").get_by_label("Experiment")).to_have_value("stopped ones")
    screen.dark()
    screen.run("edt:open-experiments", project=PROJECT, experiment=EXPERIMENT)
    expect(table.locator("tbody tr")).to_have_count(3)
    screen.shot("experiments-dark")


def test_what_stands_in_a_cell_and_what_a_filter_finds():
    row = {"job": "a-1", "state": "KILLED", "lr": 1e-05, "width": 64, "amp": True, "tags": ["x", "y"], "duration": 90.4}
    living = {"job": "b-2", "state": "RUNNING", "lr": 0.1, "started": 1000.0, "duration": 1.0}
    found = [("state", "stopped"), ("lr", "1e-05"), ("width", "64"), ("amp", "yes"), ("tags", "x, y"), ("depth", "–")]
    cells: list[object] = [[row, name] for name, _ in [*found, ("duration", "")]]
    assert evaluate("experiments/rows.ts", "of.cellWords(it[0], it[1], 1050)", cells) == [
        *(words for _, words in found),
        "90 s",
    ]
    assert evaluate("experiments/rows.ts", "of.cellWords(it, 'duration', 1050)", [living]) == ["50 s"]
    searches: list[object] = ["", "LR=0.1", "stopped", "width=64 lr=0.1", "tags=x", "b-"]
    rows = f"of.matching({json.dumps([row, living])}, it, 1050).map(row => row.job).join()"
    assert evaluate("experiments/rows.ts", rows, searches) == ["a-1,b-2", "b-2", "a-1", "", "a-1", "b-2"]


@pytest.mark.parametrize(
    ("direction", "values", "found"),
    [
        ("maximize", [0.5, None, 0.9, 0.7, 0.9], [[0.5, 0], [0.7, 0.5], [0.9, 1]]),
        ("minimize", [0.5, 0.25], [[0.5, 0], [0.25, 1]]),
        ("minimize", [0.5, None, 0.5], []),
        ("", [0.5, 0.25], None),
    ],
)
def test_the_place_of_a_value_among_the_others(direction, values, found):
    rows = [{} if value is None else {"f": value} for value in values]
    table = {"columns": [{"name": "f", "kind": "metric", "direction": direction}], "rows": rows}
    assert evaluate("experiments/rows.ts", "of.places(it).f ? [...of.places(it).f] : null", [table]) == [found]
