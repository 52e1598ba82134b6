"""The monitor in JupyterLab: every view, controls that act, and nothing dead left behind."""

import re

import pytest
import requests
from playwright.sync_api import expect

from tests.browser.screen import Screen

TABS = ("Metrics", "Allocation", "Logs", "Checkpoints", "Story", "Workers")
ASKS_FOR_NOTHING = "import time\nwhile monitor.watched: time.sleep(0.05)\n'asks for nothing'"

# What a page does that is busy while the models come: it asks for one that is not there yet, and gives up.
GIVE_UP = """known => {
    const { outputArea } = window.jupyterapp.shell.currentWidget.content.widgets[0];
    const output = outputArea.widgets[0].widgets.find(each => 'renderModel' in each);
    const unknown = { 'application/vnd.jupyter.widget-view+json': { model_id: 'came too late' } };
    if (!known) { output.renderModel = Object.getPrototypeOf(output).renderModel.bind(output, { data: unknown }); }
    output.widgets[0]._view.remove();
    return Object.getPrototypeOf(output).renderModel.call(output, { data: unknown });
}"""


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
    code = f"from edt_sdk import Client\njob = Client().job({job.id!r})\nmonitor = job.monitor()"
    write_notebook(server, "watch.ipynb", code, ASKS_FOR_NOTHING)
    screen.open("lab/tree/watch.ipynb")
    screen.run_cell()
    expect(monitor(screen)).to_contain_text("running")


def output(screen: Screen):
    """What the first cell shows."""
    return screen.page.locator(".jp-Cell").first.locator(".jp-OutputArea")


def monitor(screen: Screen):
    """The widget in it."""
    return output(screen).locator(".jp-edt-monitor")


def tab(screen: Screen, name: str) -> None:
    monitor(screen).get_by_role("tab", name=name, exact=True).click()


def test_every_tab_shows_something_and_controls_act_also_while_a_cell_runs(screen, server, monitored):
    shown = monitor(screen)
    expect(shown).to_contain_text(re.compile(r"update \d+ of 200"))
    expect(shown).to_contain_text("as of ")
    screen.shot("monitor-overview")
    tab(screen, "Metrics")
    expect(shown.locator("[data-curve] [role=img]")).to_be_visible()
    screen.shot("monitor-metrics")
    tab(screen, "Allocation")
    expect(shown.locator("[data-picture$='/pictures/allocation'] svg")).to_be_visible()
    screen.shot("monitor-allocation")
    tab(screen, "Logs")
    expect(shown.get_by_role("list", name="Log")).to_contain_text("worker 0")
    shown.get_by_placeholder("Search the log").fill("Iteration")
    expect(shown.get_by_role("list", name="Log")).to_contain_text("Iteration")
    screen.shot("monitor-logs")
    tab(screen, "Checkpoints")
    expect(shown).to_contain_text(re.compile("No checkpoint yet|Resume from here"))
    screen.shot("monitor-checkpoints")
    tab(screen, "Workers")
    expect(shown).to_contain_text("Generation")

    field = monitor(screen).get_by_label("Maximum workers")
    field.fill("1")
    expect(monitor(screen).locator(".jp-edt-what-if")).to_contain_text("This job")
    monitor(screen).get_by_role("button", name="Apply").click()
    expect(monitor(screen)).to_contain_text("of at most 1")
    assert monitored.refresh().view.max_workers == 1

    # While a cell runs the monitor is live and acts.
    screen.type_cell(1, "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)")
    screen.run_cell(1)
    prompt = screen.page.locator(".jp-Cell").nth(1).locator(".jp-InputPrompt")
    expect(prompt).to_have_text("[*]:")
    monitor(screen).get_by_label("Maximum workers").fill("2")
    monitor(screen).get_by_role("button", name="Apply").click()
    expect(monitor(screen)).to_contain_text("of at most 2")
    assert monitored.refresh().view.max_workers == 2
    tab(screen, "Logs")
    expect(monitor(screen).get_by_role("list", name="Log")).to_contain_text("worker 0")
    expect(prompt).to_have_text("[*]:")
    (server.root / "go").touch()

    # In the dark, and by keys alone.
    screen.dark()
    tab(screen, "Metrics")
    monitor(screen).get_by_role("tab", name="Metrics").focus()
    for name in TABS[1:4]:
        screen.page.keyboard.press("ArrowRight")
        expect(monitor(screen).get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
    screen.shot("monitor-dark")


def test_when_the_job_ends_a_picture_stays_that_needs_neither_kernel_nor_trust(screen, server, submit, ending):
    submit.finish()
    shown = output(screen)
    expect(shown.locator("summary")).to_have_text(["Metrics", "Allocation", "Logs", "Checkpoints"])
    expect(shown).to_contain_text("FINISHED")
    screen.shot("monitor-left")
    screen.save()
    shut_down_kernels(server)
    screen.page.reload()
    expect(shown).to_contain_text("FINISHED")
    expect(shown.locator("img[alt*='training loss']")).to_be_visible()
    expect(shown.locator(".jupyter-widgets")).to_have_count(0)

    # A notebook of another person: nothing here has signed it.
    text = (server.root / "watch.ipynb").read_text().replace("asks for nothing", "another notebook")
    (server.root / "theirs.ipynb").write_text(text)
    screen.open("lab/tree/theirs.ipynb")
    shown = screen.page.locator(".jp-NotebookPanel:visible .jp-Cell").first.locator(".jp-OutputArea")
    expect(shown.locator("img[alt*='training loss']")).to_be_visible()
    expect(shown.locator("summary").first).to_have_text("Metrics")


@pytest.mark.parametrize("how", [pytest.param("restarted", marks=pytest.mark.long), "gone"])
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
    expect(card).to_contain_text("lasting")
    expect(card).to_contain_text("running")
    expect(page.locator("body")).not_to_contain_text("model not found")
    expect(output(screen).locator(".jupyter-widgets")).to_have_count(0)
    screen.shot(f"monitor-kernel-{how}")


def test_a_monitor_that_a_slow_page_gave_up_is_drawn_again(screen, monitored):
    screen.save()
    screen.page.reload()
    expect(monitor(screen)).to_contain_text("as of ")
    screen.page.evaluate(GIVE_UP, True)
    expect(monitor(screen)).to_contain_text("as of ")
    screen.page.evaluate(GIVE_UP, False)
    expect(output(screen).locator(".jp-edt-card")).to_contain_text("lasting")
    expect(screen.page.locator("body")).not_to_contain_text("model not found")


# Without the reload the same is cleared, and the page knows the widget from the start.
@pytest.mark.parametrize("reloaded", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_cleared_cell_asks_for_nothing_any_more(screen, monitored, reloaded):
    if reloaded:
        screen.save()
        screen.page.reload()
        expect(monitor(screen)).to_contain_text("as of ")
    screen.clear_output()
    expect(output(screen).locator(".jupyter-widgets")).to_have_count(0)
    screen.run_cell(1)
    expect(screen.page.locator(".jp-Cell").nth(1).locator(".jp-OutputArea")).to_contain_text("asks for nothing")


def test_all_jobs_in_notebook_7(screen, server, write_notebook, lasting):
    write_notebook(server, "all.ipynb", "from edt_sdk import Client\nClient().monitor()")
    screen.open("notebooks/all.ipynb")
    screen.run_cell()
    shown = monitor(screen)
    # Only the rows in view are in the document, and the jobs of the other tests are newer.
    shown.get_by_label("Search jobs").fill("lasting")
    expect(shown.get_by_role("option", name=re.compile("lasting"))).to_have_count(1)
    expect(shown.get_by_role("option")).to_have_count(1)
    screen.shot("monitor-all")
    tab(screen, "Slots")
    expect(shown.locator("[data-picture='pictures/slots'] svg")).to_be_visible()
    tab(screen, "Compare")
    shown.get_by_role("checkbox", name=re.compile("lasting")).check()
    expect(shown.locator(".jp-edt-compare-result [role=img]")).to_be_visible()


def shut_down_kernels(server) -> None:
    headers = {"Authorization": f"token {server.token}"}
    for kernel in requests.get(f"{server.url}api/kernels", headers=headers, timeout=120).json():
        requests.delete(f"{server.url}api/kernels/{kernel['id']}", headers=headers, timeout=120).raise_for_status()


def test_a_page_that_cannot_reach_the_server_talks_through_the_kernel(screen, server, write_notebook, submit):
    """Not the extension draws it but the widget's own module, as in VS Code and Colab."""
    job = submit("digits", max_workers=4)
    code = f"from edt_sdk import Client\njob = Client().job({job.id!r})\njob.monitor()"
    write_notebook(server, "through.ipynb", code)
    page = screen.open("lab/tree/through.ipynb")
    page.evaluate("() => { delete window.jupyterEdt; }")
    screen.run_cell()
    shown = monitor(screen)
    expect(shown).to_contain_text(re.compile(r"update \d+ of 200"))
    expect(shown).to_contain_text(re.compile("[2-4] of at most"))  # it starts with one slot, and a stop frees several
    tab(screen, "Logs")
    expect(shown.get_by_role("list", name="Log")).to_contain_text("Epoch ")
    screen.shot("monitor-through-kernel")
    shown.get_by_label("Download").select_option("Log")
    expect(shown).to_contain_text("Saved ")
    assert (server.root / f"{job.id}-log.zip").stat().st_size > 100
    shown.get_by_role("button", name="Compare …").click()
    expect(shown).to_contain_text("Compare jobs")
    output(screen).get_by_role("button", name="Back").click()
    monitor(screen).get_by_role("button", name="Stop").click()
    dialog = output(screen).get_by_role("dialog", name="Stop “digits”?")
    expect(dialog).to_contain_text("slots become free")
    screen.shot("monitor-through-kernel-dialog")
    dialog.get_by_role("button", name="Stop").click()
    expect(output(screen)).to_contain_text("STOPPED")
    assert job.refresh().view.state == "KILLED"
