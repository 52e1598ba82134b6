"""The train form, and the way from it to a downloaded model: what a person does who never leaves JupyterLab."""

import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.patience import kept, until
from tests.browser.screen import Screen


@pytest.fixture
def trainer(lasting_trainer: str) -> str:
    """Four shards, and it says what it does."""
    wider = lasting_trainer.replace("100, 2, 2,", "100, 2, 4,")
    assert wider.count("100, 2, 4,") == 1
    return wider.replace(
        "    def __getitem__(self, index):\n", "    def __getitem__(self, index):\n        print(index)\n"
    )


@pytest.fixture
def project(server, trainer) -> Path:
    """A folder as a person has it: a script, a module of its own, and something that is no code."""
    folder = server.root / "project"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text("import helpers\n" + trainer)
    (folder / "helpers.py").write_text("ANSWER = 42\n")
    return folder


def form(page: Page) -> Locator:
    return page.locator("form[aria-label=Train]")


def test_from_the_form_to_the_model(screen: Screen, server, project, trainer, submit, tmp_path):
    stop = tmp_path / "stop"
    page = screen.open("lab?reset")
    page.locator(".jp-LauncherCard", has_text="Train …").click()
    expect(page.get_by_text("Say what to train: the files that would be packed")).to_be_visible()
    form(page).get_by_label("What to train").fill("project")
    form(page).get_by_label("Main file").fill("train.py")
    form(page).get_by_label("Arguments").fill(f"'{stop}'")
    preview = page.get_by_label("Preview")
    expect(preview).to_contain_text("helpers.py")
    expect(preview).to_contain_text("It would start at once")
    page.get_by_role("button", name="Submit").click()

    head = page.locator(".jp-edt-job-header")
    expect(head).to_contain_text("project")
    expect(head).to_contain_text("running")
    expect(head).to_contain_text("4 of at most 4 slots")
    job = next(job for job in server.client().jobs() if job.name == "project")
    screen.panel()
    expect(page.locator(".jp-edt-panel")).to_contain_text("project")

    # Somebody else comes: they share. A higher priority takes slots back, and says so before.
    rival = submit("rival", max_workers=4, script=trainer)
    until(page, lambda: rival.refresh().view.slots == 2, "the rival has its half")
    expect(head).to_contain_text("2 of at most 4 slots")
    page.get_by_role("tab", name="Allocation").click()
    picture = page.locator("[data-picture$='/pictures/allocation'] svg")
    before = picture.get_attribute("aria-label")
    assert before
    controls = page.get_by_label("Change this job")
    controls.get_by_label("Priority").fill("15000")
    said = controls.locator("[data-said=true]")
    expect(said).to_contain_text("This job 2 → 3 slots; rival 2 → 1")
    page.keyboard.press("Enter")
    expect(head).to_contain_text("3 of at most 4 slots")
    assert job.refresh().view.priority == 15000
    expect(picture).not_to_have_attribute("aria-label", before)

    page.get_by_role("tab", name="Logs").click()
    lines = page.locator(".jp-edt-logs .jp-edt-toolbar [role=status]")
    expect(lines).to_contain_text(re.compile(r"[1-9]\S* newest lines"))
    seen = lines.inner_text()
    expect(lines).not_to_have_text(seen)
    expect(page.locator(".jp-edt-log")).to_contain_text("Epoch ")

    stop.touch()
    submit.finish()
    expect(head).to_contain_text("finished")
    with page.expect_download() as coming:
        page.get_by_label("Download", exact=True).select_option("model")
    with zipfile.ZipFile(coming.value.path()) as archive:
        assert any(name.endswith("model_epoch_final.pth") for name in archive.namelist())

    until(page, lambda: kept(server, f"jp-edt-job-{job.id}", '"tab": "logs"'), "the application has kept its layout")
    page.reload()
    expect(head).to_contain_text("finished")
    expect(page.get_by_role("tab", name="Logs")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Metrics").click()
    expect(page.locator("[data-curve] [role=img]")).to_have_attribute("aria-label", re.compile("loss"))


def test_what_is_wrong_is_said_at_its_field(screen: Screen, server, project):
    before = len(server.client().jobs())
    page = screen.open("lab?reset")
    screen.command("Train …")
    page.get_by_role("button", name="Submit").click()
    source = form(page).get_by_label("What to train")
    expect(source).to_have_attribute("aria-invalid", "true")
    expect(source).to_be_focused()
    source.fill("nowhere")
    expect(page.locator(".jp-edt-field", has=page.get_by_label("What to train"))).to_contain_text(
        "no file or folder 'nowhere'"
    )
    source.fill("projct")
    field = page.locator(".jp-edt-field", has=page.get_by_label("What to train"))
    expect(field).to_contain_text("Did you mean 'project'?")
    screen.shot("form-did-you-mean")
    source.fill("projec")
    # The path is still being typed, and "project" is there. Once the field is left, it is wrong.
    expect(page.get_by_text("There is nothing to show yet")).to_be_visible()
    expect(source).to_have_attribute("aria-invalid", "false")
    source.blur()
    expect(field).to_contain_text("Did you mean 'project'?")
    source.fill("project")
    expect(source).to_have_attribute("aria-invalid", "false")
    arguments = form(page).get_by_label("Arguments")
    arguments.fill("'not closed")
    expect(page.locator(".jp-edt-field", has=page.get_by_label("Arguments"))).to_contain_text("quote is not closed")
    arguments.fill("")
    form(page).get_by_label("Maximum workers").fill("0")
    expect(page.locator(".jp-edt-field.jp-mod-wrong")).to_contain_text("whole number of at least 1")
    screen.shot("train-form-wrong")
    assert len(server.client().jobs()) == before


def test_a_notebook_is_trained_from_its_toolbar(screen: Screen, server, write_notebook):
    write_notebook(server, "mine.ipynb", "print('from the notebook')  # FabricModel", "print('and this')")
    page = screen.open("lab/tree/mine.ipynb?reset")
    page.locator(".jp-NotebookPanel-toolbar").get_by_text("Train", exact=True).click()
    expect(form(page).get_by_label("What to train")).to_have_value("mine.ipynb")
    expect(form(page).get_by_label("Cells")).to_have_value("")
    expect(page.get_by_label("Preview")).to_contain_text("the script that is run")
    screen.shot("train-notebook")
    page.get_by_text("More", exact=True).click()
    form(page).get_by_label("Framework").select_option("PyTorch")
    form(page).get_by_label("Log", exact=True).select_option("batches")
    screen.shot("train-notebook-more")
    form(page).get_by_label("Maximum workers").fill("1")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".jp-edt-job-header")).to_contain_text("finished")
    page.get_by_role("tab", name="Logs").click()
    expect(page.locator(".jp-edt-log")).to_contain_text("from the notebook")
    page.get_by_role("button", name="Clone …").click()
    expect(form(page).get_by_label("Code")).to_have_value("job")
    expect(form(page).get_by_label("Main file")).to_have_value("main.py")
    expect(form(page).get_by_label("Maximum workers")).to_have_value("1")
    expect(form(page).get_by_label("Log", exact=True)).to_have_value("batches")
    form(page).get_by_label("Code").select_option("files")
    expect(form(page).get_by_label("What to train")).to_have_value("mine.ipynb")


def test_a_form_half_filled_in_is_there_after_a_reload_and_needs_no_mouse(screen: Screen, server, project):
    page = screen.open("lab?reset")
    screen.command("Train …")
    page.get_by_label("What to train").focus()
    page.keyboard.type("project")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(form(page).get_by_label("Arguments")).to_be_focused()
    page.keyboard.type("--half")
    until(page, lambda: kept(server, "jp-edt-train", "--half"), "the application has kept its layout")
    page.reload()
    expect(form(page).get_by_label("Arguments")).to_have_value("--half")
    expect(page.get_by_label("Preview")).to_contain_text("helpers.py")
