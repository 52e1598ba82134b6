"""The card of a job in the output of a cell: current without a kernel, in whatever program, trusted or not."""

import re

import pytest
import requests
from playwright.sync_api import expect

from edt_sdk.schemas.errors import JobFailed
from tests.browser.patience import until
from tests.browser.screen import Screen

MIME = "application/vnd.edt.job+json"


# Ends when the browser has told whoever wants to know that no card is in sight, the cards themselves before us.
OUT_OF_SIGHT = """() => Promise.all([...document.querySelectorAll('.jp-edt-rendered-card')].map(card =>
    new Promise(told => {
        const observer = new IntersectionObserver(seen => {
            if (!seen.at(-1).isIntersecting) { observer.disconnect(); told(); }
        });
        observer.observe(card);
    }))).then(() => null)"""


def bundle_of(job, **changes):
    """What `repr(job)` leaves in a notebook, its own part changed."""
    told = job._repr_mimebundle_()
    return told | {MIME: told[MIME] | changes}


def shut_down_kernels(server):
    headers = {"Authorization": f"token {server.token}"}
    kernels = requests.get(f"{server.url}api/kernels", headers=headers, timeout=120).json()
    for kernel in kernels:
        requests.delete(f"{server.url}api/kernels/{kernel['id']}", headers=headers, timeout=120).raise_for_status()
    return len(kernels)


def test_a_card_made_by_a_kernel_is_current_after_the_kernel_is_gone(screen, server, submit, write_notebook):
    job = submit("digits")
    cell = f"from edt_sdk import Client\njob = Client().job({job.id!r})\njob"
    write_notebook(server, "first.ipynb", cell)
    page = screen.open("lab/tree/first.ipynb")
    screen.run_cell()
    card = page.locator(".jp-edt-card")
    expect(card).to_contain_text("digits")
    expect(card).to_contain_text("running")
    expect(card).to_contain_text("live, ")
    screen.save()
    assert shut_down_kernels(server) == 1
    submit.finish()
    job.wait(300)
    page.reload()
    expect(card).to_contain_text("finished")
    expect(card).to_contain_text("update 200 of 200")
    expect(card).to_contain_text(re.compile(r"ended \d\d:\d\d:\d\d"))
    expect(card).not_to_contain_text("live")
    expect(page.locator("body")).not_to_contain_text("model not found")
    expect(card.get_by_role("button", name="Download")).to_be_visible()
    screen.shot("card-finished")


@pytest.mark.long  # the next card is looked at while its job stops, the first says update 200
def test_it_follows_the_job_while_one_looks(screen, server, submit, write_notebook):
    job = submit("digits")
    write_notebook(server, "live.ipynb", "job", bundles=[bundle_of(job)])
    page = screen.open("lab/tree/live.ipynb")
    card = page.locator(".jp-edt-card-live")
    expect(card).to_contain_text(re.compile(r"update [1-9]\d+ of 200"))
    expect(card.locator("img")).to_have_attribute("alt", re.compile("loss"))
    screen.shot("card-running")
    submit.finish()
    expect(card).to_contain_text("finished")
    expect(card).to_contain_text(re.compile(r"took \d+ s"))


def test_an_untrusted_notebook_shows_it_too_and_a_click_acts(screen, server, submit, write_notebook):
    job = submit("digits")
    write_notebook(server, "untrusted.ipynb", "job", bundles=[bundle_of(job)])
    page = screen.open("lab/tree/untrusted.ipynb")
    card = page.locator(".jp-edt-card-live")
    expect(card).to_contain_text("running")
    assert not page.evaluate(
        "() => [...document.querySelectorAll('.jp-OutputArea-output')].some(o => o.dataset.trusted)"
    )
    card.get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"\d slots? becomes? free\."))
    expect(dialog).to_contain_text(re.compile(r"checkpoint|nothing is lost"))
    screen.shot("stop-says-what-it-costs")
    screen.answer("Leave it")
    assert not job.refresh().state.final
    card.get_by_role("button", name="Stop").click()
    screen.answer("Stop")
    expect(card).to_contain_text("stopped")


@pytest.mark.long  # the panel and the monitor are opened in Notebook 7 always
def test_notebook_7_shows_it_and_acts(screen, server, submit, write_notebook):
    job = submit("digits")
    write_notebook(server, "seven.ipynb", "job", bundles=[bundle_of(job)])
    page = screen.open("notebooks/seven.ipynb")
    card = page.locator(".jp-edt-card-live")
    expect(card).to_contain_text("running")
    screen.shot("card-notebook-7")
    card.get_by_role("button", name="Suspend").click()
    screen.answer("Suspend")
    expect(card).to_contain_text("suspended")
    card.get_by_role("button", name="Resume").click()
    expect(card).to_contain_text("running")


def test_of_what_it_cannot_have_it_shows_what_the_notebook_stored(screen, server, idle, write_notebook):
    """A job that was deleted, one of another server, and bundles that it cannot read."""
    gone, job = idle("short-lived"), idle("strange")
    deleted = bundle_of(gone)
    elsewhere = bundle_of(job, id="elsewhere-000000", origin="http://gpu-box:8888/", view=None)
    strange = [bundle_of(job) | {MIME: each} for each in ({"version": 2}, {"version": 1}, "<b>no</b>", None)]
    bundles = [deleted, elsewhere, *strange]
    write_notebook(server, "stored.ipynb", *["job"] * len(bundles), bundles=bundles)
    gone.stop()
    with pytest.raises(JobFailed):
        gone.wait(300)
    gone.delete()
    page = screen.open("lab/tree/stored.ipynb")
    card = page.locator(".jp-edt-card-deleted")
    expect(card).to_contain_text("This job was deleted from the server. It was like this at")
    expect(card).to_contain_text("short-lived")
    expect(card.get_by_role("button")).to_have_count(0)
    outputs = [page.locator(".jp-Cell").nth(cell).locator(".jp-OutputArea-output") for cell in range(len(bundles))]
    expect(outputs[1]).to_contain_text("This job is on another server, http://gpu-box:8888/: open it there.")
    expect(outputs[1].locator(".jp-RenderedHTML")).to_contain_text(job.id)
    screen.shot("card-stored")
    for output in outputs[2:]:
        output.scroll_into_view_if_needed()
        expect(output).to_contain_text("strange")
        expect(output).to_contain_text("Snapshot")


def test_many_cards_ask_once_and_hidden_ones_not_at_all(screen, server, submit, write_notebook):
    job = submit("digits")
    write_notebook(server, "many.ipynb", *["job"] * 3, bundles=[bundle_of(job)] * 3)
    # A job of mine that begins or ends is asked for once, whoever looks: this one has begun, and does not end.
    until(screen.page, lambda: job.refresh().view.progress is not None, "the job trains")
    asked = []

    def note(request):
        path = request.url.split("?")[0]
        asked.append("job" if path.endswith(f"/jobs/{job.id}") else "cluster" if path.endswith("/cluster") else "")

    page = screen.open("lab/tree/many.ipynb")
    expect(page.locator(".jp-edt-card-live")).to_have_count(3)
    page.on("request", note)

    def looks(more):
        """Wait for so many looks of the status bar, which asks for the machine once a look."""
        before = asked.count("cluster")
        while asked.count("cluster") < before + more:
            page.wait_for_timeout(100)

    looks(3)
    assert 1 <= asked.count("job") <= asked.count("cluster") + 1
    screen.menu("File", "New Launcher")
    page.evaluate(OUT_OF_SIGHT)
    looks(2)  # the one that may be under way, and the first that asks for none
    hidden = asked.count("job")
    looks(3)
    assert asked.count("job") == hidden


@pytest.mark.long
def test_without_the_server_it_is_grey_and_says_since_when(
    page, start_server, write_notebook, tmp_path, lasting_trainer
):
    server = start_server()
    (tmp_path / "train.py").write_text(lasting_trainer)
    job = server.client().submit(
        tmp_path, main="train.py", name="digits", max_workers=1, args=[str(tmp_path / "enough")]
    )
    write_notebook(server, "grey.ipynb", "job", bundles=[bundle_of(job)])
    screen = Screen(page, server)
    screen.open("lab/tree/grey.ipynb")
    screen.panel()
    expect(page.locator(".jp-edt-card-live")).to_contain_text("running")
    server.kill()
    card = page.locator(".jp-edt-card-old")
    expect(card).to_contain_text(re.compile(r"last seen \d\d:\d\d:\d\d\. The Jupyter server does not answer\."))
    expect(card).to_contain_text("running")
    expect(page.locator(".jp-edt-status")).to_contain_text("no answer")
    trouble = page.locator(".jp-edt-panel [role=alert]")
    expect(trouble).to_contain_text(re.compile(r"Last seen \d\d:\d\d:\d\d"))
    expect(page.locator(".jp-edt-row")).to_have_count(1)
    # JupyterLab itself tells it too, after a while.
    screen.answer("Close")
    screen.shot("server-gone")
    (tmp_path / "enough").touch()
    server.start().stop()  # and with it what the killed one had started
