"""The tab of a job: its log however long, what can be done with it, and what it says when it cannot be had."""

import re

from playwright.sync_api import Page, expect

from tests.browser.patience import until
from tests.browser.screen import Screen

LOUD = """\
# FabricModel
import sys
for n in range(100_000):
    print(f"line {n} of many")
print("\\x1b[31mred\\x1b[0m " + "x" * 1_000_000 + " end-of-long")
for n in range(100):
    sys.stdout.write(f"\\rprogress {n} %")
print()
print("wide " * 60 + "end-of-wide")
print("the last line")
print("<b>to stderr</b>", file=sys.stderr)
"""


def go(screen: Screen, job: str, tab: str = "") -> Page:
    page = screen.open("lab?reset")
    screen.run("edt:open-job", id=job)
    expect(page.locator(".jp-edt-job-header")).to_be_visible()
    if tab:
        page.get_by_role("tab", name=tab, exact=True).click()
    return page


def test_a_hundred_thousand_lines_and_one_of_a_megabyte(screen, server, tmp_path):
    (tmp_path / "loud.py").write_text(LOUD)
    job = server.client().submit(tmp_path, main="loud.py", max_workers=1, framework="PyTorch", progress=False)
    job.wait(300)
    page = go(screen, job.id, "Logs")
    log, status = page.locator(".jp-edt-log"), page.locator(".jp-edt-logs .jp-edt-toolbar [role=status]")
    expect(log).to_contain_text("the last line")
    expect(log).to_contain_text("progress 99 %")
    expect(log).not_to_contain_text("progress 98 %")
    expect(log).to_contain_text("<b>to stderr</b>")
    # Its end is in the window, also where that is small, and it grows with the window.
    panel = page.locator("#jp-main-dock-panel")
    for height in (720, 1000):
        before = panel.bounding_box()
        page.set_viewport_size({"width": 1366, "height": height})
        until(page, lambda before=before: panel.bounding_box() != before, "the panel has another size")
        low = "node => node.getBoundingClientRect().bottom <= document.getElementById('jp-main-dock-panel')"
        until(page, lambda low=low: log.evaluate(f"{low}.getBoundingClientRect().bottom"), "the log fits")
    until(page, lambda: log.bounding_box()["height"] > 400, "the log grows with the window")
    # However many there are, few are in the document.
    assert log.get_by_role("listitem").count() < 200
    page.get_by_role("button", name="Read from the beginning").click()
    expect(status).to_contain_text(re.compile(r"100.00\d lines"), timeout=120_000)
    log.get_by_role("button", name="show all (1 MB)").click()
    whole = page.get_by_label("The whole line")
    expect(whole).to_contain_text("end-of-long")
    expect(whole).to_contain_text("red xxx")
    screen.shot("log-long-line")
    whole.get_by_role("button", name="Close").click()
    page.get_by_label("Search the log").fill("line 77777 of")
    expect(log.get_by_role("listitem")).to_have_count(1)
    expect(log).to_contain_text("line 77777 of many")
    page.get_by_label("Search the log").fill("end-of-wide")
    last = log.get_by_role("listitem").last
    expect(last).to_contain_text("end-of-wide")
    expect(last).not_to_contain_text("driver")
    assert log.evaluate("node => node.scrollWidth <= node.clientWidth")
    shown = log.locator(".jp-edt-log-text").all_inner_texts()
    assert "".join(shown).split() == ["wide"] * 60 + ["end-of-wide"]
    page.get_by_label("Search the log").fill("there is no such line")
    expect(page.get_by_text("No line contains “there is no such line”.")).to_be_visible()


def test_every_view_says_something(screen, server, submit):
    job = submit("speaks")
    page = go(screen, job.id)
    expect(page.locator(".jp-edt-job-header")).to_contain_text("running")
    expect(page.locator("[data-picture$='/pictures/efficiency'] svg")).to_have_attribute(
        "aria-label", re.compile("speaks")
    )
    loss = page.locator("[data-curve] [role=img]")
    expect(loss).to_have_attribute("aria-label", re.compile("loss"))
    place = page.locator("[data-curve] .u-legend .u-value").first
    expect(place).not_to_have_text(re.compile(":"))
    page.get_by_label("time", exact=True).check()
    expect(place).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
    page.get_by_role("tab", name="Story").click()
    expect(page.get_by_label("What happened, the newest first")).to_contain_text("trains on 1 worker from the start")
    page.get_by_role("tab", name="Workers").click()
    expect(page.get_by_role("row", name="worker 0")).to_contain_text(re.compile(r"\d+"))
    page.get_by_role("tab", name="Checkpoints").click()
    expect(page.get_by_role("row", name="epoch")).not_to_have_count(0)


def test_suspended_and_resumed_from_the_keyboard(screen, server, submit):
    job = submit("pauses")
    page = go(screen, job.id, "Checkpoints")
    head = page.locator(".jp-edt-job-header")
    expect(head).to_contain_text(re.compile("update [1-9]"))
    page.get_by_role("button", name="Suspend").focus()
    page.keyboard.press("Enter")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("no update is lost")
    page.keyboard.press("Enter")
    expect(head).to_contain_text("suspended")
    expect(head).to_contain_text("needs no slot.")
    expect(head).not_to_contain_text("job.resume()")
    expect(head).not_to_contain_text("samples/s")
    screen.shot("job-suspended")
    rows = page.locator(".jp-edt-table tbody tr")
    written = [each["name"] for each in job.checkpoints()]
    expect(rows.locator("th")).to_have_text(written[::-1])
    resume = rows.first.get_by_role("button", name="Resume from here")
    expect(resume).to_be_enabled()
    resume.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The job goes on from")).to_be_visible()
    expect(head).to_contain_text("running")
    first = page.get_by_role("tab", name="Metrics")
    page.get_by_role("tab", name="Checkpoints").focus()
    page.keyboard.press("Home")
    expect(first).to_be_focused()
    expect(first).to_have_attribute("aria-selected", "true")


def test_the_server_is_gone_and_comes_back(screen, start_server, lasting_trainer, tmp_path):
    server = start_server()
    (tmp_path / "train.py").write_text(lasting_trainer)
    stop = tmp_path / "stop"
    job = server.client().submit(tmp_path, main="train.py", max_workers=2, args=[str(stop)], progress=False)
    own = Screen(screen.page, server)
    page = go(own, job.id)
    expect(page.locator(".jp-edt-job-header")).to_contain_text("running")
    page.context.set_offline(True)
    stale = page.locator(".jp-edt-stale").first
    expect(stale).to_contain_text("Last seen")
    expect(stale).to_contain_text("does not answer")
    own.shot("job-server-gone")
    page.context.set_offline(False)
    stop.touch()
    expect(page.locator(".jp-edt-job-header")).to_contain_text("finished")
    expect(page.locator(".jp-edt-stale")).to_have_count(0)


def test_how_a_reason_is_computed_is_folded(screen, server, idle):
    for n in range(4):
        idle(f"holds-{n}")
    job = idle("waits")
    page = screen.open("lab?reset")

    def with_details(route):
        answer = route.fetch()
        view = answer.json()
        if view["reason"]:  # it has none any more when it was stopped
            view["reason"]["details"] = "5000 ÷ 1 = 5000"
        route.fulfill(response=answer, json=view)

    page.route(f"**/edt/api/jobs/{job.id}?*", with_details)
    screen.run("edt:open-job", id=job.id)
    reason = page.locator(".jp-edt-reason")
    expect(reason).to_contain_text("slot")
    expect(reason.get_by_text("5000 ÷ 1 = 5000")).to_be_hidden()
    reason.get_by_text("How this is computed").click()
    expect(reason.get_by_text("5000 ÷ 1 = 5000")).to_be_visible()


def test_after_the_end_loss_tags_notes_and_the_deletion(screen, server, submit):
    job, other = submit("kept"), submit("other")
    page = go(screen, job.id)
    submit.finish()
    job.wait(300)
    expect(page.locator(".jp-edt-job-header")).to_contain_text("finished")
    # The loss is written as everywhere else.
    loss = job.refresh().view.progress.loss
    expect(page.locator(".jp-edt-progress-row")).to_contain_text(re.compile(rf"loss {re.escape(f'{loss:.4g}')} "))

    # Tags and notes are written now too, and find the job.
    page.get_by_text("Project, tags and notes", exact=True).click()
    form = page.get_by_label("Project, tags and notes")
    form.get_by_label("Tags").fill("baseline, lr 0.1, baseline")
    form.get_by_label("Notes").fill("The first run.")
    form.get_by_role("button", name="Save").click()
    expect(form.locator(".jp-edt-field.jp-mod-wrong")).to_contain_text("is there twice")
    form.get_by_label("Tags").fill("baseline, lr 0.1")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("button", name="Save")).to_be_disabled()
    assert (job.refresh().tags, job.notes) == (("baseline", "lr 0.1"), "The first run.")
    screen.panel()
    page.get_by_label("Search jobs").fill("baseline")
    expect(page.locator(f"[data-edt-job={job.id}]")).to_be_visible()
    expect(page.locator(f"[data-edt-job={other.id}]")).to_have_count(0)

    # Deleted, and never there.
    page.get_by_role("button", name="Delete …").click()
    expect(page.locator(".jp-Dialog")).to_contain_text("cannot be brought back")
    screen.answer("Delete")
    expect(page.locator(".jp-edt-failure")).to_contain_text(f"There is no job {job.id}")
    screen.run("edt:open-job", id="never-was")
    expect(page.locator(".jp-edt-failure", has_text="There is no job never-was")).to_be_visible()
    screen.shot("job-gone")


def test_changes_are_refused_at_their_field_and_compared_with_the_head_also_in_the_dark(screen, lasting):
    """The last test: the job outlasts the file, and the theme is kept by the server."""
    page = go(screen, lasting.id)
    controls, head = page.get_by_label("Change this job"), page.locator(".jp-edt-job-header")
    controls.get_by_label("Maximum workers").fill("0")
    expect(controls).to_contain_text("whole number of at least 1")
    expect(controls.get_by_role("button", name="Apply")).to_be_disabled()
    page.keyboard.press("Escape")
    expect(controls.get_by_label("Maximum workers")).to_have_value("4")
    controls.get_by_label("Priority").fill("9999999999999")
    expect(controls.locator(".jp-edt-field.jp-mod-wrong")).to_contain_text("priority")
    page.keyboard.press("Escape")

    # A change and the head name the same end.
    expect(head.get_by_text("Ends about, at this pace")).to_be_visible()
    controls.get_by_label("Priority").fill("15000")
    compared = controls.get_by_text("It would end at about")
    expect(compared).to_contain_text("; as things are, at about ")
    as_things_are = re.search(r"things are, at about (.+?)\.", compared.inner_text())  # before midnight with a date
    expect(head.locator("div", has=page.get_by_text("Ends about, as things are"))).to_contain_text(as_things_are[1])
    page.keyboard.press("Escape")
    expect(head.get_by_text("Ends about, at this pace")).to_be_visible()

    # Dark and narrow.
    screen.dark()
    expect(page.locator("[data-curve] [role=img]")).to_have_attribute("aria-label", re.compile("loss"))
    page.set_viewport_size({"width": 700, "height": 900})
    body = page.locator(".jp-edt-job-page")
    # Nothing is wider than the page: what does not fit wraps, or scrolls inside its own box.
    fits = "node => node.clientWidth < 700 && node.scrollWidth <= node.clientWidth"
    until(page, lambda: body.evaluate(fits), "all of the narrow page fits")
    screen.shot("job-narrow")
