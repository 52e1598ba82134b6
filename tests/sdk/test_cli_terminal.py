"""What `edt` writes to a terminal: no text of a server, a job or another user is a command to it."""

import json
import os
import pty
import re
import subprocess
import sys
import threading

import msgspec
import pytest

from edt_sdk.cli import main
from edt_sdk.formatting.control_characters import one_line, visible, visible_log
from tests.sdk.test_cli import EDT, environment, log_line, read_until

# Each is shown and not obeyed: title, clipboard, clear, 8-bit CSI, bell, backspace, and reversed text.
HOSTILE = "\x1b]0;owned\x07\x1b]52;c;eA==\x07\x1b[2J\x9b2J\x08\u202ex"
SHOWN = r"\x1b]0;owned\x07\x1b]52;c;eA==\x07\x1b[2J\u009b2J\x08\u202ex"
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_what_is_written_instead():
    assert visible(HOSTILE + "\n\t\ra") == SHOWN + "\n\t\\x0da"
    assert one_line("a\nb\tc\x1b") == r"a\nb\tc\x1b"
    assert visible("Ünïcødé 日本語 👩\u200d🔬") == "Ünïcødé 日本語 👩\u200d🔬"
    assert visible_log("\x1b[1;31mred\x1b[0m\r50 %\x1b[2K") == "\x1b[1;31mred\x1b[0m\r50 %\\x1b[2K\x1b[m"
    assert visible_log("plain") == "plain"


@pytest.fixture
def at_terminal(peer, monkeypatch):
    """Run a command in this process with a terminal as stdout and stderr. Returns what the terminal got."""
    monkeypatch.setenv("EDT_URL", peer.url)
    monkeypatch.setenv("EDT_TOKEN", peer.token)
    monkeypatch.setenv("COLUMNS", "1000")

    def run(*words):
        terminal, other_end = pty.openpty()
        got = []

        def read():
            with os.fdopen(terminal, "rb", buffering=0) as screen:
                try:
                    while data := screen.read(4096):
                        got.append(data)
                except OSError:
                    pass  # Linux raises it when the other end is closed

        reader = threading.Thread(target=read)
        reader.start()
        with open(other_end, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            main(words)
        reader.join()
        return b"".join(got).decode()

    return run


@pytest.fixture
def hostile(peer, make_view):
    """A server with one job, as an older store may have it: every text of its owner is hostile."""
    changes = {"state": "FAILED", "name": f"name\n{HOSTILE}", "owner": f"eve{HOSTILE}", "args": [HOSTILE]}
    texts = {"tags": [HOSTILE], "notes": HOSTILE, "message": f"Error\n{HOSTILE}"}
    view = msgspec.to_builtins(make_view()) | changes | texts
    row = {"time": 1.0, "seq": 1, "slots": {"edt-1": 1}, "free": 0, "capacity": 1, "cause": "", "text": f"a\n{HOSTILE}"}
    slots = [{"id": 0, "host": "h", "device": "cpu", "resource_group": "default", "job": None}]
    pools = [{"name": "default", "slots": 1, "free": 1}]
    peer.on("GET", "jobs", {"jobs": [view]})
    peer.on("GET", "jobs/edt-1", view)
    peer.on("GET", "jobs/edt-1/workers", {"workers": []})
    peer.on("GET", "jobs/edt-1/checkpoints", {"checkpoints": []})
    peer.on("GET", "cluster", {"slots": slots, "resource_groups": pools, "groups": [], "jobs": []})
    peer.on("GET", "timeline", {"capacity": 1, "rows": [row], "names": {"edt-1": f"n\n{HOSTILE}"}, "total": 1})
    peer.on("GET", "jobs/edt-2", lambda _: (404, {"message": f"no {HOSTILE}", "code": "not_found", "hint": ""}))
    lines = [log_line(f"\x1b[31mred\x1b[0m {HOSTILE}")]
    log = lambda request: (200, {"lines": [] if "after" in request.query else lines, "next": "c", "done": True})  # noqa: E731
    peer.on("GET", "jobs/edt-1/logs", log)
    return view


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--all"),
        ("list", "--all", "-o", "json"),
        ("get", "edt-1"),
        ("top", "--once"),
        ("timeline",),
        ("timeline", "-o", "json"),
        ("get", "edt-2"),
        ("logs", "edt-1"),
    ],
)
def test_no_verb_passes_a_command_to_a_terminal(at_terminal, hostile, words):
    written = at_terminal(*words)
    # The colours of a log are meant for the terminal.
    written = re.sub(r"\x1b\[[\d;]*m", "", written) if words[0] == "logs" else written
    assert CONTROLS.search(written) is None, written
    # The terminal itself turns a line break into two characters.
    assert "\r" not in written.replace("\r\n", "")
    assert "owned" in written  # shown, so the name can still be recognised
    if "json" in words:
        assert json.loads(written) is not None
    if words[0] in ("list", "timeline") and "json" not in words:
        # A line break in a name makes no row of its own. Below a job's row is why it ended.
        assert len(written.splitlines()) == (3 if words[0] == "list" else 2)


def test_a_log_keeps_its_colours_at_a_terminal(at_terminal, hostile):
    assert "\x1b[31mred\x1b[0m" in at_terminal("logs", "edt-1")


def test_a_pipe_gets_every_character(peer, hostile, runtime_dir):
    def piped(*words):
        done = subprocess.run([*EDT, *words], capture_output=True, env=environment(runtime_dir, peer))
        return done.stdout.decode()

    assert json.loads(piped("list", "--all", "-o", "json"))["jobs"][0]["name"] == hostile["name"]
    assert piped("logs", "edt-1") == f"\x1b[31mred\x1b[0m {HOSTILE}\n"


def test_the_live_view_draws_itself_and_obeys_no_name(peer, hostile, runtime_dir):
    terminal, other_end = os.openpty()
    env = environment(runtime_dir, peer) | {"COLUMNS": "400", "LINES": "20"}
    with subprocess.Popen([*EDT, "top"], stdin=other_end, stdout=other_end, stderr=other_end, env=env) as process:
        os.close(other_end)
        written = read_until(terminal, "\x1b[J")
        os.write(terminal, b"q")
        assert process.wait(180) == 0
    os.close(terminal)
    own = re.compile(r"\x1b\[(?:\?1049h|\?25l|H|K|J)")
    assert len(own.findall(written)) > 4
    assert CONTROLS.search(own.sub("", written)) is None
    assert "owned" in written
