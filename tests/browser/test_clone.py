"""A job cloned where its files are gone and nobody remembers where they were: from what the server has kept."""

import shutil

from playwright.sync_api import expect

from tests.browser.screen import Screen


def test_a_job_is_cloned_from_what_it_came_in_with_or_from_files(screen: Screen, server, submit, tmp_path):
    first = submit("digits", max_workers=1, priority=7000)
    first.update(max_workers=2)
    shutil.rmtree(tmp_path / "code0")  # and it was never submitted from this browser
    page = screen.open()
    screen.run("edt:clone", id=first.id)
    form = page.locator("form[aria-label=Train]")
    expect(page.get_by_role("heading", name="Clone of digits")).to_be_visible()
    expect(form.get_by_label("Code")).to_have_value("job")
    expect(form.get_by_label("What to train")).to_have_count(0)
    expect(form.get_by_label("Main file")).to_have_value("train.py")
    expect(form.get_by_label("Maximum workers")).to_have_value("2")
    expect(form.get_by_label("Priority")).to_have_value("7000")
    preview = page.get_by_label("Preview")
    expect(preview).to_contain_text("train.py")
    screen.shot("clone")
    form.get_by_label("Main file").fill("none.py")
    form.get_by_role("button", name="Submit").click()
    expect(page.locator(".jp-edt-field", has=page.get_by_label("Main file"))).to_contain_text("not in the package")
    form.get_by_label("Main file").fill("train.py")

    form.get_by_label("Code").select_option("files")
    expect(form.get_by_label("What to train")).to_have_value("")
    (server.root / "other").mkdir()
    (server.root / "other" / "elsewhere.py").write_text("# FabricModel\nprint(1)\n")
    form.get_by_label("What to train").fill("other")
    form.get_by_label("Main file").fill("elsewhere.py")
    expect(preview).to_contain_text("elsewhere.py")

    form.get_by_label("Code").select_option("job")
    form.get_by_label("Main file").fill("train.py")
    page.get_by_text("More", exact=True).click()
    form.get_by_label("Name").fill("digits again")
    form.get_by_role("button", name="Submit").click()
    head = page.locator(".jp-edt-job-header")
    expect(head).to_contain_text("digits again")
    expect(head).to_contain_text("running")
    second = next(job for job in server.client().jobs() if job.name == "digits again")
    assert second.view.args == first.view.args
    assert (second.view.priority, second.view.max_workers) == (7000, 2)
    second.stop()
