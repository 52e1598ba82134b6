"""The side panel, the status bar, the commands and the messages: what a person does with them, also by keys alone."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.crowd import add_crowd
from tests.browser.patience import until
from tests.browser.screen import Screen


def test_an_empty_panel_teaches_and_the_next_job_appears_by_itself(page, start_server, slow_trainer, tmp_path):
    server = start_server()
    screen = Screen(page, server)
    screen.open()
    screen.panel()
    panel = page.locator(".jp-edt-panel")
    expect(panel).to_contain_text("You have no jobs yet.")
    expect(panel).to_contain_text("4 of 4 slots are free")
    screen.shot("panel-empty")
    panel.get_by_role("button", name="Copy").click()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert compile(copied, "cell", "exec")
    assert "max_workers=4" in copied
    panel.get_by_role("button", name="Try the example").click()
    head = page.locator(".jp-edt-job-header")
    expect(head).to_contain_text("elastic-example")
    expect(head).to_contain_text("finished")
    expect(head).to_contain_text(re.compile(r"test accuracy (9\d|100)"))
    assert "FabricModel" in (server.root / "elastic-example" / "train.py").read_text()
    screen.shot("example-finished")
    (tmp_path / "train.py").write_text(slow_trainer)
    stop = tmp_path / "enough"
    job = server.client().submit(tmp_path, main="train.py", name="first", max_workers=2, args=[str(stop)])
    row = page.locator(".jp-edt-row", has_text="first")
    expect(row).to_contain_text("running")
    expect(page.locator(".jp-edt-status")).to_contain_text(re.compile(r"EDT 1\s*· [12]/4 slots"))
    picture = page.locator(".jp-edt-machine svg")
    expect(picture.locator("text", has_text="first")).not_to_have_count(0)
    expect(picture.locator("text", has_text="elastic")).to_have_count(0)
    expect(picture.locator("title", has_text="elastic-example: ")).to_be_attached()
    screen.shot("panel-picture")
    stop.touch()
    job.wait(300)
    toast = page.locator(".Toastify__toast")
    expect(toast).to_contain_text("first has finished.")
    expect(row).to_contain_text("finished")
    screen.shot("message-of-an-end")
    toast.get_by_role("button", name="Open").click()
    expect(page.locator(".lm-TabBar-tab.lm-mod-current", has_text="first")).to_be_visible()
    server.stop()


def test_opening_it_draws_the_slots_anew(screen):
    page = screen.open()
    screen.panel()
    expect(page.locator(".jp-edt-machine svg")).to_be_visible()
    page.get_by_role("tab", name="File Browser").click()
    expect(page.locator(".jp-edt-panel")).to_be_hidden()
    # Without the timer that draws it now and then.
    page.evaluate("() => { window.kept = window.setInterval; window.setInterval = () => 0; }")
    with page.expect_request(lambda request: "/pictures/timeline" in request.url, timeout=20_000):
        screen.panel()
    page.evaluate("() => { window.setInterval = window.kept; }")


def test_it_shows_who_waits_and_why_and_what_is_chosen(screen, submit):
    jobs = [submit(name, max_workers=most) for name, most in (("digits", 4), ("text", 4), ("mnist", 2), ("speech", 2))]
    waiting = submit("waits", max_workers=1)
    page = screen.open()
    screen.panel()
    rows = page.locator(".jp-edt-row")
    expect(rows).to_have_count(5)
    row = page.locator(f"[data-edt-job={waiting.id}]")
    expect(row).to_contain_text("next in line")
    expect(row).to_contain_text("waiting")
    expect(page.locator(".jp-edt-machine svg")).to_have_attribute("aria-label", re.compile("Slots held"))
    for job in jobs:
        expect(page.locator(f"[data-edt-job={job.id}]")).to_contain_text("running")
    expect(page.locator(".jp-edt-machine")).to_contain_text("1 waiting, 4 want more.")
    screen.run("edt:open-cluster")
    expect(page.locator(".jp-edt-says")).to_contain_text("4 of 4 slots in use, 5 jobs, 1 waiting, 4 want more.")
    groups = page.get_by_label("Shares", exact=True).locator("table")
    expect(groups.locator("thead th").nth(4)).to_have_text("Waiting")
    expect(groups.locator("thead th").nth(5)).to_have_text("Want more")
    expect(groups.locator("tbody th, tbody td").nth(4)).to_have_text("1")
    expect(groups.locator("tbody th, tbody td").nth(5)).to_have_text("4")
    shares = page.locator("[data-picture='pictures/shares'] svg")
    expect(shares).to_have_attribute("aria-label", re.compile("1 waiting, 4 want more"))
    screen.shot("panel")
    page.get_by_role("button", name="Waiting 1").click()
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Waiting 1").click()
    page.get_by_label("Search jobs").fill("MNIST def")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("mnist")
    page.get_by_label("Search jobs").fill("nothing like it")
    expect(page.locator(".jp-edt-panel")).to_contain_text(re.compile(r"None of the \d+ jobs is like that"))
    page.get_by_role("button", name="Show all of them").click()
    expect(rows).to_have_count(5)


def test_the_menu_of_a_row_changes_a_priority_and_downloads(screen, submit):
    job = submit("digits")
    page = screen.open()
    screen.panel()
    row = page.locator(f"[data-edt-job={job.id}]")
    expect(row).to_contain_text(re.compile(r"update \d+ of 200"))
    screen.context_menu(row, "Change …")
    page.get_by_label("Priority").fill("7000")
    screen.shot("change")
    screen.answer("Change")
    until(page, lambda: job.refresh().view.priority == 7000, "the priority is changed")
    screen.context_menu(row, "Change …")
    page.get_by_label("Priority").fill("2000000000")
    screen.answer("Change")
    expect(page.locator(".Toastify__toast", has_text="priority must lie in 1")).to_be_visible()
    with page.expect_download() as download:
        screen.context_menu(row, "Download")
    assert download.value.suggested_filename.endswith(".zip")
    assert download.value.failure() is None


def test_jobs_that_go_on_stand_above_those_that_have_ended(screen, idle):
    jobs = {name: idle(name) for name in ("goes-on", "goes-on-too", "ends", "ends-too")}
    page = screen.open()
    screen.panel()
    # Below them are the ended jobs of earlier tests.
    names = page.locator(".jp-edt-row .jp-edt-name")
    for place, name in enumerate(reversed(jobs)):
        expect(names.nth(place)).to_have_text(name)
    for name in ("ends-too", "ends"):
        jobs[name].stop()
    for place, name in enumerate(("goes-on-too", "goes-on", "ends-too", "ends")):
        expect(names.nth(place)).to_have_text(name)
    screen.shot("panel-order")


def _tab_to(page, what):
    for _ in range(60):
        if page.evaluate(f"() => {{ const node = document.activeElement; return {what} }}"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not lead to where {what}")


def test_by_keys_alone(screen, submit, idle):
    jobs = {"key-one": idle("key-one"), "key-two": submit("key-two"), "key-three": idle("key-three")}
    page = screen.open()
    screen.command_by_keys("Show Jobs", page.locator(".jp-edt-panel"))
    rows = page.locator(".jp-edt-row")
    expect(rows.first).to_contain_text("key-three")
    focused = page.locator(".jp-edt-row:focus")
    expect(focused).to_contain_text("key-three")
    page.keyboard.press("ArrowDown")
    expect(focused).to_contain_text("key-two")
    page.keyboard.press("Enter")
    expect(page.locator(".jp-edt-job-header")).to_contain_text("key-two")
    screen.command_by_keys("Show Jobs", focused)
    page.keyboard.press("Shift+Tab")
    _tab_to(page, "node.type === 'search'")
    page.keyboard.type("key-")
    expect(rows).to_have_count(3)
    _tab_to(page, "node.classList.contains('jp-edt-row')")
    expect(focused).to_contain_text("key-two")
    page.keyboard.press("Shift+F10")
    expect(page.locator(".lm-Menu")).to_be_visible()
    page.keyboard.press("Escape")
    expect(focused).to_contain_text("key-two")
    page.keyboard.press("End")
    expect(focused).to_contain_text("key-one")
    page.keyboard.press("ArrowUp")
    expect(focused).to_contain_text("key-two")
    page.keyboard.press("Shift+F10")
    expect(page.locator(".lm-Menu")).to_be_visible()
    chosen = page.locator(".lm-Menu-item.lm-mod-active")
    while chosen.count() == 0 or "Suspend" not in chosen.inner_text():
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Suspend “key-two”?")
    page.keyboard.press("Enter")
    row = page.locator(f"[data-edt-job={jobs['key-two'].id}]")
    expect(row).to_contain_text("suspended")
    # What is read aloud is short, whatever the reason.
    assert len(row.get_attribute("aria-label")) < 160


def test_what_is_chosen_in_a_palette_that_closes_under_the_hand_is_done_once(screen):
    """JupyterLab closes its palette when any command runs, also one that nobody here asked for."""
    page = screen.open()
    page.evaluate(
        """() => {
            let left = 6;
            const timer = setInterval(() => {
                void window.jupyterapp.commands.execute('filebrowser:refresh');
                if (!--left) { clearInterval(timer); }
            }, 500);
        }"""
    )
    screen.command("Train …")
    expect(page.locator("form[aria-label=Train]")).to_have_count(1)
    page.wait_for_function("() => !document.querySelector('.lm-CommandPalette-input')?.checkVisibility()")


def test_every_command_is_in_the_palette(screen):
    page = screen.open()
    screen.palette("Elastic training")
    items = page.locator(".lm-CommandPalette-item[data-command^='edt:']")
    expect(items.first).to_be_visible()
    commands = set(items.evaluate_all("items => items.map(item => item.dataset.command)"))
    here = {"open-panel", "stop", "suspend", "resume", "update", "download", "delete", "copy-python"}
    assert {f"edt:{name}" for name in here} <= commands


def test_the_dark_theme_has_colours_of_its_own(screen, submit, write_notebook, server):
    job = submit("digits")
    write_notebook(server, "dark.ipynb", "job", bundles=[job._repr_mimebundle_()])
    page = screen.open("lab/tree/dark.ipynb")
    screen.panel()
    expect(page.locator(".jp-edt-card-live")).to_contain_text(re.compile(r"update \d+"))
    screen.dark()
    for surface in (".jp-edt-card", ".jp-edt-panel-widget", ".jp-edt-button"):
        colours = page.locator(surface).first.evaluate(
            "node => { const s = getComputedStyle(node); return [s.color, s.backgroundColor] }"
        )
        ink, ground = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
        assert ink - ground > 300, (surface, colours)
    expect(page.locator(".jp-edt-machine svg")).to_be_visible()
    screen.shot("dark")


@pytest.fixture(scope="module")
def crowded(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("crowded")
    names = add_crowd(root / "edt", 1000)
    return start_server(root), names


def test_a_thousand_jobs_scroll(page, crowded):
    server, names = crowded
    screen = Screen(page, server)
    screen.open()
    screen.panel()
    rows = page.locator(".jp-edt-row")
    expect(rows.first).to_contain_text(names[-1])
    assert rows.count() < 60
    expect(page.get_by_role("button", name="Finished 900")).to_be_visible()
    screen.shot("panel-thousand")
    rows.first.focus()
    page.keyboard.press("End")
    expect(page.locator(".jp-edt-row:focus")).to_contain_text(names[0])
    assert rows.count() < 60
    page.locator(".jp-edt-list").evaluate("list => { list.scrollTop = list.scrollHeight / 2 }")
    expect(page.locator(".jp-edt-row", has_text=names[500])).to_be_visible()
    page.get_by_role("button", name="Failed 100").click()
    page.get_by_label("Search jobs").fill("past-0009")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("The main script ended with code 1.")


def test_notebook_7_has_the_panel_too(screen, server, idle, write_notebook):
    idle("digits")
    write_notebook(server, "seven.ipynb", "1 + 1")
    page = screen.open("notebooks/seven.ipynb")
    screen.command("Show Jobs")
    row = page.locator(".jp-edt-row").first
    expect(row).to_contain_text("digits")
    screen.shot("panel-notebook-7")
    screen.run("edt:open-panel")  # Notebook's own command would fold it away
    expect(row).to_be_visible()
