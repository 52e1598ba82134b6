"""Two people on one server: what eve's job can reach of bob's and of the server's, and what it costs bob's training."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Client, Job
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from edt_server.system.isolation import OPEN
from edt_server.system.processes import parent_of
from tests.e2e.harness import JOBS, Jobs, targets_of
from tests.packages import WRITES_WEIGHTS
from tests.sandboxes import needs_bubblewrap
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SECRET = "a secret of the server"
OWN = "end her own child"
# Accounts that every Debian has. A home folder of theirs is the system's.
ACCOUNTS = {"bob": "daemon", "eve": "games"}


def serve(root: Path, kind: str, **traits: object) -> LocalServer:
    """A server for several people: the token of a user is "<name>-secret"."""
    given = {
        "ServerApp.identity_provider_class": "tests.jupyter.users.Tokens",
        "EdtApp.threads_per_slot": 1,
        "EdtApp.isolation": kind,
        "EdtApp.admins": "bob",
        **traits,
    }
    config = root / "config" / "jupyter_server_config.py"
    config.parent.mkdir(exist_ok=True)
    uids = {name: pwd.getpwnam(account).pw_uid for name, account in ACCOUNTS.items()}
    config.write_text(f"c.EdtApp.account_of = {{**{uids}, 'mallory': 0}}.get\n")
    environ = {"PYTHONPATH": str(ROOT), "HUB_TOKEN": SECRET, "CUDA_VISIBLE_DEVICES": ""}
    return LocalServer(root, slots=3, app="edt serve", traits=given, token="bob-secret", environ=environ)


@pytest.fixture(scope="module", params=["same", "sandbox", "account"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    if request.param != "same":
        needs_bubblewrap(users=request.param == "sandbox")
    with serve(tmp_path_factory.mktemp(request.param), request.param) as server:
        yield server


# Nothing is kept from anybody without a sandbox: `test_what_eve_gets` shows that always.
SANDBOXED = pytest.mark.parametrize(
    "shared", ["sandbox", "account", pytest.param("same", marks=pytest.mark.long)], indirect=True, scope="module"
)


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
    job.wait(300, progress=False)
    assert job.view.state is JobState.FINISHED, str(job.logs())
    got = json.loads((Path(job.view.result_dir) / "got.json").read_text())
    if kind_of(shared) == "same":
        # So the attempts are real ones, and the server has said what this means. Some machines allow less anyway.
        machine = {"make a user namespace", "read a server's memory", "write into the interpreter"}
        assert {what for what, worked in got.items() if not worked} <= machine
        assert shared.log.read_text().count(OPEN) == 1
    else:
        # An account can make user namespaces, as everywhere on the machine, and what is not shown stays so in them.
        more = {"make a user namespace"} if kind_of(shared) == "account" else set()
        assert {what for what, worked in got.items() if worked} - more == {OWN}
        assert OPEN not in shared.log.read_text()
    check_account(shared, job, training, tmp_path)
    # Her own files are hers in either case, and what she wrote to /tmp is gone with the sandbox.
    assert (Path(job.view.result_dir) / "model" / "own.txt").read_text() == "mine"
    until(lambda: len(bob.commits(training)) > before + 2, "more updates of bob's")
    training.stop()


def check_account(server: LocalServer, job: Job, training: Job, code: Path) -> None:
    """Whose processes and files these are, and who cannot have any."""
    result = Path(job.view.result_dir)
    who = json.loads((result / "who.json").read_text())
    if kind_of(server) != "account":
        assert who["uid"] == result.stat().st_uid == os.getuid()
        return
    eve = pwd.getpwnam(ACCOUNTS["eve"])
    assert (who["uid"], who["gid"], who["home"]) == (eve.pw_uid, eve.pw_gid, eve.pw_dir)
    assert set(who["groups"]) == set(os.getgrouplist(eve.pw_name, eve.pw_gid))
    # A script of WMLA's builds RESULT_DIR from the owner's name.
    assert (who["USER"], who["LOGNAME"], who["USER_UID"]) == ("eve", eve.pw_name, str(eve.pw_uid))
    assert {path.lstat().st_uid for path in (result, *result.rglob("*"))} == {eve.pw_uid}
    bob = pwd.getpwnam(ACCOUNTS["bob"])
    worker = training.workers()[0]["pid"]
    assert os.stat(f"/proc/{worker}").st_uid == bob.pw_uid
    assert os.stat(f"/proc/{parent_of(worker)}").st_uid == os.getuid()
    (code / "train.py").write_text("pass")
    for name, why in (
        ("ann", "ann has no account on this server's machine"),
        ("mallory", "No job runs as the account"),
    ):
        with pytest.raises(EdtError, match=why):
            Client(server.url, f"{name}-secret").submit(code, main="train.py", framework="PyTorch", progress=False)


def test_admins_are_told_what_same_means_and_nobody_else(shared: LocalServer) -> None:
    bob, eve = (Client(shared.url, f"{name}-secret").cluster() for name in ("bob", "eve"))
    assert bob["warnings"] == ([OPEN] if kind_of(shared) == "same" else [])
    assert ("Warning: Jobs of several people run as" in str(bob)) is (kind_of(shared) == "same")
    assert eve["warnings"] == []


def resumed_on_another_server(jobs: Jobs, job: Job) -> None:
    """Suspend a training at its second epoch, and resume it from the first one when its server was killed."""
    gate = Path(job.view.result_dir) / "_submitted_code" / "gates" / "hold-1"
    until(lambda: "epoch-1" in [checkpoint["name"] for checkpoint in job.checkpoints()], "the first epoch")
    jobs.server.kill()
    jobs.server.start()
    job = jobs.server.client().job(job.id)
    job.suspend()
    # The server may not have found it again yet, and two updates are soon over.
    told = gate.with_name("told-1")
    told.touch()
    gate.unlink()
    until(lambda: job.refresh().state is JobState.SUSPENDED, "the suspension")
    told.unlink()
    jobs.server.kill()
    jobs.server.start()
    jobs.server.client().job(job.id).resume(checkpoint="epoch-1")


@SANDBOXED
def test_a_training_in_a_sandbox_has_the_same_bits_and_leaves_nothing(shared: LocalServer, tmp_path: Path) -> None:
    jobs = Jobs(shared)
    arguments = ["--epochs", "2", "--samples", "60", "--checkpoints", "1"]
    if kind_of(shared) == "account":
        code = shutil.copytree(JOBS, tmp_path / "code")
        (code / "gates").mkdir()
        (code / "gates" / "hold-1").touch()
        arguments += ["--gates", "gates"]
        job = jobs.client.submit(code, main="cnn.py", args=arguments, max_workers=2, progress=False)
        resumed_on_another_server(jobs, job)
        jobs = Jobs(shared)
        job = jobs.client.job(job.id)
    else:
        job = jobs.submit("cnn.py", *arguments, max_workers=2)
    assert job.wait(300, progress=False).view.state is JobState.FINISHED
    # One reference for both kinds, whichever ran first.
    digest = jobs.final_hash(job)
    reference = Path(shared.root).parent / "reference.txt"
    if not reference.exists():
        reference.write_text(digest)
    assert digest == reference.read_text()
    until(lambda: not (jobs.private(job) / "tmp").exists(), "the end of its temporary files")
    assert not list(Path("/dev/shm").glob(f"edt-*-{job.id}"))


START = """
import json, os, pathlib, sys
found = {"optimize": sys.flags.optimize, "hash": os.environ["PYTHONHASHSEED"]}
pathlib.Path(os.environ["RESULT_DIR"], "started.json").write_text(json.dumps(found))
"""
OUTSIDE = """
import pathlib
pathlib.Path(__file__).with_name("outside.txt").write_text("eve was here")
"""


@SANDBOXED
def test_variables_that_start_other_code_start_it_inside(shared: LocalServer, tmp_path: Path) -> None:
    eve = Client(shared.url, "eve-secret")
    (tmp_path / "train.py").write_text(START)
    (tmp_path / "sitecustomize.py").write_text(OUTSIDE)
    options = {"main": "train.py", "framework": Framework.PYTORCH, "progress": False}
    first = eve.submit(tmp_path, **options).wait(300, progress=False)
    planted = Path(first.view.result_dir) / "_submitted_code" / "sitecustomize.py"
    planted.with_name("outside.txt").unlink(missing_ok=True)
    # Her second job cannot see the folder of the first, but its zygote could.
    second = eve.submit(tmp_path, env={"PYTHONPATH": str(planted.parent), "PYTHONOPTIMIZE": "1"}, **options)
    assert second.wait(300, progress=False).view.state is JobState.FINISHED, str(second.logs())
    found = json.loads((Path(second.view.result_dir) / "started.json").read_text())
    assert found == {"optimize": 1, "hash": "0"}
    assert planted.with_name("outside.txt").exists() is (kind_of(shared) == "same")


PREDICTOR = """
import os

class Predictor:
    def __init__(self, model_dir, params):
        self.model_dir = model_dir

    def predict(self, inputs):
        return [[each, os.getuid(), os.path.exists(each)] for each in inputs]
"""


def test_a_deployment_answers_from_where_its_replicas_are_kept(shared: LocalServer, tmp_path: Path) -> None:
    bob = shared.client()
    (tmp_path / "train.py").write_bytes(WRITES_WEIGHTS)
    (tmp_path / "predictor.py").write_text(PREDICTOR)
    job = bob.submit(tmp_path, main="train.py", args=["w"], framework="PyTorch", progress=False)
    made = bob.deploy(bob.register(job.wait(120, progress=False), "where")).wait_ready(120)
    store = str(shared.data_dir / "edt.sqlite")
    ((_, uid, there),) = made.predict([store])
    account = kind_of(shared) == "account"
    assert uid == (pwd.getpwnam(ACCOUNTS["bob"]).pw_uid if account else os.getuid())
    assert there == (kind_of(shared) == "same")
    made.delete()
    until(lambda: all(each.state.final for each in bob.jobs() if each.view.framework == "serve"), "its replicas' end")
