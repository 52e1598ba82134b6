"""What runs a job, said in Python, at a prompt and in a cell."""

import subprocess
import sys

import msgspec
import pytest
from IPython.core.interactiveshell import InteractiveShell

from edt_sdk import InvalidRequest, PackageError, Unprocessable
from edt_sdk.schemas.job import JobSpec


@pytest.fixture
def accepting(peer, make_view):
    peer.on("POST", "jobs", lambda _: (201, msgspec.to_builtins(make_view())))
    return peer


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "tools"
    made.mkdir()
    (made / "run.sh").write_text("echo hi\n")
    return made


def spec_of(peer):
    body = next(request.body for request in reversed(peer.requests) if request.method == "POST")
    return msgspec.json.decode(body.partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0], type=JobSpec)


def test_a_framework_and_a_data_folder(accepting, client, folder):
    (folder / "train.py").write_text("# FabricModel")
    client.submit(folder, framework="distPyTorch", max_workers=3, data_path="mnist/raw", args=["--x"])
    spec = spec_of(accepting)
    assert (spec.framework, spec.main, spec.data_path, spec.args) == ("distPyTorch", "train.py", "mnist/raw", ("--x",))
    client.submit(folder)
    assert spec_of(accepting).framework == "edtPyTorch"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("bash run.sh $RANK", ("bash", "-c", "bash run.sh $RANK")),
        (["bash", "run.sh"], ("bash", "run.sh")),
    ],
)
def test_a_command_needs_no_script(accepting, client, folder, command, words):
    client.submit(folder, framework="PyTorch", command=command)
    spec = spec_of(accepting)
    assert (spec.command, spec.main, spec.name) == (words, "", "tools")


@pytest.mark.parametrize(
    ("wrong", "cls", "words"),
    [
        ({"framework": "Caffe"}, Unprocessable, "There is no framework 'Caffe'. Use one of edtPyTorch"),
        ({"command": "ls"}, Unprocessable, "framework='PyTorch'"),
        ({"command": "ls", "framework": "PyTorch", "args": ["x"]}, InvalidRequest, "its arguments in itself"),
        ({"framework": "PyTorch"}, PackageError, "no .py file"),
        ({"framework": "PyTorch", "command": "ls", "data_path": "../x"}, InvalidRequest, "data_path"),
        ({"framework": "PyTorch", "command": "curl -H 'token {token}'"}, InvalidRequest, "command has the token"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_sent(accepting, client, folder, wrong, cls, words):
    if "command" in wrong:
        wrong = {**wrong, "command": wrong["command"].replace("{token}", accepting.token)}
    if "framework" in wrong and "command" not in wrong and wrong["framework"] != "PyTorch":
        (folder / "train.py").write_text("# FabricModel")
    with pytest.raises(cls, match=words):
        client.submit(folder, **wrong)
    assert not any(request.method == "POST" for request in accepting.requests)


def test_at_a_prompt(accepting, folder, monkeypatch):
    monkeypatch.setenv("EDT_URL", accepting.url)
    monkeypatch.setenv("EDT_TOKEN", accepting.token)
    words = ("--framework", "PyTorch", "--command", "bash run.sh 'a b'", "--data-path", "mnist", "--max-workers", "2")
    done = subprocess.run(
        [sys.executable, "-m", "edt_sdk.cli", "submit", str(folder), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    spec = spec_of(accepting)
    assert (spec.framework, spec.command, spec.data_path, spec.max_workers) == (
        "PyTorch",
        ("bash", "-c", "bash run.sh 'a b'"),
        "mnist",
        2,
    )


def test_in_a_cell(accepting, folder, monkeypatch):
    monkeypatch.setenv("EDT_URL", accepting.url)
    monkeypatch.setenv("EDT_TOKEN", accepting.token)
    monkeypatch.setenv("EDT_NONINTERACTIVE", "1")
    shell = InteractiveShell.instance()
    shell.extension_manager.load_extension("edt_sdk")
    try:
        shell.run_cell(f"%edt_submit {folder} --framework PyTorch --command 'bash run.sh' --data-path mnist")
        spec = spec_of(accepting)
        assert (spec.framework, spec.command, spec.data_path) == ("PyTorch", ("bash", "-c", "bash run.sh"), "mnist")
        shell.run_cell_magic("edt_submit", "--framework distPyTorch --max-workers 2", "print('x')")
        assert (spec_of(accepting).framework, spec_of(accepting).main) == ("distPyTorch", "main.py")
        shell.magics_manager.registry["EdtMagics"]._session.client.close()
    finally:
        shell.extension_manager.unload_extension("edt_sdk")
        InteractiveShell.clear_instance()
