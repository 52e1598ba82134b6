"""`edt` under a real terminal, tmux, with a real server: the live view, and Tab in a real bash."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import debian
from tests.e2e.harness import Jobs
from tests.waiting import until


@pytest.fixture(scope="session")
def tmux() -> str:
    """Where tmux is; installed by apt-get where that may be done."""
    return debian.found(debian.program("tmux"), "tmux")


class Terminal:
    """A bash in a tmux of its own, with `edt` on its path."""

    def __init__(self, tmux: str, folder: Path, environ: dict[str, str]) -> None:
        programs = folder / "bin"
        programs.mkdir()
        edt = programs / "edt"
        edt.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m edt_sdk.cli "$@"\n')
        edt.chmod(0o700)
        # A start file and not the environment, because the shell that tmux starts a program with resets PS1.
        self._start = folder / "bashrc"
        self._start.write_text("PS1='ready> '\n")
        self._command = [tmux, "-S", str(folder / "socket"), "-f", "/dev/null"]
        self._environ = {
            **os.environ, **environ, "PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8",
            "INPUTRC": "/dev/null", "HISTFILE": "", "COLUMNS": "150", "LINES": "24",
        }  # fmt: skip

    def __enter__(self) -> Terminal:
        self.run("new-session", "-d", "-x", "150", "-y", "24", f"bash --rcfile {self._start}")
        return self

    def __exit__(self, *_: object) -> None:
        self.run("kill-server")

    def run(self, *words: str) -> str:
        done = subprocess.run([*self._command, *words], env=self._environ, capture_output=True, text=True, check=True)
        return done.stdout

    def type(self, *keys: str) -> None:
        """Send keys by tmux's names, other words letter by letter."""
        self.run("send-keys", *keys)

    def screen(self) -> str:
        return self.run("capture-pane", "-p")

    def shows(self, pattern: str) -> str:
        """Return the screen as soon as it shows this."""
        return self.until(lambda seen: bool(re.search(pattern, seen, re.MULTILINE)), f"{pattern!r} on the screen")

    def until(self, holds: Callable[[str], bool], what: str) -> str:
        """Return the screen as soon as this holds for it."""

        def look() -> str:
            seen = self.screen()
            return seen if holds(seen) else ""

        try:
            return until(look, what)
        except pytest.fail.Exception as late:
            pytest.fail(f"{late}; the screen is:\n{self.screen()}")

    def modes(self) -> str:
        """Return whether the alternate screen is on, and whether there is a cursor."""
        return self.run("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip()


@pytest.fixture
def terminal(tmux: str, tmp_path: Path, one_slot: Jobs) -> Iterator[Terminal]:
    server = one_slot.server
    with Terminal(tmux, tmp_path, {"EDT_URL": server.url, "EDT_TOKEN": server.token}) as made:
        made.shows("ready>")
        yield made


@pytest.fixture
def trains(one_slot: Jobs) -> Iterator[str]:
    """The name of a job that runs, with another one that waits."""
    jobs = [one_slot.submit("forever.py", name=name, max_workers=1) for name in ("quickstart", "later")]
    until(lambda: jobs[0].refresh().view.progress, "the training")
    yield "quickstart"
    one_slot.client.stop_all()
    for job in jobs:
        until(lambda job=job: job.refresh().view.state.final, "the end of the job")
        # Its name is the next test's.
        job.delete()


def test_top_redraws_itself_follows_the_window_and_leaves_the_terminal_as_it_was(
    terminal: Terminal, trains: str, one_slot: Jobs
) -> None:
    terminal.type("edt top", "Enter")
    first = terminal.shows(r"quickstart\S* +quickstart +RUNNING")
    assert terminal.modes() == "1 0"
    assert re.search(r"edt top \d\d:\d\d:\d\d +slots: 1, 0 free +jobs: 1 with slots, 1 waiting", first)
    assert re.search(r"CPU +A", first)
    assert "PENDING" in first
    assert "The only slot has a job" in first
    # The time in the head is when the server was last asked.
    clock = first.split()[2]
    until(lambda: terminal.screen().split()[2] != clock, "another picture")
    one_slot.client.job("later").stop()
    # Jobs of other tests are in the list, stopped too.
    assert "PENDING" not in terminal.shows(r"later\S* +later +STOPPED")
    terminal.run("resize-window", "-x", "60", "-y", "9")
    # The head is longer than that, so it is cut.
    small = terminal.until(lambda seen: bool(re.match(r"edt top .*…\n", seen)) and "RUNNING" in seen, "a smaller page")
    assert max(map(len, small.splitlines())) <= 60
    terminal.type("q")
    terminal.shows(r"ready> *$")
    assert terminal.modes() == "0 1"
    terminal.type("edt top", "Enter")
    terminal.shows("RUNNING")
    terminal.type("C-c")
    terminal.shows(r"ready> *$")
    terminal.type("echo code=$?", "Enter")
    terminal.shows("code=0")
    assert terminal.modes() == "0 1"


def test_top_prints_once(terminal: Terminal, trains: str) -> None:
    terminal.type("edt top --once; edt top | head -1; echo over", "Enter")
    shown = terminal.shows("^over")
    assert shown.count("edt top ") >= 2
    assert terminal.modes() == "0 1"


def test_tab_completes_verbs_options_and_jobs(terminal: Terminal, trains: str) -> None:
    terminal.type('eval "$(edt completion bash)"; clear', "Enter")
    terminal.shows(r"^ready> *$")
    terminal.type("edt get quick", "Tab")
    terminal.shows("edt get quickstart")
    terminal.type("Enter")
    terminal.shows(r"Job quickstart-\S+ \(quickstart\): running")
    terminal.type("clear", "Enter")
    terminal.type("edt interp", "Tab", "--out", "Tab", "js", "Tab")
    terminal.shows("edt interpreters --output json")
