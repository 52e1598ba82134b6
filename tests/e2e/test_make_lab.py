"""`make lab` from start to restart: its address, its notebooks, `edt` in its terminals and in other shells."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from tornado.ioloop import IOLoop
from tornado.websocket import websocket_connect

from edt_sdk import Client
from tests.waiting import until

REPOSITORY = Path(__file__).parents[2]
EDT = Path(sys.executable).parent / "edt"
# What a user's shell may have set, and what would send `edt` elsewhere.
ELSEWHERE = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "EDT_URL", "EDT_TOKEN", "JUPYTER_RUNTIME_DIR", "JPY_PARENT_PID")


class Lab:
    """Represents what one `make lab` has started and printed, in a folder that stands for the checkout."""

    def __init__(self, root: Path, *options: str, **environ: str) -> None:
        self.root = root
        own = {key: value for key, value in os.environ.items() if key not in ELSEWHERE}
        self.process = subprocess.Popen(
            [sys.executable, REPOSITORY / "demo" / "lab.py", "--root", root, *options],
            env=own | {"SHELL": "/bin/bash"} | environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        for line in self.process.stdout or ():
            self.lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        else:
            self.process.communicate()

    @property
    def address(self) -> str:
        return re.findall(r"^Open this: (\S+)$", "".join(self.lines), re.MULTILINE)[0]

    @property
    def exported(self) -> dict[str, str]:
        words = shlex.split("".join(self.lines).split("export ")[1].split("\n")[0])
        return dict(word.split("=", 1) for word in words)

    def end(self) -> None:
        """Press Ctrl-C, and wait."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
            self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator:
    labs: list[Lab] = []

    def begin(*options: str, **environ: str) -> Lab:
        labs.append(Lab(tmp_path / "checkout", *options, **environ))
        return labs[-1]

    yield begin
    for lab in labs:
        lab.end()


def edt(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `edt` as in a shell of its own."""
    own = {key: value for key, value in os.environ.items() if key not in ELSEWHERE}
    own["JUPYTER_RUNTIME_DIR"] = str(cwd / "no-server-here")
    return subprocess.run([EDT, *words], cwd=cwd, env=own | environ, capture_output=True, text=True, check=False)


def open_terminal(lab: Lab) -> str:
    """Open a terminal as JupyterLab's page does, and return the address of its socket."""
    key = lab.exported["EDT_TOKEN"]
    base = lab.exported["EDT_URL"]
    made = requests.post(f"{base}api/terminals", headers={"Authorization": f"token {key}"}, timeout=120)
    made.raise_for_status()
    return f"{base.replace('http', 'ws', 1)}terminals/websocket/{made.json()['name']}?token={key}"


async def typed(socket_url: str, command: str) -> str:
    """Type a command into a terminal, and return the output up to the end of the command."""
    terminal = await websocket_connect(socket_url)
    # The end is computed by the shell, so the echo of what is typed does not look like it.
    terminal.write_message(json.dumps(["stdin", f"{command}; echo end-$((6 * 7))\r"]))
    shown = ""
    while "end-42" not in shown:
        message = await terminal.read_message()
        assert message is not None, shown
        kind, *content = json.loads(message)
        if kind == "stdout":
            shown += content[0]
    terminal.close()
    while await terminal.read_message() is not None:  # until it is closed
        pass
    return shown


@pytest.mark.long  # browser/test_make_lab.py goes on after a restart
def test_a_restart_has_the_same_address_and_keeps_the_notebooks(start, tmp_path):
    lab = start("--no-browser")
    mine = tmp_path / "checkout" / "my-notebooks"
    assert (mine / "digits" / "train.py").read_text() == (REPOSITORY / "notebooks/digits/train.py").read_text()
    (mine / "01_quickstart.ipynb").write_text("mine")
    (mine / "02_bring_your_own_model.ipynb").unlink()
    second = start("--no-browser")
    assert "runs already" in second.lines[0]
    assert second.address == lab.address
    lab.end()

    again = start("--no-browser")
    assert again.address == lab.address
    assert (mine / "01_quickstart.ipynb").read_text() == "mine"
    assert json.loads((mine / "02_bring_your_own_model.ipynb").read_text())["cells"]
    again.end()

    with socket.create_server(("127.0.0.1", urlsplit(lab.address).port)):
        moved = start("--no-browser")
    assert "is taken" in moved.lines[0]
    assert urlsplit(moved.address).port != urlsplit(lab.address).port
    assert urlsplit(moved.address).query == urlsplit(lab.address).query


def test_edt_works_in_its_terminal_and_in_other_shells(start, tmp_path):
    # A name that the shell passes to the browser. The address itself must not be readable in a list of processes.
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}.part && mv {seen}.part {seen}\n')
    browser.chmod(0o700)
    lab = start(BROWSER=f"{browser} %s")
    opened = until(lambda: seen.exists() and seen.read_text().strip(), "the browser is opened")
    assert opened.startswith("file://")
    page = Path(urlsplit(opened).path).read_text()
    assert "lab/tree/01_quickstart.ipynb" in page
    assert lab.exported["EDT_TOKEN"] in page

    checkout = tmp_path / "checkout"
    inside = edt("cluster", cwd=checkout / "my-notebooks" / "digits")
    assert (inside.returncode, "4 slots" in inside.stdout) == (0, True), inside.stderr
    assert edt("cluster", cwd=tmp_path).returncode == 4
    assert edt("cluster", cwd=tmp_path, **lab.exported).returncode == 0

    terminal = open_terminal(lab)
    shown = IOLoop().run_sync(lambda: typed(terminal, "pwd; edt submit digits --main train.py; edt list"), timeout=200)
    assert str(checkout / "my-notebooks") in shown
    assert "No such" not in shown
    job = lab_client(lab).jobs()[0]
    assert job.name == "digits"
    assert job.id in shown
    job.stop()
    until(lambda: job.refresh().view.state.final, "it has stopped")
    # A start is no trouble, and the log does not show it as one.
    assert "Traceback" not in (checkout / ".lab" / "server.log").read_text()


def lab_client(lab: Lab) -> Client:
    return Client(lab.exported["EDT_URL"], token=lab.exported["EDT_TOKEN"])
