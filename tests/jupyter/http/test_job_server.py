"""`jupyter edt serve`, started for real: jobs for several people, and nothing else of a Jupyter Server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest
import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from edt_jupyter.http.identity import hub_service, several_people
from edt_sdk import Client
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.jupyter.users import Tokens
from tests.waiting import LIMIT

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
# What Jupyter Server, JupyterLab and the usual extensions serve. With the full server ann may use all of it.
CLOSED = [
    ("GET", "api/contents"),
    ("GET", "api/contents/server.log"),
    ("PUT", "api/contents/new.txt"),
    ("DELETE", "api/contents/server.log"),
    ("GET", "files/server.log"),
    ("GET", "view/server.log"),
    ("GET", "nbconvert/html/server.log"),
    ("GET", "api/nbconvert"),
    ("GET", "api/terminals"),
    ("POST", "api/terminals"),
    ("GET", "terminals/websocket/1"),
    ("GET", "api/kernels"),
    ("POST", "api/kernels"),
    ("GET", "api/kernelspecs"),
    ("GET", "api/sessions"),
    ("POST", "api/sessions"),
    ("GET", "api/config/notebook"),
    ("GET", "api/status"),
    ("GET", "api/me"),
    ("GET", "api"),
    ("GET", "api/spec.yaml"),
    ("POST", "api/shutdown"),
    ("POST", "api/security/csp-report"),
    ("POST", "api/events"),
    ("GET", "metrics"),
    ("GET", "lab"),
    ("GET", "lab/api/settings"),
    ("GET", "lab/api/workspaces"),
    ("GET", "tree"),
    ("GET", "lsp/status"),
    ("GET", "static/style/bootstrap.min.css"),
    ("GET", ""),
]


def ask(server, method, path, user="ann", **kwargs):
    headers = {"Authorization": f"token {user}-secret"} if user else {}
    return requests.request(method, server.url + path, headers=headers, timeout=LIMIT, allow_redirects=False, **kwargs)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service for several people, in a configuration that asks for more than it may serve."""
    traits = {
        "ServerApp.identity_provider_class": "tests.jupyter.users.Tokens",
        "ServerApp.jpserver_extensions": "{'jupyter_server_terminals': True, 'jupyterlab': True, 'notebook': True}",
        "ServerApp.extra_services": "['jupyter_server.services.contents.handlers']",
        "ServerApp.terminals_enabled": True,
        "EdtApp.isolation": "same",
    }
    root = tmp_path_factory.mktemp("service")
    server = LocalServer(
        root, slots=1, app="edt serve", traits=traits, token="ann-secret", environ={"PYTHONPATH": ROOT}
    )
    with server:
        yield server


def test_nothing_but_jobs_is_served(served):
    for user in ("ann", ""):
        answers = {(method, path): ask(served, method, path, user) for method, path in CLOSED}
        # Without a login Jupyter sends a page's reader to the page of the login.
        wanted = (403, 404) if user else (302, 403, 404)
        wrong = {route: answer.status_code for route, answer in answers.items() if answer.status_code not in wanted}
        assert wrong == {}
    assert ask(served, "GET", "edt/api/").ok
    log = served.log.read_text()
    assert " 404 GET /lab " in log
    assert " 404 GET / " not in log  # a Hub asks for this every minute


def test_jobs_are_served_to_each_of_their_users(served, tmp_path):
    (tmp_path / "run.py").write_text("print('trained')")
    ann, bob = (Client(served.url, f"{name}-secret") for name in ("ann", "bob"))
    heard = asyncio.run(states_while(served, lambda: submitted(ann, tmp_path)))
    assert heard[-1] == "FINISHED"
    (job,) = ann.jobs()
    assert (job.view.owner, [line.text for line in job.logs().lines]) == ("ann", ["trained"])
    assert bob.jobs() == []
    assert ask(served, "GET", f"edt/api/jobs/{job.id}", "bob").status_code == 403
    assert ask(served, "GET", f"edt/api/jobs/{job.id}", "").status_code == 403
    # IBM's clients log on here too.
    logon = requests.get(f"{served.url}auth/v1/logon", auth=("ann", "ann-secret"), timeout=LIMIT)
    headers = {"X-Auth-Token": logon.json()["accessToken"]}
    execs = requests.get(f"{served.url}platform/rest/deeplearning/v1/execs", headers=headers, timeout=LIMIT)
    assert [each["id"] for each in execs.json()] == [job.id]


def submitted(client, folder):
    job = client.submit(folder, main="run.py", framework="PyTorch", progress=False)
    assert job.wait(LIMIT, progress=False).view.state is JobState.FINISHED


async def states_while(server, work):
    """The states of jobs that the event stream tells while `work` is done."""
    url = f"ws{server.url.removeprefix('http')}api/events/subscribe"
    connection = await websocket_connect(HTTPRequest(url, headers={"Authorization": "token ann-secret"}))
    done = asyncio.create_task(asyncio.to_thread(work))
    heard = []
    async with asyncio.timeout(LIMIT):
        while not heard or not JobState(heard[-1]).final:
            heard.append(json.loads(await connection.read_message())["state"])
        await done
    connection.close()
    while await connection.read_message() is not None:  # until it is closed
        pass
    return heard


@pytest.mark.parametrize("path", ["previews", "submissions"])
def test_the_files_of_the_service_are_not_packed(served, path):
    for source in ("", "server.log", "edt"):
        answer = ask(served, "POST", f"edt/api/{path}", json={"source": source, "spec": {"max_workers": 1}})
        assert (answer.status_code, answer.json()["resource"]) == (403, "contents"), answer.text
    for path, entry in (("models", {"name": "m"}), ("datasets", {"name": "d"})):
        answer = ask(served, "POST", f"edt/api/{path}", json={**entry, "source": ""})
        assert answer.status_code == 403, answer.text


def environment(tmp_path, **more):
    own = {name: str(tmp_path) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "HOME")}
    return {"PATH": os.environ["PATH"], **own, **more}


SERVICE = {
    "JUPYTERHUB_SERVICE_NAME": "edt",
    "JUPYTERHUB_SERVICE_PREFIX": "/services/edt/",
    "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:1",
    "JUPYTERHUB_API_TOKEN": "secret",
}


# `jupyter edt` in an environment without jupyterhub.
WITHOUT_JUPYTERHUB = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *of: None if name == "jupyterhub" else find(name, *of)
from edt_jupyter.app import main
main()
"""


def started(*words, env, program=("-m", "jupyter")):
    root = ["--allow-root"] if os.geteuid() == 0 else []
    traits = ["--ServerApp.open_browser=False", "--ServerApp.port_retries=0"]
    command = [sys.executable, *program, *words, *root, *traits]
    return subprocess.run(command, env=env, cwd=env["HOME"], capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.parametrize("words", [("server",), ("edt",)])
def test_a_whole_server_does_not_start_as_a_service_of_a_hub(tmp_path, words):
    done = started(*words, env=environment(tmp_path, **SERVICE))
    assert done.returncode == 1
    assert "Start it with `jupyter edt serve` instead" in done.stderr
    assert not (tmp_path / "edt").exists()


def test_a_service_without_jupyterhub_says_what_to_install(tmp_path):
    done = started("serve", env=environment(tmp_path, **SERVICE), program=("-c", WITHOUT_JUPYTERHUB))
    assert done.returncode == 1
    assert "pip install jupyterhub" in done.stderr


@pytest.mark.parametrize(
    ("variables", "service"),
    [
        ({}, False),
        (SERVICE, True),
        # A service that an administrator starts, and the server that the Hub starts for ann.
        ({name: value for name, value in SERVICE.items() if name != "JUPYTERHUB_SERVICE_NAME"}, True),
        ({"JUPYTERHUB_SERVICE_PREFIX": "/user/ann/", "JUPYTERHUB_API_TOKEN": "s", "JUPYTERHUB_USER": "ann"}, False),
    ],
)
def test_what_is_a_service_and_what_is_ones_own(monkeypatch, variables, service):
    for name in [*SERVICE, "JUPYTERHUB_USER"]:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub_service() is service
    assert several_people(Tokens()) is ("JUPYTERHUB_USER" not in variables)
