"""Files of a user's own server become a job, also where another runs it; and a notebook knows which file it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import requests

from demo.live_notebook import LiveNotebook, ServerKernel
from edt_sdk.testing import LocalServer

ONE = {"EdtApp.threads_per_slot": 1}
TRAIN = "# FabricModel\nimport helper\nprint('says', helper.WORD)\n"


def post(server: LocalServer, path: str, body: dict[str, Any]) -> requests.Response:
    header = {"Authorization": f"token {server.token}"}
    return requests.post(f"{server.url}edt/api/{path}", json=body, headers=header, timeout=120)


def files_of(server: LocalServer) -> None:
    """A folder of the server's user that no other server has."""
    folder = server.root / "mine"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "helper.py").write_text("WORD = 'hello'\n")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """The server that runs the jobs, and has nobody's files."""
    with LocalServer(tmp_path_factory.mktemp("runs"), slots=2, traits=ONE) as server:
        yield server


@pytest.fixture(scope="module", params=["client mode", "follower"])
def asks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, runs: LocalServer
) -> Iterator[LocalServer]:
    """A user's own server, which runs none."""
    root = tmp_path_factory.mktemp("asks")
    if request.param == "client mode":
        server = asking(root, runs)
    else:
        server = LocalServer(root, slots=2, traits={**ONE, "EdtApp.data_dir": runs.data_dir})
        server.data_dir = runs.data_dir
    files_of(server)
    server.start()
    yield server
    server.stop(end_jobs=False)


def asking(root: Path, runs: LocalServer) -> LocalServer:
    """A server in client mode, not started."""
    traits: dict[str, object] = {"EdtApp.remote_url": runs.url, "EdtApp.remote_token": runs.token}
    return LocalServer(root, slots=1, traits=traits)


def test_they_are_packed_where_they_are_and_run_elsewhere(runs: LocalServer, asks: LocalServer) -> None:
    spec = {"max_workers": 2, "framework": "PyTorch", "name": "from a form"}
    looked = post(asks, "previews", {"source": "mine", "main": "train.py", "spec": spec})
    assert looked.status_code == 200, looked.text
    assert {"train.py", "helper.py"} <= {file["name"] for file in looked.json()["files"]}
    assert looked.json()["forecast"]["text"] == "It would start at once, on 2 of 2 slots (2 are free)."
    assert post(runs, "previews", {"source": "mine"}).status_code == 404, "that server does not have them"

    sent = post(asks, "submissions", {"source": "mine", "main": "train.py", "spec": spec})
    assert sent.status_code == 201, sent.text
    assert sent.headers["Location"] == f"/edt/api/jobs/{sent.json()['id']}"
    job = runs.client().job(sent.json()["id"]).wait(300, progress=False)
    assert (job.name, job.view.main) == ("from a form", "train.py")
    assert "says hello" in job.logs()

    # Cloned through the server that never ran it: the package is the other's, and so is the answer.
    again = {"source": {"job": job.id}, "spec": {"name": "again"}}
    assert {file["name"] for file in post(asks, "previews", again).json()["files"]} >= {"train.py", "helper.py"}
    sent = post(asks, "submissions", again)
    assert sent.status_code == 201, sent.text
    assert sent.headers["Location"] == f"/edt/api/jobs/{sent.json()['id']}"
    assert "says hello" in runs.client().job(sent.json()["id"]).wait(300, progress=False).logs()
    through_sdk = asks.client().job(job.id).clone(name="by the SDK", max_workers=1)
    assert (through_sdk.name, through_sdk.view.max_workers) == ("by the SDK", 1)
    assert "says hello" in through_sdk.wait(300, progress=False).logs()


def test_a_search_of_them_runs_elsewhere_too(runs: LocalServer, asks: LocalServer) -> None:
    settings = {"space": "lr=0.1|0.2", "metric": "loss", "algorithm": "grid"}
    spec = {"max_workers": 1, "framework": "PyTorch", "name": f"of-{asks.root.name}"}
    wanted = {"source": "mine", "main": "train.py", "spec": spec, "search": settings}
    looked = post(asks, "previews", wanted)
    assert looked.status_code == 200, looked.text
    assert looked.json()["forecast"]["text"].startswith("2 trials; the script says how long each trains. ")
    sent = post(asks, "searches/submissions", wanted)
    assert sent.status_code == 201, sent.text
    found = runs.client().search_named(sent.json()["id"])
    assert found.view.spec.job.name == spec["name"]
    found.stop()


def test_what_is_refused_there_is_said_here_in_the_same_words(asks: LocalServer) -> None:
    spec = {"max_workers": 1, "instance_group": "x"}
    for path in ("previews", "submissions"):
        refused = post(asks, path, {"source": "mine", "main": "train.py", "spec": spec})
        assert (refused.status_code, refused.json()["field"]) == (422, "instance_group")
        assert refused.json()["message"] == "There is no instance group 'x'."


def test_a_server_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    gone = LocalServer(tmp_path / "gone", slots=1).start()
    server = asking(tmp_path / "asks", gone)
    files_of(server)
    server.start()
    try:
        gone.stop()
        answer = post(server, "previews", {"source": "mine", "main": "train.py", "spec": {"max_workers": 1}})
    finally:
        server.stop(end_jobs=False)
    assert (answer.status_code, answer.json()["code"]) == (503, "server_unreachable")
    assert "does not answer" in answer.json()["message"]


class SessionKernel(ServerKernel):
    """A kernel that belongs to a notebook, as when a person opens it."""

    def __init__(self, server: LocalServer, path: str) -> None:
        super().__init__(server)
        self._sessions = f"{server.url}api/sessions"
        self._path = path

    def start_kernel(self, **_: object) -> None:
        body = {"path": self._path, "name": "", "type": "notebook", "kernel": {"name": "python3"}}
        answer = self._session.post(self._sessions, json=body, timeout=60)
        answer.raise_for_status()
        self.kernel_id = answer.json()["kernel"]["id"]


def test_a_notebook_submits_its_tagged_cells(runs: LocalServer) -> None:
    """Found by the kernel's id, at a place whose name the kernel is not told."""
    files_of(runs)
    make = nbformat.v4.new_code_cell
    cells = [
        make("%load_ext edt_sdk\nraise_if_run = 1"),
        make("# FabricModel\nimport helper\nprint('says', helper.WORD)", metadata={"tags": ["edt"]}),
        make("job = %edt_submit --notebook --framework PyTorch"),
        make("job.wait()\nprint(job.name, job.view.state)\nprint(job.logs())"),
    ]
    path = runs.root / "mine" / "my book.ipynb"
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbformat.write(notebook, path)
    kernel = SessionKernel(runs, "mine/my book.ipynb")
    try:
        LiveNotebook(notebook, km=kernel, timeout=120).execute()
    finally:
        kernel.shutdown_kernel()
    told = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    assert "my book FINISHED" in told
    assert "says hello" in told
