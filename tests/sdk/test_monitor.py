"""The monitor in a real kernel and in a plain process."""

import subprocess
import sys
import threading

import msgspec
import nbformat
import pytest
from nbclient import NotebookClient

from edt_sdk.schemas.job import JobProgress, JobState


@pytest.fixture
def training(peer, make_view, stream, events):
    """A job that makes progress twice and then ends."""
    steps = [make_view(progress=JobProgress(update=n, total_updates=9, loss=1 / n)) for n in (3, 6)]
    done = make_view(
        state=JobState.FINISHED, progress=JobProgress(update=9, total_updates=9, loss=0.1, test_accuracy=0.97)
    )
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(steps[0]))
    changes = [(n, "job", view) for n, view in enumerate([*steps, done])]
    peer.on("GET", "jobs/edt-1/events", lambda _: stream(events(*changes, (3, "end", {}))))
    points = [{"update": n, "loss": 1.0 / (n + 1)} for n in range(9)]
    peer.on("GET", "jobs/edt-1/metrics", {"train": points, "test": [], "next": 9, "done": True})
    peer.on("GET", "jobs", {"jobs": [msgspec.to_builtins(done)]})
    return peer


def execute(*cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    return NotebookClient(notebook, timeout=60, kernel_name="python3").execute().cells


@pytest.mark.filterwarnings("ignore::DeprecationWarning:zmq.*")
def test_a_notebook_is_left_with_a_card_and_no_widget(training, monkeypatch):
    monkeypatch.setenv("EDT_URL", training.url)
    monkeypatch.setenv("EDT_TOKEN", training.token)
    cells = execute(
        "from edt_sdk import Client\njob = Client().job('edt-1')",
        "monitor = job.monitor()\nassert monitor.join(30)\nmonitor",
        "monitor",
        "all = Client().monitor()\nassert all.join(30)",
        "import sys\nprint('torch' in sys.modules, 'ipywidgets' in sys.modules)",
    )
    first, again, table = cells[1].outputs, cells[2].outputs, cells[3].outputs
    assert len(first) == len(again) == len(table) == 1
    for output in (*first, *again):
        assert "FINISHED" in output.data["text/html"]
        assert "test accuracy 97.0 %" in output.data["text/html"]
        assert "application/vnd.jupyter.widget-view+json" not in output.data
    assert "<table>" in table[0].data["text/html"]
    assert cells[4].outputs[0].text == "False True\n"


def test_a_terminal_gets_a_line_and_no_widget(training, runtime_dir):
    code = (
        "import sys; from edt_sdk import Client; c = Client(); m = c.job('edt-1').monitor(); print(m);"
        "c.monitor(); print('ipywidgets' in sys.modules)"
    )
    env = {"EDT_URL": training.url, "EDT_TOKEN": training.token, "JUPYTER_RUNTIME_DIR": str(runtime_dir)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env)
    assert done.stdout == "Monitor of job edt-1\nFalse\n"
    assert done.stderr.startswith("digits: running, 2 of 4 slots")
    assert "finished, update 9 of 9" in done.stderr


class Recorded:
    """A display handle that keeps what it was given."""

    def __init__(self):
        self.updates = []
        self.done = threading.Event()

    def update(self, bundle, **_):
        self.updates.append(bundle)
        self.done.set()


@pytest.fixture
def monitor(training, client, make_view):
    from edt_sdk.monitor import JobMonitor

    made = JobMonitor(client.job("edt-1"))
    made.box = made._build()
    made._handle = Recorded()
    yield made
    made.box.close_all()


def test_the_widgets_show_the_newest_values(monitor):
    assert monitor._bar.value == pytest.approx(3 / 9)
    assert "RUNNING" in monitor._head.value
    assert "2 of at most 4 slots" in monitor._facts.value
    assert monitor._curve.value.startswith("<img ")


def test_it_draws_at_most_once_a_second_and_never_drops_the_last_change(monitor, monkeypatch, make_view):
    drawn = []
    later = threading.Event()

    def draw():
        drawn.append(monitor.job.view.slots)
        if len(drawn) > 1:
            later.set()

    monkeypatch.setattr(monitor, "_draw", draw)
    monkeypatch.setattr("edt_sdk.monitor.REDRAW_EVERY", 0.2)
    for slots in range(1, 50):
        monitor.job.saw(make_view(slots=slots))
        monitor._changed()
    assert later.wait(10)
    assert drawn[-1] == 49
    assert len(drawn) < 49


def test_stopping_asks_first(monitor, training, make_view):
    training.on("POST", "jobs/edt-1/stop", msgspec.to_builtins(make_view(state=JobState.KILLED)))
    monitor._button.click()
    assert "POST jobs/edt-1/stop" not in training.paths()
    assert monitor._button.description == "Really stop at update 3 of 9?"
    monitor._button.click()
    assert "POST jobs/edt-1/stop" in training.paths()
    assert monitor._button.disabled


def test_a_stop_that_is_refused_is_said(monitor, training):
    training.on("POST", "jobs/edt-1/stop", lambda _: (409, {"message": "It has ended.", "code": "conflict"}))
    monitor._button.click()
    monitor._button.click()
    assert monitor._button.description == "Not stopped"
    assert "It has ended." in monitor._button.tooltip


def test_when_the_server_goes_the_last_picture_says_so(monitor, training, monkeypatch):
    training.routes.clear()
    monitor._run()
    assert "Last seen" in monitor._handle.updates[-1]["text/html"]
