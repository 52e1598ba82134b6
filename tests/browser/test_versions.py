"""The model of a finished job is kept as a version, found in the catalogue, trained again and removed."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.screen import Screen

# A plain script that writes its weights itself: no torch.
SCRIPT = """
import json, os, sys
from pathlib import Path
result = Path(os.environ["RESULT_DIR"])
(result / "model" / "train").mkdir(parents=True)
(result / "model" / "train" / "model_epoch_final.pth").write_text(sys.argv[1])
(result / "val_dict_list.json").write_text(json.dumps([{"step": 1, "loss": 0.25}]))
"""


def test_from_a_finished_job_to_a_version_that_is_trained_again(screen: Screen, server, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    job = (
        server.client()
        .submit(tmp_path / "train.py", name="good net", args=["a"], framework="PyTorch", progress=False)
        .wait(300, progress=False)
    )
    page = screen.open()
    screen.run("edt:open-job", id=job.id)
    head = page.locator(".jp-edt-job-header:visible")
    expect(head).to_contain_text("finished")
    page.get_by_role("toolbar", name="Actions").get_by_role("button", name="Keep …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Name")).to_have_value("good-net")
    dialog.get_by_label("Description").fill("the first one")
    dialog.get_by_label("Alias").fill("champion")
    screen.answer("Keep", says="Keep the model of “good net”")
    told = page.locator(".Toastify__toast", has_text="Kept as good-net/1: it is in the catalogue, under Versions.")
    told.get_by_role("button", name="Deploy …").click()
    form = page.get_by_role("form", name="A new deployment")
    expect(form.get_by_label("Version")).to_have_value("good-net/1")
    form.get_by_role("button", name="Cancel").click()

    screen.run("edt:open-catalogue", tab="versions")
    row = page.get_by_role("row", name="good-net/1")
    expect(row).to_contain_text("the first one")
    expect(row).to_contain_text("champion")
    expect(row).to_contain_text("loss 0.25")
    screen.shot("catalogue-versions")
    page.get_by_role("button", name="Give good-net/1 an alias").click()
    page.get_by_role("dialog").get_by_label("Alias").fill("stable")
    screen.answer("Give", says="An alias for good-net/1")
    expect(row).to_contain_text("champion, stable")
    page.get_by_role("button", name="Delete good-net/1").click()
    screen.answer("Delete", says="Its number is not used again")
    expect(page.get_by_text("good-net/1 is good-net@champion and good-net@stable.")).to_be_visible()

    page.get_by_role("button", name="Train good-net/1 again").click()
    expect(page.locator(".jp-edt-job-header:visible")).to_contain_text("good-net/1 again")
    expect(page.locator(".jp-edt-job-header:visible")).to_contain_text("finished")
    version = server.client().version("good-net@stable")
    (again,) = (each for each in server.client().jobs() if each.name == "good-net/1 again")
    assert version.compare(again).equal
    version.remove_alias("champion").remove_alias("stable")
    screen.run("edt:open-catalogue", tab="versions")
    page.get_by_role("button", name="Delete good-net/1").click()
    screen.answer("Delete", says="Its number is not used again")
    expect(page.get_by_text("There is no version yet.")).to_be_visible()
