"""Versions of models from Python and from a shell, against a real server. Plain scripts write the weights: no torch."""

from __future__ import annotations

import json
import zipfile

import pytest

from edt_sdk import Client, Conflict, InvalidRequest, NotFound, PackageError, Unprocessable
from edt_sdk.cli import main
from edt_sdk.schemas.serving.versions import VersionReference
from edt_sdk.testing import LocalServer

SCRIPT = """
import os, sys
from pathlib import Path
train = Path(os.environ["RESULT_DIR"], "model", "train")
train.mkdir(parents=True)
(train / "model_epoch_final.pth").write_text(sys.argv[1])
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.warm_workers": 0}
    server = LocalServer(tmp_path_factory.mktemp("versions"), slots=2, traits=traits)
    with server, Client(server.url, server.token) as made:
        yield made


@pytest.fixture
def train(client, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return lambda word: client.submit(tmp_path / "train.py", args=[word], framework="PyTorch", progress=False).wait(
        300, progress=False
    )


@pytest.fixture
def edt(client, capsys):
    """Run a command, and return its exit code and what it has printed."""

    def run(*words):
        try:
            code = main(["version", *map(str, words), "--url", client.url, "--token", client.server.token])
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


def test_versions_in_python(client, train, tmp_path):
    assert repr(client.versions()) == "No versions yet: client.register(job, name) makes one."
    job = train("a")
    version = client.register(job, "digits", description="first", tags="x, y", alias="champion")
    assert (version.id, version.aliases, version.tags) == ("digits/1", ("champion",), ("x", "y"))
    assert client.register("train", "digits").id == "digits/1", "the job by its name"
    assert repr(version).startswith("digits/1 @champion\n")
    lines = dict(line.split(None, 1) for line in version.lineage().splitlines() if line.strip())
    assert lines["job"] == f"train ({job.id})"
    assert (lines["script"], lines["mode"], lines["description"]) == ("train.py a", "PyTorch", "first")
    assert client.version("digits@champion").view == client.version("digits").view == version.view
    assert version.update(description="").description == ""
    with zipfile.ZipFile(version.download(tmp_path / "there")) as archive:
        assert archive.read("weights.pth") == b"a"
    assert "digits/1" in repr(client.versions("digits"))
    assert "<table" in client.versions()._repr_html_()
    assert "<table" in version._repr_html_()
    with pytest.raises(Conflict, match="digits/1 is digits@champion"):
        version.delete()
    assert version.remove_alias("champion").aliases == ()
    version.delete()
    with pytest.raises(NotFound, match="There is no version of 'digits'"):
        client.version("digits")
    with pytest.raises(AttributeError, match="Version has no 'colour'"):
        print(version.colour)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder that answers, below the current one. What no job needs is in it too."""
    folder = tmp_path / "work" / "mine"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "__pycache__" / "a.pyc").write_bytes(b"")
    (folder / "predictor.py").write_text("class Predictor: ...")
    monkeypatch.chdir(folder.parent)
    return folder


def test_a_version_of_a_folder(client, train, mine):
    version = client.register(mine, "mine", description="by hand", tags="x", alias="best")
    assert (version.id, version.job, version.sha256, version.tags) == ("mine/1", "", "", ("x",))
    (mine / "__pycache__" / "b.pyc").write_bytes(b"")
    assert [client.register(each, "mine").id for each in ("./mine", "mine/", f"{mine}/")] == ["mine/1"] * 3
    lines = dict(line.split(None, 1) for line in version.lineage().splitlines() if line.strip())
    assert lines["job"] == "none: it was made of a folder"
    assert {"weights", "seed", "mode"}.isdisjoint(lines)
    assert "a folder" in repr(client.versions("mine"))
    assert version.example() is None
    for refused in (version.reproduce, lambda: version.compare(train("d")), lambda: version.load_into(None)):
        with pytest.raises(Conflict, match="mine/1 was made of a folder"):
            refused()
    with pytest.raises(InvalidRequest, match="no epochs"):
        client.register("mine/", "mine", epoch=1)
    with pytest.raises(PackageError, match="no folder or file"):
        client.register("./ours", "ours")
    (mine / "predictor.py").rename(mine / "train.py")
    with pytest.raises(Unprocessable, match="no code that could answer"):
        client.register(mine, "mine")


def test_the_name_of_a_job_may_have_a_slash(client, train):
    again = client.register(train("e"), "slashed").reproduce()
    again.wait(300, progress=False)
    assert again.job.name == "slashed/1 again"
    assert client.register("slashed/1 again", "slashed").id == "slashed/1"


def test_a_folder_at_a_shell(client, edt, mine, monkeypatch):
    assert edt("register", "./mine", "shell", "--alias", "best")[:2] == (0, "shell/1\n")
    monkeypatch.chdir(mine)
    assert edt("register", ".", "shell")[:2] == (0, "shell/1\n")
    assert "made of a folder" in edt("show", "shell@best")[1]
    assert "made of a folder" in edt("reproduce", "shell")[2]


def test_versions_at_a_shell(client, train, edt, tmp_path):
    job = train("b")
    assert edt("register", job.id, "net", "--description", "second", "--alias", "best")[:2] == (0, "net/1\n")
    assert edt("list", "net")[1].splitlines()[1].split()[:2] == ["net/1", "best"]
    assert json.loads(edt("list", "net", "-o", "json")[1])["versions"][0]["description"] == "second"
    assert "SHA-256" in edt("show", "net@best")[1]
    assert edt("alias", "net", "champion")[1] == "net/1\n"
    assert edt("alias", "net", "best", "--remove")[0] == 0
    assert edt("update", "net/1", "--tags", "x,y")[0] == 0
    assert client.version("net").view.aliases == ("champion",)
    assert client.version("net").view.tags == ("x", "y")
    code, said, _ = edt("reproduce", "net", "--wait")
    assert (code, said.split(": ")[1]) == (0, "equal, bit by bit.\n")
    assert edt("compare", "net", job.id)[:2] == (0, "The weights are equal.\n")
    other = edt("compare", "net", train("c").id)
    assert other[:2] == (1, "Other weights. What differs: the arguments.\n")
    assert edt("download", "net", "-d", tmp_path)[1] == f"{tmp_path / 'net-1.zip'}\n"
    assert edt("delete", "net/1")[0] == 2
    assert edt("alias", "net", "champion", "--remove")[0] == 0
    assert edt("delete", "net/1")[:2] == (0, "net/1\n")


@pytest.mark.parametrize(
    ("text", "name", "which"),
    [
        ("digits", "digits", "@newest"), ("digits/3", "digits", "3"), ("digits@best", "digits", "@best"),
        ("a.b-c_d/12", "a.b-c_d", "12"),
    ],
)  # fmt: skip
def test_a_text_names_a_version(text, name, which):
    found = VersionReference.of(text)
    assert (found.name, found.which) == (name, which)


@pytest.mark.parametrize("text", ["", "/3", "@best", "a/b", "a/3/4", "a@", "a/", "a/3@b", "a/1234567890"])
def test_a_text_that_names_no_version_is_refused(text):
    with pytest.raises(InvalidRequest, match="names no version"):
        VersionReference.of(text)
