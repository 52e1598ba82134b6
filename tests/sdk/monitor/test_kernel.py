"""The monitor in a real kernel and in a plain process: what it shows, what stays, and what an interrupt does."""

import subprocess
import sys
import time

import nbformat
import pytest
from nbclient import NotebookClient

from edt_sdk.schemas.job import JobProgress, JobState
from tests.kernels import on_unix_sockets


def execute(*cells, each=lambda index: None, errors=False):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(
        notebook,
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
        "assert monitor.join(180) and everything.join(180)",
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


# nbclient takes no output between two cells, so the output is replaced while the last one runs.
LATE = """
import threading
last, replace = threading.Event(), monitor._output.replace
monitor._output.replace = lambda bundle: (last.wait(), replace(bundle))
"""
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
        "from edt_sdk import Client\nmonitor = Client().job('edt-1').monitor()" + LATE,
        interrupted if busy else PRESS.format(pressed=str(pressed)),
        "last.set()\nassert monitor.join(180)\nmonitor",
        each=each,
        errors=busy,
    )
    left = cells[2].outputs[0].data
    assert "kernel was interrupted" in left["text/html"]
    assert "application/vnd.edt.job+json" in left
    assert "application/vnd.jupyter.widget-view+json" not in left
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
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert ran.stdout == "Monitor of job edt-1\nFalse\n"
    assert ran.stderr.startswith("digits: running, 2 of 4 slots")
    assert "finished, update 9 of 9" in ran.stderr
