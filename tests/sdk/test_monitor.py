"""The monitor in a real kernel and in a plain process, and what one of its turns asks for and shows."""

import subprocess
import sys
import threading
import time
import zipfile
from datetime import datetime
from html import unescape
from io import BytesIO
from types import SimpleNamespace

import msgspec
import nbformat
import pytest
from nbclient import NotebookClient

from edt_sdk.monitor import ClientMonitor, JobMonitor
from edt_sdk.monitor.base import SIGNS
from edt_sdk.monitor.rounds import ROUNDS
from edt_sdk.schemas.job import JobProgress, JobState, Reason
from tests.kernels import on_unix_sockets

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" aria-label="It goes down &amp; down."></svg>'
PICTURES = ("loss", "allocation", "efficiency", "spark")
ANSWER = {
    "job": "edt-1",
    "priority": 8000,
    "max_workers": 4,
    "instance_group": "default",
    "shares": [
        {"job": "edt-1", "name": "digits", "now": 2, "then": 3},
        {"job": "edt-2", "name": "other", "now": 2, "then": 1},
    ],
    "ends_now": 50900.0,
    "ends_then": 50551.0,
    "reason": None,
}


@pytest.fixture
def training(peer, make_view):
    """A job that makes progress, and ends when `training.end()` is called."""
    peer.view = make_view(progress=JobProgress(update=3, total_updates=9, loss=1 / 3))

    def end(state=JobState.FINISHED):
        peer.view = make_view(
            state=state, slots=0, progress=JobProgress(update=9, total_updates=9, loss=0.1, test_accuracy=0.97)
        )

    peer.end = end
    peer.on("GET", "jobs/edt-1", lambda _: (200, msgspec.to_builtins(peer.view)))
    peer.on("GET", "jobs", lambda _: (200, {"jobs": [msgspec.to_builtins(peer.view)]}))
    points = [{"update": n, "loss": 1.0 / (n + 1)} for n in range(9)]
    peer.on("GET", "jobs/edt-1/metrics", {"train": points, "test": [], "next": 9, "done": True})
    for name in PICTURES:
        peer.on("GET", f"jobs/edt-1/pictures/{name}", lambda _: (200, SVG))
    for name in ("timeline", "slots", "shares", "compare"):
        peer.on("GET", f"pictures/{name}", lambda _: (200, SVG))
    peer.on("GET", "jobs/edt-1/what-if", ANSWER)
    peer.on("GET", "jobs/edt-1/workers", {"workers": []})
    peer.on("GET", "jobs/edt-1/checkpoints", {"checkpoints": []})
    peer.on("GET", "jobs/edt-1/logs", {"lines": [line("one"), line("two", worker=1, err=True)], "next": "a"})
    return peer


def line(text, worker=None, err=False):
    return {"time": 50551.0, "stream": "stdout", "worker": worker, "err": err, "text": text}


def execute(*cells, each=lambda index: None, errors=False):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(
        notebook,
        timeout=60,
        kernel_name="python3",
        allow_errors=errors,
        config=on_unix_sockets(),
        on_cell_start=lambda cell, cell_index: each(cell_index),
    )
    return client.execute().cells


@pytest.mark.filterwarnings("ignore::DeprecationWarning:zmq.*")
def test_a_notebook_is_left_with_a_picture_that_lasts_and_no_widget(training, monkeypatch):
    monkeypatch.setenv("EDT_URL", training.url)
    monkeypatch.setenv("EDT_TOKEN", training.token)
    cells = execute(
        "from edt_sdk import Client\njob = Client().job('edt-1')\nmonitor = job.monitor()\nmonitor",
        "everything = Client().monitor()",
        "assert monitor.join(30) and everything.join(30)",
        "monitor",
        "import sys\nprint('torch' in sys.modules, 'ipywidgets' in sys.modules)",
        each=lambda index: training.end() if index == 2 else None,
    )
    first, everything, again = cells[0].outputs, cells[1].outputs, cells[3].outputs
    assert len(first) == len(again) == len(everything) == 1
    for output in (*first, *again):
        html = output.data["text/html"]
        assert "FINISHED" in html
        assert "test accuracy 97.0 %" in html
        assert html.count('alt="It goes down &amp; down."') == 3
        assert "two" in html
        assert sorted(output.data) == ["text/html", "text/plain"]
    assert "<table>" in everything[0].data["text/html"]
    assert cells[4].outputs[0].text == "False True\n"


PRESS = """
import os, pathlib, signal, threading, time
from edt_sdk.monitor import kernel

def press():
    while getattr(signal.getsignal(signal.SIGINT), "__module__", "") != kernel.__name__:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    pathlib.Path({pressed!r}).touch()

threading.Thread(target=press).start()
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning:zmq.*")
def test_of_a_job_that_is_over_the_picture_is_all_there_is(training, monkeypatch):
    monkeypatch.setenv("EDT_URL", training.url)
    monkeypatch.setenv("EDT_TOKEN", training.token)
    training.end()
    cells = execute(
        "from edt_sdk import Client\nmonitor = Client().job('edt-1').monitor()\nassert monitor.over\nmonitor",
        "import threading\nassert 'edt-monitor' not in [thread.name for thread in threading.enumerate()]",
    )
    assert [sorted(output.data) for output in cells[0].outputs] == [["text/html", "text/plain"]]
    assert "FINISHED" in cells[0].outputs[0].data["text/html"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:zmq.*")
def test_beside_the_widgets_of_a_live_monitor_lies_what_needs_none(training, monkeypatch):
    monkeypatch.setenv("EDT_URL", training.url)
    monkeypatch.setenv("EDT_TOKEN", training.token)
    job, jobs = execute(
        "from edt_sdk import Client\nclient = Client()\nclient.job('edt-1').monitor()", "client.monitor()"
    )
    for cell in (job, jobs):
        assert "application/vnd.jupyter.widget-view+json" in cell.outputs[0].data
        assert cell.outputs[0].metadata["edt_kernel"]
    assert job.outputs[0].data["application/vnd.edt.job+json"]["id"] == "edt-1"
    assert "Snapshot of 20" in job.outputs[0].data["text/html"]
    assert "RUNNING" in job.outputs[0].data["text/html"]
    assert "Run its cell again" in jobs.outputs[0].data["text/html"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:zmq.*")
@pytest.mark.parametrize("busy", [True, False])
def test_an_interrupt_ends_it_and_leaves_the_card_of_a_job_that_goes_on(training, monkeypatch, tmp_path, busy):
    monkeypatch.setenv("EDT_URL", training.url)
    monkeypatch.setenv("EDT_TOKEN", training.token)
    pressed = tmp_path / "pressed"

    def each(index):
        """Between two cells, wait until the button has been pressed."""
        while not busy and index == 2 and not pressed.exists():
            time.sleep(0.01)

    interrupted = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)"
    cells = execute(
        "from edt_sdk import Client\nmonitor = Client().job('edt-1').monitor()",
        interrupted if busy else PRESS.format(pressed=str(pressed)),
        "assert monitor.join(30)\nmonitor",
        each=each,
        errors=busy,
    )
    left = cells[2].outputs[0].data
    assert "kernel was interrupted" in left["text/html"]
    assert "application/vnd.edt.job+json" in left
    assert "application/vnd.jupyter.widget-view+json" not in left
    if busy:  # what happens between two cells nbclient does not take
        assert cells[0].outputs[0].data == left


def test_a_terminal_gets_a_line_and_no_widget(training, stream, events, make_view, runtime_dir):
    steps = [make_view(progress=JobProgress(update=n, total_updates=9, loss=1 / n)) for n in (3, 6)]
    done = make_view(state=JobState.FINISHED, progress=JobProgress(update=9, total_updates=9, loss=0.1))
    changes = [(n, "job", view) for n, view in enumerate([*steps, done])]

    def follow(_):
        training.end()
        return stream(events(*changes, (3, "end", {})))

    training.on("GET", "jobs/edt-1/events", follow)
    code = (
        "import sys; from edt_sdk import Client; c = Client(); m = c.job('edt-1').monitor(); print(m);"
        "c.monitor(); print('ipywidgets' in sys.modules)"
    )
    env = {"EDT_URL": training.url, "EDT_TOKEN": training.token, "JUPYTER_RUNTIME_DIR": str(runtime_dir)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env)
    assert ran.stdout == "Monitor of job edt-1\nFalse\n"
    assert ran.stderr.startswith("digits: running, 2 of 4 slots")
    assert "finished, update 9 of 9" in ran.stderr


class Recorded:
    """A display handle that keeps what it was given."""

    def __init__(self):
        self.left = []

    def replace(self, bundle):
        self.left.append(bundle)


def opened(made):
    """A monitor as `show` leaves it, whose turns this test takes itself."""
    from edt_sdk.monitor.kernel import toolkit

    made._trouble = toolkit().HTML()
    made._box = toolkit().VBox([*made._build(), made._trouble])
    made._output = Recorded()
    return made


@pytest.fixture
def monitor(training, client):
    made = opened(JobMonitor(client.job("edt-1")))
    training.requests.clear()
    yield made
    made._box.close()


def asked(peer):
    found = peer.paths()
    peer.requests.clear()
    return found


def show(monitor, title):
    monitor.tabs.selected_index = monitor.tabs.titles.index(title)


def text(monitor):
    return str([getattr(widget, "value", "") for widget in everything(monitor._box)])


def everything(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from everything(child)


def test_only_what_is_shown_is_fetched(monitor, training):
    view = "GET jobs/edt-1"
    monitor.turn()
    assert asked(training) == [view, f"{view}/pictures/spark"]
    monitor.turn()
    assert asked(training) == [view]
    for title, paths in {
        "Metrics": [view, f"{view}/pictures/loss", "GET jobs"],
        "Allocation": [view, f"{view}/pictures/allocation", f"{view}/pictures/efficiency", f"{view}/workers"],
        "Logs": [view, f"{view}/logs"],
        "Checkpoints": [view, f"{view}/checkpoints"],
    }.items():
        show(monitor, title)
        monitor.turn()
        assert asked(training) == paths
        assert "Fetching" not in text_of(monitor.page)


def test_while_a_cell_runs_the_other_tabs_have_their_turns_too(monitor, training, monkeypatch):
    monitor.turn()
    asked(training)
    monkeypatch.setattr(SIGNS, "_began_at", time.monotonic() - 10)
    found = []
    for _ in range(4):
        monitor.turn()
        found += asked(training)
    for path in ("pictures/loss", "pictures/allocation", "logs", "checkpoints"):
        assert found.count(f"GET jobs/edt-1/{path}") == 1


def text_of(page):
    return str([getattr(widget, "value", "") for widget in everything(page.widget)])


def test_a_picture_is_fetched_again_only_when_there_is_something_new(monitor, training, make_view):
    show(monitor, "Metrics")
    monitor.turn()
    monitor.page._looked_at = float("-inf")
    asked(training)
    monitor.turn()
    assert asked(training) == ["GET jobs/edt-1"]
    training.view = make_view(progress=JobProgress(update=4, total_updates=9, loss=0.3))
    monitor.turn()
    assert asked(training) == ["GET jobs/edt-1", "GET jobs/edt-1/pictures/loss"]


def test_what_is_shown_has_units_and_age(monitor):
    monitor.turn()
    said = text(monitor)
    for words in ("RUNNING", "as of 20", "3 of 9", "loss 0.3333", "2 of at most 4", "Since its start"):
        assert words in said


def test_a_monitor_that_nobody_sees_asks_for_nothing_until_it_is_seen_again(monitor, training):
    monitor._shown({"new": 1})
    monitor.turn()
    asked(training)
    monitor._shown({"new": 0})
    monitor.turn()
    assert (asked(training), monitor.due) == ([], float("inf"))
    training.end()
    monitor._shown({"new": 1})
    monitor.turn()
    assert "FINISHED" in monitor._output.left[-1]["text/html"]


def test_the_end_leaves_a_picture_in_the_output_and_in_the_widget(monitor, training):
    training.end()
    monitor.turn()
    assert monitor.over
    left = monitor._output.left[-1]["text/html"]
    assert [widget.value for widget in monitor._box.children] == [left]
    assert "lines" not in monitor._output.left[-1]


def test_its_cell_run_again_ends_it_and_leaves_nothing(monitor):
    output = monitor._output
    monitor.cell_runs_again()
    monitor.turn()
    assert monitor.over
    assert output.left == []


# --- controls ---------------------------------------------------------------------------------------------------------


def test_a_changed_priority_counts_at_once_and_says_what_it_comes_to(monitor, training, make_view):
    def patch(request):
        training.view = make_view(**msgspec.json.decode(request.body))
        return 200, msgspec.to_builtins(training.view)

    training.on("PATCH", "jobs/edt-1", patch)
    monitor.turn()
    asked(training)
    monitor.pages[0]._settings._fields["priority"].value = 8000
    monitor.turn()
    assert asked(training)[:2] == ["GET jobs/edt-1/what-if", "PATCH jobs/edt-1"]
    said = monitor.pages[0]._settings._said.value
    assert "Priority is 8000 now. It goes from 2 to 3 slots; other from 2 to 1." in said
    assert "about 14:02:31 UTC, 5 min 49 s earlier, if nobody else comes." in said


def test_a_change_does_not_wait_for_a_forecast_that_takes_too_long(monitor, training, make_view):
    training.on("GET", "jobs/edt-1/what-if", lambda _: (503, {"message": "", "reason": None}))
    training.on("PATCH", "jobs/edt-1", msgspec.to_builtins(make_view(priority=8000)))
    monitor.pages[0]._settings._fields["priority"].value = 8000
    monitor.turn()
    assert "PATCH jobs/edt-1" in asked(training)
    assert "Priority is 8000 now. What it comes to takes" in monitor.pages[0]._settings._said.value


def test_of_values_typed_one_after_the_other_the_last_one_is_sent(monitor, training, make_view):
    training.on("PATCH", "jobs/edt-1", msgspec.to_builtins(make_view(max_workers=8)))
    for value in (5, 6, 7, 8):
        monitor.pages[0]._settings._fields["max_workers"].value = value
    monitor.turn()
    assert asked(training).count("PATCH jobs/edt-1") == 1


def test_a_refused_value_is_said_and_taken_back(monitor, training):
    told = {"message": "max_workers is too large.", "code": "unprocessable", "hint": "Say 4.", "field": "max_workers"}
    training.on("GET", "jobs/edt-1/what-if", lambda _: (422, told))
    field = monitor.pages[0]._settings._fields["max_workers"]
    field.value = 64
    monitor.turn()
    assert "max_workers is too large. Say 4." in monitor.pages[0]._settings._said.value
    assert field.value == 4


def test_stopping_asks_first_and_says_what_is_lost(monitor, training, make_view):
    training.on("POST", "jobs/edt-1/stop", msgspec.to_builtins(make_view(state=JobState.KILLED)))
    actions = monitor.pages[0]._actions
    actions._buttons["Stop"].click()
    monitor.turn()
    assert "POST jobs/edt-1/stop" not in asked(training)
    assert actions._said.value.startswith("It gives 2 slots back at update 3 of 9; 6 updates are left undone.")
    actions._buttons["Stop"].click()
    monitor.turn()
    assert "POST jobs/edt-1/stop" in asked(training)


def test_an_action_that_is_refused_is_said(monitor, training):
    training.on("POST", "jobs/edt-1/suspend", lambda _: (409, {"message": "It has ended.", "code": "conflict"}))
    monitor.pages[0]._actions._buttons["Suspend"].click()
    monitor.turn()
    assert "It has ended." in monitor.pages[0]._actions._said.value


def test_buttons_that_can_do_nothing_cannot_be_clicked(monitor, training, make_view):
    buttons = monitor.pages[0]._actions._buttons
    assert [button.disabled for button in buttons.values()] == [False, True, False, False]
    waits = Reason(code="suspended", text="It is suspended.", held=0, entitled=0, asked=0)
    training.view = make_view(state=JobState.SUSPENDED, slots=0, reason=waits)
    monitor.turn()
    assert [button.disabled for button in buttons.values()] == [True, False, False, False]


def test_a_clone_is_a_line_that_submits_it_again(monitor, training, make_view, tmp_path):
    code = tmp_path / "_submitted_code" / "mine"
    training.view = make_view(priority=8000, args=("--lr", "0.1"), warm_start="edt-0", result_dir=str(tmp_path))
    monitor.turn()
    monitor.pages[0]._actions._buttons["Clone"].click()
    said = monitor.pages[0]._actions._said.value
    assert "the folder it was submitted from" in said
    code.mkdir(parents=True)
    (code / "train.py").touch()
    line = unescape(monitor.pages[0]._actions._line())
    source, given = eval(line, {"client": SimpleNamespace(submit=lambda source, **settings: (source, settings))})
    assert source == str(code)
    assert given == {
        "main": "train.py",
        "name": "digits",
        "max_workers": 4,
        "instance_group": "default",
        "priority": 8000,
        "warm_start": "edt-0",
        "args": ["--lr", "0.1"],
    }


def test_a_download_lies_beside_the_notebook_and_says_where(monitor, training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved = BytesIO()
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("model/x", "y" * 5000)
    training.on("GET", "jobs/edt-1/result", lambda _: (200, saved.getvalue()))
    downloading = monitor.pages[0]._downloading
    downloading._save("model")
    assert downloading._said.value == f"✔ Saved {tmp_path}/edt-1-model.zip (5.1 kB)."
    training.on("GET", "jobs/edt-1/result", lambda _: (404, {"message": "No model yet.", "code": "not_found"}))
    downloading._save("model")
    assert "No model yet." in downloading._said.value
    assert not downloading._button.disabled


def test_up_to_five_jobs_are_compared(monitor, training, make_view):
    others = [msgspec.to_builtins(make_view(id=f"edt-{n}", name=f"job {n}")) for n in range(1, 8)]
    training.on("GET", "jobs", {"jobs": others})
    show(monitor, "Metrics")
    monitor.turn()
    comparing = monitor.page._comparing
    assert len(comparing._others.options) == 6
    comparing._others.value = ("edt-2", "edt-3", "edt-4", "edt-5")
    monitor.turn()
    assert training.requests[-2].query["jobs"] == "edt-1,edt-2,edt-3,edt-4,edt-5"
    assert training.requests[-2].query["zone"] == f"{datetime.now().astimezone():%z}"
    assert "It goes down" in comparing._picture.value
    comparing._others.value = ("edt-2", "edt-3", "edt-4", "edt-5", "edt-6")
    monitor.turn()
    assert "5 are chosen; at most 4 fit" in comparing._said.value


# --- failures ---------------------------------------------------------------------------------------------------------


def test_while_the_server_is_away_it_says_so_and_tries_again(monitor, training):
    monitor.turn()
    training.on("GET", "jobs/edt-1", lambda _: (503, {"message": "", "reason": None}))
    monitor.turn()
    assert not monitor.over
    assert "⚠ Not renewed since" in monitor._trouble.value
    assert "Jobs do not need it" in monitor._trouble.value
    training.on("GET", "jobs/edt-1", lambda _: (200, msgspec.to_builtins(training.view)))
    monitor.turn()
    assert monitor._trouble.value == ""


def test_a_server_that_stays_away_ends_it_with_what_was_last_seen(monitor, training, monkeypatch):
    monkeypatch.setattr("edt_sdk.monitor.patience.PATIENCE", 0.0)
    monitor.turn()
    training.routes.clear()
    training.on("GET", "jobs/edt-1", lambda _: (503, {"message": "", "reason": None}))
    monitor.turn()
    time.sleep(0.01)
    monitor.turn()
    left = monitor._output.left[-1]
    assert "Last seen 20" in left["text/html"]
    assert "Run this cell again" in left["text/html"]
    assert "RUNNING" in left["text/html"]


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (404, {"message": "There is no job edt-1.", "code": "not_found", "hint": ""}, "There is no job edt-1."),
        (403, {"message": "Forbidden", "reason": None}, "does not accept this token. Give its token with EDT_TOKEN"),
    ],
)
def test_a_deleted_job_or_an_expired_token_ends_it_with_a_sentence(monitor, training, status, answer, said):
    training.on("GET", "jobs/edt-1", lambda _: (status, answer))
    monitor.turn()
    assert monitor.over
    assert said in monitor._output.left[-1]["text/html"]
    assert said in monitor._output.left[-1]["text/plain"]


def test_a_tab_that_cannot_be_fetched_says_so_and_the_others_go_on(monitor, training):
    for name in PICTURES:
        training.on("GET", f"jobs/edt-1/pictures/{name}", lambda _: (500, {"message": "Broken.", "code": "internal"}))
    show(monitor, "Metrics")
    monitor.turn()
    assert "Broken." in monitor._trouble.value
    show(monitor, "Logs")
    monitor.turn()
    assert monitor._trouble.value == ""
    training.end()
    monitor.turn()
    assert "two" in monitor._output.left[-1]["text/html"]


def test_our_own_mistake_ends_one_monitor_and_not_the_thread(monitor, training, monkeypatch, caplog):
    monkeypatch.setattr(monitor, "_draw_head", lambda: 1 / 0)
    monitor.turn()
    assert "This monitor failed: ZeroDivisionError" in monitor._output.left[-1]["text/html"]
    assert "the monitor failed" in caplog.text


def test_a_log_of_long_lines_and_progress_bars_is_shown(monitor, training):
    lines = [line("x" * 1_000_000), line("\r10 %\r20 %"), line("\x1b[31mred\x1b[0m <b>")]
    training.on("GET", "jobs/edt-1/logs", {"lines": lines, "next": "a"})
    show(monitor, "Logs")
    monitor.turn()
    html = monitor.page._lines.value
    assert len(html) < 10_000
    assert "cut; the line has 1,000,000 characters" in html
    assert "20 %" in html
    assert "10 %" not in html
    assert "red &lt;b&gt;" in html


def test_the_log_is_followed_searched_and_one_workers(monitor, training):
    both = [line("one"), line("two", worker=1, err=True)]
    training.on("GET", "jobs/edt-1/logs", lambda r: (200, {"lines": [] if "after" in r.query else both, "next": "a"}))
    show(monitor, "Logs")
    monitor.turn()
    page = monitor.page
    assert training.requests[-1].query == {"stream": "all", "tail": "500"}
    page._search.value = "TWO"
    monitor.turn()
    assert "<mark>two</mark>" in page._lines.value
    assert "1 of 2 lines contain “TWO”" in page._said.value
    assert training.requests[-1].query == {"stream": "all", "after": "a", "limit": "2000"}
    page._search.value = "nowhere"
    monitor.turn()
    assert "“nowhere” is not in" in page._said.value
    page._search.value = ""
    page._whose.value = ("worker", 1)
    monitor.turn()
    assert training.requests[-1].query == {"stream": "worker", "worker": "1", "tail": "500"}
    page._follow.value = False
    monitor.turn()
    asked(training)
    monitor.turn()
    assert asked(training) == ["GET jobs/edt-1"]


# --- all jobs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def overview(training, client):
    made = opened(ClientMonitor(client))
    asked(training)
    yield made
    made._box.close()


def test_all_jobs_are_listed_found_and_counted(overview, training, make_view):
    views = [msgspec.to_builtins(make_view(id=f"edt-{n}", name=f"job {n}")) for n in range(200)]
    training.on("GET", "jobs", {"jobs": views, "next": "…"})
    overview.turn()
    assert training.requests[-1].query == {"limit": "200"}
    assert "200 hold slots, 0 wait, of the newest 200 jobs." in overview._head.value
    assert "150 more" in overview._table.value
    overview._search.value = "job 17"
    overview.turn()
    assert overview._table.value.count("<code>") == 11


def test_its_tabs_are_pictures(overview, training):
    for title, path in {"Allocation": "timeline", "Machine": "shares"}.items():
        show(overview, title)
        overview.turn()
        assert asked(training)[-1] == f"GET pictures/{path}"
    assert "It goes down" in overview._timeline.value


# --- what ten of them cost --------------------------------------------------------------------------------------------


def test_ten_monitors_share_one_thread_and_ask_no_more_often_than_four(training, client):
    monitors = [opened(JobMonitor(client.job("edt-1"))) for _ in range(10)]
    for monitor in monitors:
        ROUNDS.add(monitor)
    assert ROUNDS.interval() == 2.5
    assert sum(1 for thread in threading.enumerate() if thread.name == "edt-monitor") == 1
    training.end()
    for monitor in monitors:
        ROUNDS.wake(monitor)
        assert monitor.join(30)
    for thread in [thread for thread in threading.enumerate() if thread.name == "edt-monitor"]:
        thread.join(30)
    assert ROUNDS.watchers() == []
