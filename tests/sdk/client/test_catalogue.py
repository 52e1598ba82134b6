"""Data sets and models from a notebook and from a shell, against a real server."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from edt_sdk import Client, Conflict, InvalidRequest, JobFailed, NotFound
from edt_sdk.cli import main
from edt_sdk.testing import LocalServer

SCRIPT = "import os, sys\nprint(sys.argv[1:], sorted(os.listdir(os.environ['DATA_DIR'])), flush=True)\n"


@pytest.fixture(scope="module")
def data_fs(tmp_path_factory):
    root = tmp_path_factory.mktemp("shared")
    (root / "mnist").mkdir()
    (root / "mnist" / "a.csv").write_text("1\n")
    return root


@pytest.fixture(scope="module")
def runs(tmp_path_factory, data_fs):
    """A server that runs jobs."""
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.data_fs": data_fs}
    server = LocalServer(tmp_path_factory.mktemp("runs"), slots=2, traits=traits).start()
    yield server
    server.stop()


@pytest.fixture
def client(runs):
    with Client(runs.url, runs.token) as made:
        yield made
        for model in made.models():
            made.delete_model(model.name, kind=model.kind)
        made.stop_all()
        for job in made.jobs():
            with suppress(JobFailed):  # this ended it
                job.wait(180)
        for dataset in made.datasets():
            made.delete_dataset(dataset.name)


@pytest.fixture
def folder(tmp_path):
    code = tmp_path / "net"
    (code / "data").mkdir(parents=True)
    (code / "go.py").write_text(SCRIPT)
    (code / "data" / ".hidden").write_text("1")
    (code / "data" / "b.bin").write_bytes(bytes(1000))
    return code


def test_what_is_here_is_sent_and_what_is_there_is_named(client, folder, data_fs):
    assert repr(client.datasets()) == "No data sets yet: client.add_dataset(name, folder) adds one."
    sent = client.add_dataset("sent", folder / "data", type="LMDB", description="bytes")
    assert (sent.mode, sent.files, sent.size, sent.type) == ("copy", 2, 1001, "LMDB")
    named = client.add_dataset("named", path="mnist")
    assert (named.mode, named.place) == ("reference", str(data_fs / "mnist"))
    assert [each.name for each in client.datasets()] == ["named", "sent"]
    assert "named  Any   reference  1" in repr(client.datasets())
    assert ">named</td>" in client.datasets()._repr_html_()
    with pytest.raises(Conflict, match="'sent' already"):
        client.add_dataset("sent", folder / "data")

    assert client.models()._repr_html_().startswith("<p>No models yet")
    model = client.add_model("net", folder, framework="PyTorch", args=["--x", "a b"], dataset="sent")
    assert (model.main, model.dataset, model.args) == ("go.py", "sent", ("--x", "a b"))
    job = client.train_model("net", max_workers=1, job_name="first").wait(180)
    assert (job.view.model, job.view.dataset, job.view.name) == ("net", "sent", "first")
    assert "['--x', 'a b'] ['.hidden', 'b.bin']" in job.logs()
    other = client.train_model("net", dataset="named", args=[]).wait(180)
    assert "[] ['a.csv']" in other.logs()
    assert [each.id for each in client.model("net").trainings] == [other.id, job.id]
    assert [each.id for each in client.dataset("named").jobs] == [other.id]
    assert client.update_model("net", max_workers=2).max_workers == 2
    assert "net   model  PyTorch    go.py  sent" in repr(client.models())
    plain = client.submit(folder / "go.py", framework="PyTorch", dataset="named", progress=False).wait(180)
    assert plain.view.dataset == "named"


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        (lambda c: c.add_dataset("x"), "Give one of source, path"),
        (lambda c: c.add_dataset("x", ".", path="mnist"), "not 2 of them"),
        (lambda c: c.add_dataset("x", "/nowhere"), "no folder or file '/nowhere'"),
        (lambda c: c.add_dataset("x y", path="mnist"), "no name for a data set"),
        (lambda c: c.add_model("x"), "Give one of source, path, template"),
        (lambda c: c.add_model("x", "/nowhere"), "no folder or file"),
        (lambda c: c.update_model("x", colour="red"), "has no argument 'colour'"),
        (lambda c: c.dataset(""), "is no name"),
    ],
)
def test_mistakes_are_said_before_anything_is_sent(client, verb, text):
    with pytest.raises(InvalidRequest, match=text):
        verb(client)


def test_names_travel_whole(client):
    with pytest.raises(NotFound, match=r"no data set 'a/b\?c'"):
        client.dataset("a/b?c")


def test_at_a_shell(client, runs, folder, capsys, monkeypatch):
    monkeypatch.setenv("EDT_URL", runs.url)
    monkeypatch.setenv("EDT_TOKEN", runs.token)

    def edt(*words):
        code = main(words)
        said = capsys.readouterr()
        return code, said.out.strip(), said.err.strip()

    assert edt("dataset", "add", "digits", "--path", "mnist", "--type", "CSV") == (0, "digits", "")
    assert edt("dataset", "list")[1].splitlines()[1].split() == [
        "digits",
        "CSV",
        "reference",
        "1",
        "2",
        "B",
        "0",
        "mnist",
    ]
    add = ("model", "add", "net", str(folder), "--framework", "PyTorch", "--dataset", "digits")
    assert edt(*add, "--hyperparameter", "epochs=3", "--", "--x", "1") == (0, "net", "")
    code, job, _ = edt("model", "train", "net", "--max-workers", "1")
    assert code == 0
    assert "['--x', '1'] ['a.csv']" in client.job(job).wait(180).logs()
    code, job, _ = edt("model", "train", "net", "--", "other")
    assert "['other']" in client.job(job).wait(180).logs()
    capsys.readouterr()  # the line of a wait
    assert edt("model", "update", "net", "--max-workers", "2", "--description", "d", "--", "third") == (0, "net", "")
    changed = client.model("net").model
    assert (changed.max_workers, changed.description, changed.args) == (2, "d", ("third",))
    assert changed.main != ""
    shown = json.loads(edt("model", "show", "net")[1])
    assert shown["model"]["hyperparameters"] == {"epochs": 3}
    assert len(shown["trainings"]) == 2
    assert json.loads(edt("model", "list", "-o", "json")[1])["models"][0]["trainings"] == 2
    assert edt("model", "list")[1].splitlines()[1].startswith("net   model")
    assert json.loads(edt("dataset", "show", "digits")[1])["files"] == [{"name": "a.csv", "size": 2}]
    assert edt("model", "add", "net", str(folder))[0] == 2
    code, _, said = edt("model", "train", "none")
    assert (code, said) == (2, "edt: There is no model 'none'. You have net.")
    assert edt("model", "add", "x", str(folder), "--hyperparameter", "epochs")[0] == 2
    assert edt("model", "delete", "net") == (0, "net", "")
    assert edt("dataset", "delete", "digits") == (0, "digits", "")
    with pytest.raises(SystemExit) as wrong:
        edt("dataset", "list", "--", "x")
    assert wrong.value.code == 2


def test_through_a_server_of_ones_own(client, runs, folder, tmp_path):
    """In client mode what is sent, and what the user's own server packs, is kept where the jobs run."""
    traits = {"EdtApp.remote_url": runs.url, "EdtApp.remote_token": runs.token}
    asks = LocalServer(tmp_path / "asks", slots=1, traits=traits).start()
    try:
        here = Client(asks.url, asks.token)
        here.add_dataset("sent", folder / "data")
        here.add_dataset("named", path="mnist")
        (asks.root / "own").mkdir()
        (asks.root / "own" / "c.txt").write_text("1")
        here._connection.json("POST", "datasets", body={"name": "own", "source": "own"})
        assert [each.name for each in client.datasets()] == ["named", "own", "sent"]
        assert [file.name for file in client.dataset("own").files] == ["c.txt"]
        here.add_model("net", folder, framework="PyTorch")
        job = here.train_model("net", dataset="own").wait(180)
        assert "['c.txt']" in job.logs()
        assert client.job(job.id).view.model == "net"
        with pytest.raises(Conflict):
            here._connection.json("POST", "datasets", body={"name": "own", "source": "own"})
        assert not (asks.data_dir / "catalogue").exists()
    finally:
        asks.stop()
