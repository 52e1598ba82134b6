"""From a new project to an answer of a deployed model, as IBM's tutorial of 18 steps has it; nothing but JupyterLab.

The numbers are those of the tutorial's steps. Its step 1 is the login, which every test here has behind it.
"""

from __future__ import annotations

import json
import re
import shutil

from playwright.sync_api import Page, expect

from tests.browser.screen import ROOT, Screen


def run(screen: Screen, page: Page, lr: str) -> None:
    """Train the model of the catalogue in the experiment, to its end."""
    screen.run("edt:open-catalogue", tab="models")
    page.get_by_role("button", name="Train handwritten").click()
    form = page.get_by_role("form", name="Train handwritten")
    form.get_by_label("Maximum workers").fill("2")  # 10: the compute configuration
    form.get_by_label("Project").fill("handwriting")
    form.get_by_label("Experiment").fill("rates")
    form.get_by_label("Arguments").fill(f"--epochs 1 --lr {lr}")
    screen.shot(f"path-train-{lr.replace('.', '-')}")
    form.get_by_role("button", name="Start training").click()
    head = page.locator(".jp-edt-job-header:visible")  # 11: the details, with the progress
    expect(head).to_contain_text("finished")
    expect(head.get_by_role("button", name="handwriting / rates")).to_be_visible()


def test_from_a_new_project_to_an_answer_and_back(screen: Screen, server):
    shutil.copytree(ROOT / "notebooks" / "digits", server.root / "pytorch-digits", dirs_exist_ok=True)
    page = screen.open()
    screen.panel()
    # 2 to 6: a project, an experiment and a space are words: each is there with the first thing that is called so.
    page.get_by_role("button", name="Experiments", exact=True).click()
    experiments = page.locator(".jp-edt-experiments")
    expect(experiments).to_contain_text("You have no project yet.")

    # 7 to 9: the training definition.
    screen.run("edt:open-catalogue", tab="models")
    page.get_by_role("button", name="Add a model").click()
    form = page.get_by_role("form", name="Add a model")
    form.get_by_label("Name").fill("handwritten")
    form.get_by_label("Folder, script or notebook").fill("pytorch-digits")
    form.get_by_label("Main file").fill("train.py")
    form.get_by_label("Description").fill("reads handwritten digits")
    form.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("row", name="handwritten")).to_contain_text("reads handwritten digits")

    # 10 and 11, twice; the better one first, so that it is the sorting that brings it to the top.
    run(screen, page, "0.05")
    run(screen, page, "0.002")

    # 12: the runs are compared.
    page.locator(".jp-edt-job-header:visible").get_by_role("button", name="handwriting / rates").click()
    table = page.get_by_role("table", name="Runs of handwriting rates")
    expect(table.locator("tbody tr")).to_have_count(2)
    table.get_by_role("button", name="test_accuracy").click()
    best = table.locator("tbody tr").first
    expect(best).to_contain_text("0.05")
    expect(best).to_contain_text("(the best)")
    screen.shot("path-runs")

    # 13: the details of one run.
    best.get_by_role("button").first.click()
    expect(page.locator(".jp-edt-job-header:visible")).to_contain_text("finished")

    # 14 to 16: its model is kept, with a name and a description, and found again.
    page.get_by_role("toolbar", name="Actions").get_by_role("button", name="Keep …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Name")).to_have_value("handwritten")
    dialog.get_by_label("Description").fill("the faster rate")
    screen.answer("Keep", says="Keep the model of “handwritten”")
    screen.run("edt:open-catalogue", tab="versions")
    expect(page.get_by_role("row", name="handwritten/1")).to_contain_text("the faster rate")

    # 17: it is deployed as a web service, in a space.
    page.get_by_role("button", name="Deploy handwritten/1").click()
    form = page.get_by_role("form", name="A new deployment")
    expect(form.get_by_label("Version")).to_have_value("handwritten/1")
    form.get_by_label("Space").fill("production")
    screen.shot("path-deploy")
    form.get_by_role("button", name="Deploy").click()
    details = page.get_by_label("The deployment handwritten")
    expect(details).to_contain_text("ready")

    # 18: its address, a line for a shell, and a payload that is answered at once.
    expect(details).to_contain_text(re.compile(r"http://127\.0\.0\.1:\d+/predict/handwritten"))
    inputs = details.get_by_label("Inputs, a row for each answer")
    expect(inputs).to_have_value(re.compile(r"^\[\[\[\["))  # an image of the training's own
    details.get_by_role("button", name="Ask").click()
    answer = details.get_by_label("The answer")
    expect(answer).to_have_text(re.compile(r"^\[\["))
    assert len(json.loads(answer.inner_text())[0]) == 10
    details.get_by_text("At a shell").click()
    expect(details).to_contain_text('-H "Authorization: Bearer $KEY"')
    screen.shot("path-answer")

    # And what the tutorial has not: another version, and back.
    client = server.client()
    worse = min(client.project("handwriting").runs(), key=lambda row: row["test_accuracy"])["job"]
    client.register(worse, "handwritten")
    details.get_by_role("button", name="Another version …").click()
    page.get_by_role("dialog").get_by_label("Version").fill("handwritten/2")
    screen.answer("Start", says="Another version for handwritten")
    expect(details.get_by_role("row", name="handwritten/2")).to_contain_text("100 %")
    details.get_by_role("button", name="Roll back").click()
    expect(details.get_by_role("row", name="It answered until revision 3 took over.")).to_be_visible()
    details.get_by_role("button", name="Delete").click()
    screen.answer("Delete", says="Its versions stay")
    expect(page.get_by_text("Nothing is deployed yet.")).to_be_visible()
