"""Versions of models from Python and from a shell, against a real server. Plain scripts write the weights: no torch."""

from __future__ import annotations

import json
import zipfile

import pytest

from edt_sdk import Client, Conflict, InvalidRequest, NotFound
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


def test_versions_at_a_shell(client, train, edt, tmp_path):
    job = train("b")
    assert edt("register", job.id, "net", "--description", "second", "--alias", "best")[:2] == (0, "net/1\n")
    assert edt("list")[1].splitlines()[1].split()[:2] == ["net/1", "best"]
    assert json.loads(edt("list", "-o", "json")[1])["versions"][0]["description"] == "second"
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
