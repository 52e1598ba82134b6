"""The monitor as a person uses it in JupyterLab: every tab, controls that act, and nothing dead left behind."""

import re
from contextlib import suppress

import pytest
import requests
from playwright.sync_api import expect

from edt_sdk.schemas.errors import Conflict
from tests.browser.screen import Screen

TABS = ("Overview", "Metrics", "Allocation", "Logs", "Checkpoints")


@pytest.fixture(scope="module")
def lasting(server, lasting_trainer, tmp_path_factory):
    """A training that outlasts all tests which are content to look at it: it is as much work as they are."""
    folder = tmp_path_factory.mktemp("lasting")
    slower = lasting_trainer.replace("else 40", "else 200")
    assert slower != lasting_trainer
    (folder / "train.py").write_text(slower)
    enough = folder / "enough"
    job = server.client().submit(folder, main="train.py", name="digits", max_workers=4, args=[str(enough)])
    yield job
    enough.touch()
    with suppress(Conflict):  # just ended
        job.stop()


@pytest.fixture
def monitored(screen, server, write_notebook, lasting):
    """A running job, and a notebook whose first cell monitors it and has been run."""
    watch(screen, server, write_notebook, lasting)
    return lasting


@pytest.fixture
def ending(screen, server, write_notebook, submit):
    """The same with a job of its own, which ends with the test, or before."""
    job = submit("digits", max_workers=4)
    watch(screen, server, write_notebook, job)


def watch(screen, server, write_notebook, job) -> None:
    code = f"from edt_sdk import Client\njob = Client().job({job.id!r})\njob.monitor()"
    write_notebook(server, "watch.ipynb", code, "'free'")
    screen.open("lab/tree/watch.ipynb")
    screen.run_cell()
    expect(output(screen)).to_contain_text("running", ignore_case=True)


def output(screen: Screen):
    """What the first cell shows."""
    return screen.page.locator(".jp-Cell").first.locator(".jp-OutputArea")


def tab(screen: Screen, name: str) -> None:
    output(screen).get_by_role("tab", name=name).click()


def test_every_tab_shows_something(screen, monitored):
    shown = output(screen)
    expect(shown).to_contain_text(re.compile(r"Update\s*\d+ of 200"))
    expect(shown).to_contain_text("as of 20")
    screen.shot("monitor-overview")
    tab(screen, "Metrics")
    expect(shown.locator("img[alt*='training loss']:visible")).to_be_visible()
    screen.shot("monitor-metrics")
    tab(screen, "Allocation")
    expect(shown.locator("img[alt*='slots']:visible").first).to_be_visible()
    expect(shown).to_contain_text("Generation")
    screen.shot("monitor-allocation")
    tab(screen, "Logs")
    expect(shown.locator("pre")).to_contain_text("worker 0")
    shown.get_by_placeholder("Search these lines").fill("Iteration")
    expect(shown.locator("mark").first).to_have_text("Iteration")
    screen.shot("monitor-logs")
    tab(screen, "Checkpoints")
    expect(shown).to_contain_text(re.compile("No checkpoint yet|exact, to resume from"))
    screen.shot("monitor-checkpoints")


def test_a_changed_maximum_acts_at_once_and_says_what_it_comes_to(screen, monitored):
    field = output(screen).get_by_label("Maximum workers")
    field.fill("1")
    field.press("Enter")
    expect(output(screen)).to_contain_text("✔ Maximum workers is 1 now.")
    assert monitored.refresh().view.max_workers == 1
    field.fill("0")
    field.press("Enter")
    expect(field).to_have_value("1")


def test_when_the_job_ends_a_picture_stays_that_needs_no_kernel(screen, server, submit, ending):
    submit.finish()
    shown = output(screen)
    expect(shown).to_contain_text("FINISHED")
    expect(shown.locator("summary")).to_have_text(["Metrics", "Allocation", "Logs", "Checkpoints"])
    screen.shot("monitor-left")
    screen.save()
    shut_down_kernels(server)
    screen.page.reload()
    expect(shown).to_contain_text("FINISHED")
    expect(shown.locator("img[alt*='training loss']")).to_be_visible()
    expect(shown.locator(".jupyter-widgets")).to_have_count(0)


def test_in_an_untrusted_notebook_the_picture_is_still_one(screen, server, submit, ending, write_notebook):
    submit.finish()
    expect(output(screen).locator("summary")).to_have_count(4)
    screen.save()
    # Another one's notebook: nothing here has signed it.
    text = (server.root / "watch.ipynb").read_text().replace("'free'", "'somebody else'")
    (server.root / "theirs.ipynb").write_text(text)
    screen.open("lab/tree/theirs.ipynb")
    shown = screen.page.locator(".jp-NotebookPanel:visible .jp-Cell").first.locator(".jp-OutputArea")
    expect(shown.locator("img[alt*='training loss']")).to_be_visible()
    expect(shown.locator("summary").first).to_have_text("Metrics")


@pytest.mark.parametrize("how", ["restarted", "gone"])
def test_without_its_kernel_the_card_is_there_instead_of_dead_widgets(screen, server, monitored, how):
    page = screen.page
    screen.save()
    if how == "restarted":
        screen.menu("Kernel", "Restart Kernel…")
        screen.answer("Restart")
    else:
        shut_down_kernels(server)
        page.reload()
    card = output(screen).locator(".jp-edt-card")
    expect(card).to_contain_text("digits")
    expect(card).to_contain_text("running")
    expect(page.locator("body")).not_to_contain_text("model not found")
    expect(output(screen).locator(".jupyter-widgets")).to_have_count(0)
    screen.shot(f"monitor-kernel-{how}")


def test_a_cleared_cell_asks_for_nothing_any_more(screen, ending):
    page = screen.page
    screen.context_menu(page.locator(".jp-Cell").first.locator(".jp-InputPrompt"), "Clear Cell Output")
    expect(output(screen).locator(".widget-tab")).to_have_count(0)
    page.locator(".jp-Cell .cm-content").nth(1).click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(
        "import time\nfrom edt_sdk.monitor.rounds import ROUNDS\n"
        "while any(each.due < float('inf') for each in ROUNDS.watchers()): time.sleep(0.05)\n'asks for nothing'"
    )
    page.keyboard.press("Control+Enter")
    expect(page.locator(".jp-Cell").nth(1).locator(".jp-OutputArea")).to_contain_text("asks for nothing")


def test_while_a_cell_runs_every_tab_is_kept_up_and_clicks_count_afterwards(screen, server, monitored):
    page = screen.page
    page.locator(".jp-Cell .cm-content").nth(1).click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)")
    page.keyboard.press("Control+Enter")
    prompt = page.locator(".jp-Cell").nth(1).locator(".jp-InputPrompt")
    expect(prompt).to_have_text("[*]:")
    field = output(screen).get_by_label("Maximum workers")
    field.fill("3")
    field.press("Enter")
    tab(screen, "Metrics")
    expect(output(screen).locator("img[alt*='training loss']:visible")).to_be_visible()
    tab(screen, "Logs")
    expect(output(screen).locator("pre")).to_contain_text("worker 0")
    expect(prompt).to_have_text("[*]:")
    (server.root / "go").touch()
    tab(screen, "Overview")
    expect(output(screen)).to_contain_text("✔ Maximum workers is 3 now.")


def test_in_the_dark_and_by_keyboard(screen, monitored):
    screen.dark()
    shown = output(screen)
    shown.get_by_role("tab", name="Overview").focus()
    for name in TABS[1:]:
        screen.page.keyboard.press("ArrowRight")
        screen.page.keyboard.press("Enter")
        expect(shown.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
    screen.shot("monitor-dark")


def shut_down_kernels(server) -> None:
    headers = {"Authorization": f"token {server.token}"}
    for kernel in requests.get(f"{server.url}api/kernels", headers=headers, timeout=10).json():
        requests.delete(f"{server.url}api/kernels/{kernel['id']}", headers=headers, timeout=10).raise_for_status()
