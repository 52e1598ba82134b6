import json
import os
from pathlib import Path

import pytest

from edt_sdk import Client, NotAllowed, ServerUnreachable
from edt_sdk.http.discovery import chosen_among, clean_url, connect, running_servers


def announce(folder, peer, *, pid=None, token=None, url=None, name=None, **more):
    """What a Jupyter Server writes when it starts."""
    pid = os.getpid() if pid is None else pid
    info = {
        "base_url": peer.base, "hostname": "localhost", "password": False, "pid": pid, "port": 1, "root_dir": "/",
        "secure": False, "sock": "", "token": peer.token if token is None else token, "url": url or peer.url,
        "version": "2.21.1", **more,
    }  # fmt: skip
    (folder / f"jpserver-{name or pid}.json").write_text(json.dumps(info))


def dead_pid():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_arguments_win(peer):
    server, info = connect(peer.url, peer.token, {"EDT_URL": "http://127.0.0.1:1/"})
    assert (server.url, server.found, info.user) == (peer.url, "the address given", "ann")
    assert server.local


def test_the_environment_comes_next(peer):
    server, _ = connect(environ={"EDT_URL": peer.url, "EDT_TOKEN": "secret"})
    assert server.found == "EDT_URL"


def test_an_address_from_the_browser_is_enough(peer):
    server, _ = connect(f"{peer.url}lab/tree/a.ipynb?token=secret")
    assert server.url == peer.url


def test_the_token_of_a_known_server_is_found(peer, runtime_dir):
    announce(runtime_dir, peer)
    server, _ = connect(peer.url.replace("127.0.0.1", "localhost"))
    assert server.token == "secret"


def test_the_server_of_this_kernel(peer, runtime_dir):
    announce(runtime_dir, peer)
    announce(runtime_dir, peer, pid=os.getppid(), url="http://127.0.0.1:1/")
    server, _ = connect(environ={"JPY_PARENT_PID": str(os.getpid())})
    assert (server.url, server.found) == (peer.url, "the server of this kernel")


def test_a_hubs_server_takes_the_hubs_token(peer, runtime_dir):
    announce(runtime_dir, peer, token="")
    environ = {
        "JPY_PARENT_PID": str(os.getpid()),
        "JUPYTERHUB_SERVICE_PREFIX": "/base/",
        "JUPYTERHUB_API_TOKEN": "secret",
    }
    server, _ = connect(environ=environ)
    assert server.found == "the server of this kernel"


def test_hub_variables_alone(peer):
    port = peer.url.split(":")[2].split("/")[0]
    environ = {
        "JUPYTERHUB_SERVICE_PREFIX": "/base/",
        "JUPYTERHUB_API_TOKEN": "secret",
        "JUPYTERHUB_SERVICE_URL": f"http://0.0.0.0:{port}/base/",
    }
    server, _ = connect(environ=environ)
    assert (server.url, server.found) == (peer.url, "JupyterHub's variables")


def test_the_only_running_server_that_answers(peer, runtime_dir):
    announce(runtime_dir, peer)
    announce(runtime_dir, peer, name="other", url=peer.url.replace("/base/", "/other/"))
    announce(runtime_dir, peer, name="silent", url="http://127.0.0.1:1/")
    announce(runtime_dir, peer, name="socket", sock="/tmp/x")
    announce(runtime_dir, peer, pid=dead_pid())
    (runtime_dir / "jpserver-broken.json").write_text("{")
    server, _ = connect(environ={})
    assert server.url == peer.url


def test_two_that_answer_are_not_guessed_between(peer, runtime_dir):
    announce(runtime_dir, peer, name="a")
    announce(runtime_dir, peer, name="b", url=peer.url.replace("127.0.0.1", "localhost"))
    with pytest.raises(ServerUnreachable, match="2 servers answer") as refused:
        connect(environ={})
    assert "EDT_URL" in refused.value.hint


def test_the_lab_of_the_checkout_comes_before_other_servers(peer, runtime_dir, tmp_path, monkeypatch):
    runtime = tmp_path / "checkout" / ".lab" / "runtime"
    inside = tmp_path / "checkout" / "edt_sdk" / "http"
    runtime.mkdir(parents=True)
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    monkeypatch.setattr("edt_sdk.http.discovery.LAB_RUNTIME", Path(".lab", "runtime"))
    announce(runtime_dir, peer, name="a")
    announce(runtime, peer, name="dead", pid=dead_pid(), url="http://127.0.0.1:1/")
    assert connect(environ={})[0].found == f"the running server with pid {os.getpid()}"
    announce(runtime, peer, name="b", url=peer.url.replace("127.0.0.1", "localhost"))
    server, _ = connect(environ={})
    assert (server.found, server.token) == ("the JupyterLab of this checkout", "secret")
    assert "localhost" in server.url
    assert chosen_among(server) == ""
    announce(runtime_dir, peer, name="c", url="http://127.0.0.1:1/")
    assert "the checkout" not in chosen_among(server)
    assert "Beside it runs http://127.0.0.1:1/: name that one" in chosen_among(server)
    # A terminal of JupyterLab belongs to that server, wherever it is.
    server, _ = connect(environ={"JUPYTER_SERVER_URL": peer.url})
    assert (server.url, server.token, server.found) == (peer.url, "secret", "the server of this terminal")
    assert chosen_among(server) == ""
    # A folder of another user is none of ours.
    monkeypatch.setattr(os, "geteuid", lambda: runtime.stat().st_uid + 1)
    assert connect(environ={})[0].url == peer.url


def test_a_folder_that_is_gone_is_no_reason_to_fail(peer, runtime_dir, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    announce(runtime_dir, peer)
    assert connect(environ={})[0].url == peer.url


def test_the_error_says_what_was_looked_at_and_how_to_start_one(peer, runtime_dir):
    with pytest.raises(ServerUnreachable, match=r"no Jupyter Server of yours.*jupyter edt"):
        connect(environ={})
    announce(runtime_dir, peer, name="a", url=peer.url.replace("/base/", "/other/"))
    announce(runtime_dir, peer, name="b", token="wrong")
    with pytest.raises(ServerUnreachable) as refused:
        connect(environ={})
    assert "runs without jupyter-edt" in refused.value.message
    assert "does not accept this token" in refused.value.message
    assert "jupyter edt" in refused.value.hint


def test_make_lab_is_named_in_a_checkout(runtime_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ServerUnreachable) as refused:
        connect(environ={})
    assert "make lab" not in refused.value.hint
    (tmp_path / "jupyter_ext" / "edt_jupyter").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    with pytest.raises(ServerUnreachable, match=r"Start one with: jupyter lab, or jupyter edt"):
        connect(environ={})
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    with pytest.raises(ServerUnreachable, match=r"Start one with: make lab, or jupyter edt"):
        connect(environ={})


def test_a_named_server_is_never_replaced_by_another(peer, runtime_dir):
    announce(runtime_dir, peer)
    with pytest.raises(ServerUnreachable, match=r"http://127.0.0.1:1/ does not answer"):
        connect("http://127.0.0.1:1", "secret")
    with pytest.raises(NotAllowed):
        connect(peer.url, "wrong")
    with pytest.raises(ServerUnreachable, match="is not the address"):
        connect("ftp://x/")


def test_what_answers_but_is_not_ours(peer):
    peer.on("GET", "", lambda _: (200, b"<html>login</html>"))
    with pytest.raises(ServerUnreachable, match="did not send JSON"):
        connect(peer.url, peer.token)
    peer.on("GET", "", {"name": "other"})
    with pytest.raises(ServerUnreachable, match="another version"):
        connect(peer.url, peer.token)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("127.0.0.1:8888", "http://127.0.0.1:8888/"),
        ("http://h:1/lab", "http://h:1/"),
        ("http://h:1/user/ann/tree/x", "http://h:1/user/ann/"),
        ("https://h/user/ann/edt/api/jobs", "https://h/user/ann/"),
        ("https://h/services/edt/", "https://h/services/edt/"),
        ("https://h/services/edt/edt/api/jobs", "https://h/services/edt/"),
        ("https://h/user/lab/lab/tree/a.ipynb", "https://h/user/lab/"),
        ("http://h/?token=t", "http://h/"),
    ],
)
def test_addresses_as_people_have_them(given, url):
    assert clean_url(given)[0] == url


def test_running_servers_agree_with_jupyter_servers_own_list(peer, runtime_dir):
    from jupyter_server.serverapp import list_running_servers

    announce(runtime_dir, peer)
    announce(runtime_dir, peer, pid=dead_pid())
    ours = [(s.pid, s.url, s.token) for s in running_servers()]
    assert len(list(runtime_dir.iterdir())) == 2, "looking must not delete anything"
    assert ours == [(s["pid"], s["url"], s["token"]) for s in list_running_servers(str(runtime_dir))]


def test_client_says_whom_it_talks_to(peer):
    with Client(peer.url, peer.token) as client:
        assert repr(client) == f"Client of {peer.url} (jupyter-edt 0.1.0, user ann)"
