"""Hosts in Python, at a shell and in a cell: which requests are made, how answers read, what `join` starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest
from IPython.core.interactiveshell import InteractiveShell

from edt_sdk import InvalidRequest, NotFound, Unprocessable, WaitTimeout
from edt_sdk.notebook import hosts_watch
from edt_sdk.schemas.hosts import HostState
from tests.fleets import joined

HOST = joined(slots=4, used=3, wheel="0.2.0", jobs=("edt-1",), memory=16_000_000_000, memory_free=8_000_000_000)
LOST = joined("gpu-2", state=HostState.LOST, why="Its agent has been silent for 15 s.")
TOKEN = {"token": "edt1:k", "command": "edt host join 'edt1:k'", "expires": 1000.0, "uses": 2}


@pytest.fixture
def hosts(peer):
    """A server with two hosts, the second lost."""
    peer.on("GET", "hosts", {"hosts": msgspec.to_builtins([HOST, LOST])})
    peer.on("GET", "hosts/gpu-1", msgspec.to_builtins(HOST))
    peer.on("GET", "hosts/gpu-1/log", {"log": "joined\nup"})
    peer.on("POST", "hosts/tokens", lambda _: (201, TOKEN))
    peer.on("DELETE", "hosts/gpu-1", lambda _: (204, None))

    def drain(request):
        state = HostState.DRAINING if json.loads(request.body)["draining"] else HostState.UP
        return 200, msgspec.to_builtins(msgspec.structs.replace(HOST, state=state))

    peer.on("POST", "hosts/gpu-1/drain", drain)
    return peer


class TestInPython:
    def test_the_list_reads_as_a_table(self, client, hosts):
        found = client.hosts()
        assert [host.name for host in found] == ["gpu-1", "gpu-2"]
        head, first, second, why = repr(found).splitlines()
        assert head.split()[:4] == ["HOST", "STATE", "IN", "USE"]
        assert first.split()[:6] == ["gpu-1", "up", "3", "of", "4", "8"]
        assert "4.0 ms" in first
        assert "edt host join" in first
        assert second.split()[:3] == ["gpu-2", "lost", "-"]
        assert why.strip() == LOST.why
        assert "<td" in found._repr_html_()
        assert LOST.why in found._repr_html_()

    def test_an_empty_list_says_what_to_do(self, client, peer):
        peer.on("GET", "hosts", {"hosts": []})
        assert "edt host token" in repr(client.hosts())
        assert "edt host token" in client.hosts()._repr_html_()

    def test_a_name_of_a_host_is_no_markup(self, client, peer):
        peer.on("GET", "hosts", {"hosts": [msgspec.to_builtins(joined("<b>"))]})
        assert "<b>" not in client.hosts()._repr_html_()

    def test_slots_that_are_being_given_up_count_after_they_are_withdrawn(self, client, peer):
        drained = joined(state=HostState.DRAINING, slots=0, used=2)
        peer.on("GET", "hosts", {"hosts": [msgspec.to_builtins(drained)]})
        assert "2 given up" in repr(client.hosts())

    def test_one(self, client, hosts):
        text = repr(client.host("gpu-1"))
        for part in ("3 of 4 in use", "edt-1", "10.0.0.5", "16.0 GB, 8.0 GB free", "4.0 ms"):
            assert part in text
        with pytest.raises(NotFound):
            client.host("none")
        with pytest.raises(InvalidRequest, match="is not the name of a host"):
            client.host("a/b")

    def test_a_token(self, client, hosts):
        assert client.host_token(minutes=5, uses=2).command == TOKEN["command"]
        assert json.loads(hosts.requests[-1].body) == {"seconds": 300.0, "uses": 2}
        with pytest.raises(Unprocessable, match="cannot be valid for 0 seconds"):
            client.host_token(minutes=0)

    def test_drain_undo_and_wait(self, client, hosts):
        assert client.drain_host("gpu-1").state is HostState.DRAINING
        assert client.drain_host("gpu-1", undo=True).state is HostState.UP
        with pytest.raises(WaitTimeout, match="Jobs still hold 3 slots of the host 'gpu-1'"):
            client.drain_host("gpu-1", wait=True, timeout=0)
        empty = msgspec.structs.replace(HOST, state=HostState.DRAINING, used=0)
        hosts.on("GET", "hosts/gpu-1", msgspec.to_builtins(empty))
        assert client.drain_host("gpu-1", wait=True).used == 0

    def test_removal(self, client, hosts):
        client.remove_host("gpu-1")
        assert hosts.requests[-1].query == {}
        client.remove_host("gpu-1", force=True)
        assert hosts.requests[-1].query == {"force": "1"}

    def test_the_log(self, client, hosts):
        assert client.host_log("gpu-1", lines=2) == "joined\nup"
        assert hosts.requests[-1].query == {"lines": "2"}


@pytest.fixture
def edt(peer, tmp_path):
    """Runs `edt` as a process."""

    def run(*words, stdin="", path=()):
        environ = {"PATH": os.environ["PATH"], "JUPYTER_RUNTIME_DIR": str(tmp_path), "EDT_URL": peer.url}
        environ |= {"EDT_TOKEN": peer.token, "PYTHONPATH": os.pathsep.join([*map(str, path), *sys.path])}
        command = [sys.executable, "-m", "edt_sdk.cli", "host", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, env=environ, input=stdin)

    return run


class TestAtAShell:
    def test_list_and_show(self, edt, hosts):
        assert "gpu-1" in edt("list").stdout
        assert json.loads(edt("list", "--json").stdout)["hosts"][1]["state"] == "lost"
        assert "3 of 4 in use" in edt("show", "gpu-1").stdout
        assert json.loads(edt("show", "gpu-1", "-o", "json").stdout)["slots"] == 4

    def test_a_token_is_the_line_to_paste(self, edt, hosts):
        done = edt("token", "--minutes", 5, "--uses", 2)
        assert done.stdout == f"{TOKEN['command']}\n"
        assert "for 2 machines, within 5 min" in done.stderr
        wrong = edt("token", "--uses", 0)
        assert (wrong.returncode, wrong.stderr) == (2, "edt: A token cannot be for 0 machines. Give 1 to 10000.\n")

    def test_drain_remove_and_logs(self, edt, hosts):
        drained = edt("drain", "gpu-1")
        assert drained.stdout == "draining\n"
        assert "jobs still hold 3 there" in drained.stderr
        assert edt("drain", "gpu-1", "--undo").stdout == "up\n"
        assert edt("remove", "gpu-1", "--force").stdout == "gpu-1\n"
        assert edt("logs", "gpu-1", "-n", 2).stdout == "joined\nup\n"


@pytest.fixture
def agent(tmp_path):
    """A folder with an `edt_server.agent` that tells how it was started."""
    package = tmp_path / "fake" / "edt_server" / "agent"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    said = "import json, sys\nprint(json.dumps([sys.argv[1:], sys.stdin.read()]))\n"
    (package / "__main__.py").write_text(said)
    return tmp_path / "fake"


class TestJoin:
    def test_the_token_goes_by_standard_input_and_options_with_whole_paths(self, edt, agent, tmp_path):
        (tmp_path / "data").mkdir()
        done = edt(
            *("join", "edt1:k@h:1/t", "--name", "gpu-1", "--slots", 2, "--data", tmp_path / "data"),
            *("--interface", "10.0.0.5", "--folder", "agent"),
            path=[agent],
        )
        assert done.returncode == 0, done.stderr
        words, given = json.loads(done.stdout)
        assert given == "edt1:k@h:1/t"
        assert "edt1:k@h:1/t" not in words
        assert words == [
            *("join", "--token-file", "-", "--name", "gpu-1", "--folder", os.path.abspath("agent"), "--slots", "2"),
            *("--data", str(tmp_path / "data"), "--interface", "10.0.0.5"),
        ]

    def test_a_file_is_passed_on_and_standard_input_as_it_is(self, edt, agent, tmp_path):
        file = tmp_path / "token"
        file.write_text("t")
        assert json.loads(edt("join", "--token-file", file, path=[agent]).stdout)[0][1:] == ["--token-file", str(file)]
        done = edt("join", "--token-file", "-", stdin="t2", path=[agent])
        assert json.loads(done.stdout) == [["join", "--token-file", "-"], "t2"]

    def test_a_machine_that_has_joined_needs_no_token(self, edt, agent):
        assert json.loads(edt("join", path=[agent]).stdout) == [["join"], ""]

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (("t", "--token-file", "f"), "There are two tokens"),
            (("a b",), "The token is not complete."),
            (("--token-file", "/nowhere"), "There is no file '/nowhere'"),
            (("t", "--data", "/nowhere"), "There is no folder '/nowhere'."),
            (("t", "--interface", "eth0"), "'eth0' is not an IP address."),
        ],
    )
    def test_what_cannot_be_says_what_to_do(self, edt, words, sentence):
        done = edt("join", *words)
        assert done.returncode == 2
        assert done.stderr.startswith(f"edt: {sentence}"), done.stderr
        assert len(done.stderr) > len(sentence) + 15  # a hint follows
        assert "Traceback" not in done.stderr


@pytest.fixture
def shell(peer, monkeypatch):
    monkeypatch.setenv("EDT_URL", peer.url)
    monkeypatch.setenv("EDT_TOKEN", peer.token)
    made = InteractiveShell.instance()
    made.extension_manager.load_extension("edt_sdk")
    yield made
    made.extension_manager.unload_extension("edt_sdk")
    InteractiveShell.clear_instance()


class TestInACell:
    def test_the_table(self, shell, hosts):
        assert [host.name for host in shell.run_line_magic("edt_hosts", "")] == ["gpu-1", "gpu-2"]

    def test_it_is_renewed_until_the_cell_is_interrupted_and_then_says_when_it_was_taken(
        self, shell, hosts, monkeypatch
    ):
        shown = []
        monkeypatch.setattr(hosts_watch.Shown, "show", lambda _, bundle: shown.append(bundle))

        def first_answer_again():
            hosts.on("GET", "hosts", {"hosts": [msgspec.to_builtins(HOST)]})

        def away():
            hosts.on("GET", "hosts", lambda _: (503, {"message": "It starts.", "code": "server_unreachable"}))

        def interrupted():
            raise KeyboardInterrupt

        steps = iter([first_answer_again, away, interrupted])
        # Not `time.sleep` itself, by which the connection waits before it asks again.
        clock = SimpleNamespace(sleep=lambda _: next(steps)(), time=time.time)
        monkeypatch.setattr(hosts_watch, "time", clock)
        assert shell.run_line_magic("edt_hosts", "--watch") is None
        plain = [bundle["text/plain"] for bundle in shown]
        assert ["gpu-2" in text for text in plain] == [True, False, False, False]
        assert "It starts." in plain[2]
        assert ["As last seen at" in text for text in plain] == [False, False, True, True]
