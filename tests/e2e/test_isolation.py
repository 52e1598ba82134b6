"""Two people on one server: what eve's job can reach of bob's and of the server's, and what it costs bob's training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Client
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from edt_server.system.isolation import OPEN
from tests.e2e.harness import JOBS, Jobs, targets_of
from tests.sandboxes import needs_bubblewrap
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SECRET = "a secret of the server"
OWN = "end her own child"


def serve(root: Path, kind: str, **traits: object) -> LocalServer:
    """A server for several people: the token of a user is "<name>-secret"."""
    given = {
        "ServerApp.identity_provider_class": "tests.jupyter.users.Tokens",
        "EdtApp.threads_per_slot": 1,
        "EdtApp.isolation": kind,
        "EdtApp.admins": "bob",
        **traits,
    }
    environ = {"PYTHONPATH": str(ROOT), "HUB_TOKEN": SECRET, "CUDA_VISIBLE_DEVICES": ""}
    return LocalServer(root, slots=3, app="edt serve", traits=given, token="bob-secret", environ=environ)


@pytest.fixture(scope="module", params=["same", "sandbox"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    if request.param == "sandbox":
        needs_bubblewrap()
    with serve(tmp_path_factory.mktemp(request.param), request.param) as server:
        yield server


def kind_of(server: LocalServer) -> str:
    return str(server.traits["EdtApp.isolation"])


def test_what_eve_gets(shared: LocalServer, tmp_path: Path) -> None:
    bob, eve = Jobs(shared), Client(shared.url, "eve-secret")
    training = bob.submit("forever.py", max_workers=2, name="bob")
    until(lambda: len(bob.commits(training)) > 2, "bob's first updates")
    shutil.copy(JOBS / "eve.py", tmp_path)
    (tmp_path / "targets.json").write_text(json.dumps(targets_of(bob, training, SECRET)))
    before = len(bob.commits(training))
    job = eve.submit(tmp_path, main="eve.py", args=["targets.json"], framework=Framework.PYTORCH, progress=False)
    job.wait(120, progress=False)
    assert job.view.state is JobState.FINISHED, str(job.logs())
    got = json.loads((Path(job.view.result_dir) / "got.json").read_text())
    if kind_of(shared) == "same":
        # So the attempts are real ones, and the server has said what this means. Some machines allow less anyway.
        machine = {"make a user namespace", "read a server's memory", "write into the interpreter"}
        assert {what for what, worked in got.items() if not worked} <= machine
        assert shared.log.read_text().count(OPEN) == 1
    else:
        assert {what for what, worked in got.items() if worked} == {OWN}
        assert OPEN not in shared.log.read_text()
    # Her own files are hers in either case, and what she wrote to /tmp is gone with the sandbox.
    assert (Path(job.view.result_dir) / "model" / "own.txt").read_text() == "mine"
    until(lambda: len(bob.commits(training)) > before + 2, "more updates of bob's")
    training.stop()


def test_admins_are_told_what_same_means_and_nobody_else(shared: LocalServer) -> None:
    bob, eve = (Client(shared.url, f"{name}-secret").cluster() for name in ("bob", "eve"))
    assert bob["warnings"] == ([OPEN] if kind_of(shared) == "same" else [])
    assert ("Warning: Jobs of several people run as" in str(bob)) is (kind_of(shared) == "same")
    assert eve["warnings"] == []


def test_a_training_in_a_sandbox_has_the_same_bits_and_leaves_nothing(shared: LocalServer) -> None:
    jobs = Jobs(shared)
    job = jobs.submit("cnn.py", "--epochs", "2", "--samples", "60", max_workers=2)
    assert job.wait(120, progress=False).view.state is JobState.FINISHED
    # One reference for both kinds, whichever ran first.
    digest = jobs.final_hash(job)
    reference = Path(shared.root).parent / "reference.txt"
    if not reference.exists():
        reference.write_text(digest)
    assert digest == reference.read_text()
    until(lambda: not (jobs.private(job) / "tmp").exists(), "the end of its temporary files")
    assert not list(Path("/dev/shm").glob(f"edt-*-{job.id}"))
