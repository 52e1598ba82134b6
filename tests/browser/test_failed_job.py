"""The tab of a job that has failed: the line in the user's own code first, and the way to mend it."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.waiting import until

MODEL = """\
import json


def read(text):
    return json.loads(text)
"""
TRAIN = """\
import argparse

from model import read

argparse.ArgumentParser().parse_args()
read('no JSON')
"""
WRONG_LAYER = Path(__file__).parents[1] / "e2e" / "jobs" / "wrong_shape.py"
PLAIN = {"main": "train.py", "framework": "PyTorch", "max_workers": 1, "progress": False}


def failed(job):
    """Return the id of a job, once it has failed."""
    until(lambda: job.refresh().view.state.name == "FAILED", "the job has failed")
    return job.id


@pytest.fixture
def broken(server):
    """The id of a job whose own module fails in a library, submitted from a folder of the server."""
    folder = server.root / "work" / "broken"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(MODEL)
    (folder / "train.py").write_text(TRAIN)
    return failed(server.client().submit(folder, **PLAIN))


def test_it_shows_the_users_own_line_and_opens_the_file_there(screen, server, broken, write_notebook):
    write_notebook(server, "work/notes.ipynb", "1 + 1")
    page = screen.open("lab/tree/work/notes.ipynb")
    expect(page.locator(".jp-Notebook:visible .jp-CodeCell")).to_be_visible()
    screen.run("edt:open-job", id=broken)
    head = page.locator(".jp-edt-job-header")
    expect(head).to_be_visible()
    line = head.get_by_label("The line in your code")
    expect(line).to_contain_text("model.py, line 5")
    expect(line).to_contain_text("return json.loads(text)")
    expect(line).to_contain_text("JSONDecodeError")
    assert "monospace" in line.evaluate("node => getComputedStyle(node).fontFamily")
    rest = head.get_by_label("The end of the log")
    expect(rest).to_be_hidden()
    head.get_by_text(re.compile(r"All \d+ frames")).click()
    expect(rest).to_contain_text("decoder.py")
    expect(page.get_by_role("tab", name="Logs", exact=True)).to_have_attribute("aria-selected", "true")
    actions = page.get_by_role("toolbar", name="Actions")
    expect(actions.get_by_role("button").first).to_have_text("Mend and run again")
    for name in ("Resume", "Validate …"):
        expect(actions.get_by_role("button", name=name)).to_have_count(0)
    screen.shot("job-failed")
    page.get_by_role("tab", name="Metrics").click()
    expect(page.get_by_text("ended before its first update")).to_be_visible()
    expect(page.get_by_text("Speed by number of workers")).to_have_count(0)

    actions.get_by_role("button", name="Mend and run again").click()
    editor = page.locator(".jp-FileEditor:visible")
    expect(editor).to_contain_text("return json.loads(text)")
    expect(page.get_by_text("Ln 5, Col 1")).to_be_visible()
    screen.shot("job-mended")
    editor.locator(".cm-content").fill(MODEL.replace("loads(text)", "dumps(text)"))
    page.keyboard.press("Control+s")
    script = server.root / "work" / "broken" / "model.py"
    until(lambda: "dumps" in script.read_text(), "the file is saved", sleep=lambda s: page.wait_for_timeout(1000 * s))
    page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text="Train").click()
    form = page.locator("form[aria-label=Train]")
    expect(form.get_by_label("What to train")).to_have_value("work/broken")
    expect(form.get_by_label("Main file")).to_have_value("train.py")
    expect(page.get_by_text("Mend work/broken/model.py, line 5")).to_be_visible()
    form.get_by_label("Arguments").fill("--epocs 30")
    form.get_by_role("button", name="Submit").click()
    expect(page.locator(".jp-edt-job-header:visible")).to_contain_text("failed")

    # No line of the code failed: the form comes to the front, where the argument is, and the code opens behind it.
    actions.get_by_role("button", name="Mend and run again").click()
    expect(page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text="train.py")).to_be_visible()
    expect(form.get_by_label("Arguments")).to_have_value("--epocs 30")
    expect(form.get_by_label("Arguments")).to_be_visible()
    expect(page.get_by_text("No line of the code failed.")).to_be_visible()
    screen.shot("job-mended-argument")
    form.get_by_label("Arguments").fill("")
    form.get_by_role("button", name="Submit").click()
    expect(page.locator(".jp-edt-job-header:visible")).to_contain_text("finished")


def test_a_wrong_layer_leads_to_the_train_call(screen, server, write_notebook):
    folder = server.root / "layers" / "wrong"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(WRONG_LAYER.read_text())
    job = failed(server.client().submit(folder, main="train.py", max_workers=1, progress=False))
    write_notebook(server, "layers/notes.ipynb", "1 + 1")
    page = screen.open("lab/tree/layers/notes.ipynb")
    expect(page.locator(".jp-Notebook:visible .jp-CodeCell")).to_be_visible()
    screen.run("edt:open-job", id=job)
    head = page.locator(".jp-edt-job-header")
    expect(head.get_by_text(re.compile(r"All \d+ frames"))).to_be_visible()
    expect(head.get_by_label("The end of the log")).to_be_hidden()
    screen.shot("job-wrong-layer")
    head.get_by_role("button", name="train.py, line 13").click()
    expect(page.locator(".jp-FileEditor:visible")).to_contain_text("FabricModel")
    expect(page.get_by_text("Ln 13, Col 1")).to_be_visible()
    expect(page.locator("form[aria-label=Train]")).to_have_count(0)
    screen.run("edt:open-job", id=job)
    page.get_by_role("button", name="Mend and run again").click()
    expect(page.get_by_text("Mend layers/wrong/train.py, line 13")).to_be_attached()
    expect(page.locator("form[aria-label=Train]").get_by_label("What to train")).to_have_value("layers/wrong")


def test_a_job_from_elsewhere_is_cloned(screen, server, tmp_path):
    (tmp_path / "train.py").write_text("raise ValueError('elsewhere')\n")
    job = failed(server.client().submit(tmp_path, name="elsewhere", **PLAIN))
    page = screen.open("lab?reset")
    screen.run("edt:open-job", id=job)
    page.get_by_role("button", name="Mend and run again").click()
    expect(page.get_by_text("was not found next to the open documents or in a folder there.")).to_be_visible()
    form = page.locator("form[aria-label=Train]")
    # Not the code that would fail again.
    expect(form.get_by_label("Code")).to_have_value("files")
    screen.run("edt:mend", id=job, look=True)
    expect(page.locator(".Toastify__toast", has_text="Open one of its files and try again.")).to_be_visible()
    (tmp_path / "train.py").write_text(TRAIN.replace("from model import read", "read = print"))
    wrong = failed(server.client().submit(tmp_path, name="elsewhere-argument", args=["--epocs", "30"], **PLAIN))
    screen.run("edt:mend", id=wrong)
    expect(page.get_by_role("heading", name="Mend elsewhere-argument")).to_be_visible()
    expect(form.locator("visible=true").get_by_label("Code")).to_have_value("job")


def test_the_code_is_found_in_a_folder_of_any_name_and_the_form_says_what_is_wrong(screen, server, write_notebook):
    top = server.root / "own"
    for name in ("mydigits", "misses", "same-line"):
        (top / name).mkdir(parents=True)
        (top / name / "model.py").write_text(MODEL)
        (top / name / "train.py").write_text(TRAIN)
    (top / "same-line" / "model.py").write_text(f"{MODEL}\n# This one is longer, and was changed last.\n")
    (top / "same-line" / "train.py").write_text(f"{TRAIN}\n")
    (top / "misses" / "train.py").write_text(f"import not_installed_here\n{WRONG_LAYER.read_text()}")
    client = server.client()
    line = failed(client.submit(top / "mydigits", name="convnet", **PLAIN))
    argument = failed(client.submit(top / "mydigits", name="magic", args=["--epocs", "30"], **PLAIN))
    module = failed(client.submit(top / "misses", name="module", main="train.py", max_workers=1, progress=False))
    write_notebook(server, "own/notes.ipynb", "1 + 1")
    page = screen.open("lab/tree/own/notes.ipynb")
    expect(page.locator(".jp-Notebook:visible .jp-CodeCell")).to_be_visible()
    form = page.locator("form[aria-label=Train]:visible")
    tabs = page.locator("#jp-main-dock-panel .lm-TabBar-tab")

    screen.run("edt:mend", id=argument)
    expect(page.get_by_role("heading", name="Mend magic")).to_be_visible()
    expect(page.locator(".jp-edt-train .jp-mod-wrong:visible")).to_contain_text("unrecognized arguments: --epocs 30")
    expect(form.get_by_label("What to train")).to_have_value("own/mydigits")
    expect(form.get_by_label("Arguments")).to_be_focused()
    screen.shot("mend-argument")

    screen.run("edt:mend", id=module)
    expect(page.locator(".jp-edt-train .jp-mod-wrong:visible")).to_contain_text("-m pip install not_installed_here")
    expect(page.get_by_text("Install the module, or change own/misses/train.py, and submit.")).to_be_visible()
    screen.shot("mend-module")

    screen.run("edt:mend", id=line)
    expect(page.locator(".jp-FileEditor:visible")).to_contain_text("return json.loads(text)")
    expect(page.get_by_text("Ln 5, Col 1")).to_be_visible()
    tabs.filter(has_text="Train").last.click()
    expect(page.locator(".jp-edt-train .jp-mod-wrong:visible")).to_contain_text("JSONDecodeError")
    expect(form.get_by_label("What to train")).to_have_value("own/mydigits")
    screen.shot("mend-line")
