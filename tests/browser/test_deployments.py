"""A version is deployed, asked, given a key, replaced, rolled back and stopped."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.packages import WRITES_WEIGHTS

# Code that answers by what the script was told: nothing is trained.
PREDICTOR = """
from pathlib import Path

class Predictor:
    def __init__(self, model_dir, params):
        (weights,) = Path(model_dir).glob("*.pth")
        self.word = weights.read_text()

    def predict(self, inputs):
        return [f"{self.word} {each}" for each in inputs]
"""


def test_from_a_version_to_an_answer_and_back(screen: Screen, server, tmp_path):
    client = server.client()
    (tmp_path / "train.py").write_bytes(WRITES_WEIGHTS)
    (tmp_path / "predictor.py").write_text(PREDICTOR)
    for word in ("hello", "goodbye"):
        job = client.submit(tmp_path, main="train.py", args=[word], framework="PyTorch", progress=False)
        client.register(job.wait(300, progress=False), "greeter")
    page = screen.open()
    screen.run("edt:open-catalogue", tab="deployments")
    page.get_by_role("button", name="Deploy a version …").click()
    form = page.get_by_role("form", name="A new deployment")
    form.get_by_label("Version").select_option("greeter/1")
    form.get_by_label("Replicas, at most").fill("0")
    form.get_by_role("button", name="Deploy").click()
    expect(form.get_by_text("Give a whole number of at least 1.")).to_be_visible()
    form.get_by_label("Replicas, at most").fill("2")
    form.get_by_label("Space").fill("production")
    expect(form.get_by_role("status")).to_contain_text("It would start at once")
    screen.shot("deployment-form")
    form.get_by_role("button", name="Deploy").click()
    details = page.get_by_label("The deployment greeter")
    expect(details).to_contain_text("ready")
    details.get_by_label("Inputs, a row for each answer").fill('["ann"]')
    details.get_by_role("button", name="Ask").click()
    expect(details.get_by_label("The answer")).to_have_text('["hello ann"]')
    details.get_by_label("Inputs, a row for each answer").fill("ann")
    details.get_by_role("button", name="Ask").click()
    expect(details.get_by_text("The inputs are no JSON")).to_be_visible()
    details.get_by_role("button", name="New key …").click()
    page.get_by_role("dialog").get_by_label("Who it is for").fill("shop")
    screen.answer("Make", says="A key for callers")
    expect(details.get_by_text("It is shown this once.")).to_be_visible()
    expect(details.get_by_text("shop (")).to_be_visible()
    details.get_by_role("button", name="Another version …").click()
    screen.answer("Start", says="Another version for greeter")
    expect(details.get_by_role("row", name="greeter/2")).to_contain_text("100 %")
    details.get_by_label("Inputs, a row for each answer").fill('["ann"]')
    details.get_by_role("button", name="Ask").click()
    expect(details.get_by_label("The answer")).to_have_text('["goodbye ann"]')
    screen.shot("deployment")
    details.get_by_role("button", name="Roll back").click()
    expect(details.get_by_role("row", name="It answered until revision 3 took over.")).to_be_visible()
    details.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("row", name="greeter stopped")).to_be_visible()
    details.get_by_role("button", name="Delete").click()
    screen.answer("Delete", says="Its versions stay")
    expect(page.get_by_text("Nothing is deployed yet.")).to_be_visible()
