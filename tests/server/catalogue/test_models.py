"""Models: where their code comes from, and that a training is an ordinary job that needs nothing of them any more."""

from __future__ import annotations

import json
import re

import pytest

from edt_sdk.schemas.catalogue import ModelChange, ModelTraining, NewDataset, NewModel
from edt_sdk.schemas.errors import Conflict, EdtError, InvalidRequest, NotFound, PackageError, TooLarge, Unprocessable
from edt_sdk.schemas.job import JobState
from tests.server.catalogue.test_datasets import archive
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio

# Says what it was given; as a script of WMLA's console does, it takes --train_dir and --weights.
CONSOLE = b"""
import json, os, sys
result = os.environ["RESULT_DIR"]
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
beside = os.path.dirname(given.get("--train_dir", ""))
print(json.dumps({
    "argv": sys.argv[1:],
    "parameters": json.load(open(os.path.join(beside, "pth_parameters.json"))),
    "weights": os.listdir(given["--weights"]) if "--weights" in given else None,
    "RESUME_WEIGHT_PATH": os.environ["RESUME_WEIGHT_PATH"],
    "files": sorted(name for name in os.listdir() if not name.startswith("__")),
}).replace(result, "RESULT_DIR"), flush=True)
"""
PLAIN = b"import sys\nprint(sys.argv[1:])\n"
HELPERS = ["edtcallback.py", "elog.py", "emetrics.py"]


async def said(service, view, state=JobState.FINISHED):
    """What a job's script printed, once it has ended."""
    await until_async(lambda: service.ended(view.id), "the job's end")
    now = await service.job("ann", view.id)
    paths = service.paths(await service.mine("ann", view.id))
    texts = {path.name: path.read_text() for path in sorted(paths.streams_dir.glob("*"))}
    assert now.state is state, (now.message, texts)
    return "".join(text for name, text in texts.items() if name.endswith("stdout"))


@pytest.fixture
def models(service):
    return service.catalogue.models


@pytest.fixture
def code(data_fs):
    folder = data_fs / "templates" / "digits"
    (folder / "parts").mkdir(parents=True)
    (folder / "main.py").write_bytes(CONSOLE)
    (folder / "parts" / "layers.py").write_text("WIDTH = 3\n")
    return folder


async def test_a_model_from_a_location_is_trained_with_its_data_set(service, models, code, data_fs):
    await service.catalogue.datasets.add("ann", NewDataset(name="digits", path="mnist", train="train"))
    new = NewModel(
        name="net",
        path="templates/digits",
        framework="PyTorch",
        dataset="digits",
        max_workers=2,
        args=("--epochs", "3"),
        hyperparameters={"epochs": 3, "optimizer": {"name": "SGD", "lr": 0.5}},
        description="Ein Netz",
    )
    made = await models.add("ann", new)
    assert (made.main, made.files, made.console, made.trainings) == ("main.py", 5, True, 0)
    assert made.origin == str(code)
    assert await models.list("ann") == [made]

    wanted = ModelTraining(name="first", hyperparameters={"epochs": 7, "train_batch_size": 20}, max_workers=1)
    view = await models.train("ann", "net", wanted)
    assert (view.model, view.dataset, view.name, view.framework) == ("net", "digits", "first", "PyTorch")
    assert (view.max_workers, view.args) == (1, ("--epochs", "3"))
    told = json.loads(await said(service, view))
    assert told["argv"] == ["--epochs", "3", "--train_dir", "RESULT_DIR/model"]
    assert told["parameters"] == {
        "train_data": f"{data_fs}/mnist/train",
        "epochs": 7,
        "optimizer": {"name": "SGD", "lr": 0.5},
        "train_batch_size": 20,
    }
    assert told["weights"] is None
    assert told["RESUME_WEIGHT_PATH"] == "null"
    assert told["files"] == sorted(["main.py", "parts", *HELPERS])

    second = await models.train("ann", "net", ModelTraining(dataset="", args=()))
    assert (second.dataset, second.name, second.max_workers, second.args) == ("", "net", 2, ())
    assert "train_data" not in json.loads(await said(service, second))["parameters"]
    details = await models.get("ann", "net")
    assert [job.id for job in details.trainings] == [second.id, view.id]
    assert details.model.trainings == 2
    assert [file.name for file in details.files] == sorted([*HELPERS, "main.py", "parts/layers.py"])


async def test_trainings_outlive_their_model(service, models, code):
    await models.add("ann", NewModel(name="net", path="templates/digits", framework="PyTorch"))
    view = await models.train("ann", "net", ModelTraining())
    await models.delete("ann", "net")
    assert await models.list("ann") == []
    assert json.loads(await said(service, view))["parameters"] == {}
    assert (await service.job("ann", view.id)).model == "net"
    # One of the same name is another one.
    await models.add("ann", NewModel(name="net", path="templates/digits", framework="PyTorch"))
    assert (await models.get("ann", "net")).trainings == ()


async def test_weights_of_its_own(service, models, code, tmp_path):
    (tmp_path / "w.pth").write_bytes(b"weights")
    await models.add("ann", NewModel(name="net", path="templates/digits", framework="PyTorch"))
    assert (await models.set_weights("ann", "net", tmp_path / "w.pth")).weights
    view = await models.train("ann", "net", ModelTraining())
    told = json.loads(await said(service, view))
    assert told["argv"][2:] == ["--weights", "RESULT_DIR/weights"]
    assert told["weights"] == ["model_epoch_final.pth"]
    assert told["RESUME_WEIGHT_PATH"].endswith("warm_start.pth")
    assert not (await models.set_weights("ann", "net", None)).weights
    assert json.loads(await said(service, await models.train("ann", "net", ModelTraining())))["weights"] is None


async def test_the_engine_of_one_training_is_another(service, models, data_fs):
    (data_fs / "plain.py").write_bytes(PLAIN)
    await models.add("ann", NewModel(name="net", path="plain.py", args=("a",)))
    assert (await models.get("ann", "net")).model.framework == "edtPyTorch"
    for framework in ("PyTorch", "distPyTorch", "torchrun"):
        view = await models.train("ann", "net", ModelTraining(framework=framework, max_workers=2, args=("b c", "d")))
        assert (view.framework, view.max_workers) == (framework, 2)
        assert "['b c', 'd']" in await said(service, view)


@pytest.mark.parametrize("kind", ["tar", "zip", "top", "script"])
async def test_code_that_is_uploaded(service, models, tmp_path, kind):
    upload = tmp_path / "upload"
    if kind == "script":
        upload.write_bytes(PLAIN)
    else:
        top = "net/" if kind == "top" else ""
        archive(upload, {f"{top}go.py": PLAIN, f"{top}a/x.py": b""}, kind="zip" if kind == "zip" else "tar")
    name = {"zip": "net.zip", "script": "go.py"}.get(kind, "net.tar.gz")
    made = await models.add("ann", NewModel(name="net", framework="PyTorch"), upload, name)
    assert made.main == "go.py"
    assert made.origin == f"upload {name}"
    assert await said(service, await models.train("ann", "net", ModelTraining(args=("x",)))) == "['x']\n"


async def test_models_of_a_template(service, models, code):
    template = NewModel(
        name="digits", kind="template", path="templates/digits", framework="PyTorch", hyperparameters={"epochs": 2}
    )
    await models.add("ann", template)
    made = await models.add("ann", NewModel(name="digits", template="digits", args=("x",)))
    assert (made.kind, made.template, made.framework) == ("model", "digits", "PyTorch")
    assert (made.hyperparameters, made.args, made.main) == ({"epochs": 2}, ("x",), "main.py")
    assert [(each.name, each.kind) for each in await models.list("ann")] == [
        ("digits", "model"),
        ("digits", "template"),
    ]
    await models.delete("ann", "digits", "template")
    # The model has a copy of its own, and may be what others are made of.
    again = await models.add("ann", NewModel(name="more", template="digits", main="parts/layers.py"))
    assert (again.main, again.console) == ("parts/layers.py", False)
    with pytest.raises(NotFound, match="no template 'nothing'"):
        await models.add("ann", NewModel(name="x", template="nothing"))
    with pytest.raises(InvalidRequest, match=r"no file 'no\.py'"):
        await models.add("ann", NewModel(name="x", template="digits", main="no.py"))


async def test_a_change_is_for_trainings_to_come(service, models, code):
    await models.add("ann", NewModel(name="net", path="templates/digits", framework="PyTorch"))
    before = await models.train("ann", "net", ModelTraining())
    await service.catalogue.datasets.add("ann", NewDataset(name="digits", path="mnist"))
    changed = await models.change(
        "ann", "net", ModelChange(max_workers=2, dataset="digits", args=("x", "y"), main="parts/layers.py")
    )
    assert (changed.max_workers, changed.dataset, changed.args, changed.console) == (2, "digits", ("x", "y"), False)
    assert changed.changed > changed.created
    assert (await service.job("ann", before.id)).args == ()
    assert (await models.train("ann", "net", ModelTraining())).max_workers == 2
    for wrong, error in (
        (ModelChange(), InvalidRequest),
        (ModelChange(dataset="letters"), NotFound),
        (ModelChange(main="no.py"), InvalidRequest),
        (ModelChange(framework="Caffe"), Unprocessable),
        (ModelChange(max_workers=0), Unprocessable),
    ):
        with pytest.raises(error):
            await models.change("ann", "net", wrong)


async def test_other_code_for_a_model(service, models, code, tmp_path):
    await models.add("ann", NewModel(name="net", path="templates/digits", framework="PyTorch"))
    upload = archive(tmp_path / "new.tar.gz", {"other.py": PLAIN})
    changed = await models.replace_code("ann", "net", upload, "new.tar.gz")
    assert (changed.main, changed.console) == ("other.py", False)
    assert await models.file("ann", "net", "other.py") == PLAIN
    with pytest.raises(PackageError, match=r"no \.py file in no\.tar\.gz\."):
        await models.replace_code("ann", "net", archive(tmp_path / "no.tar.gz", {"a.txt": b""}), "no.tar.gz")
    with pytest.raises(NotFound, match="no file"):
        await models.file("ann", "net", "main.py")
    assert await said(service, await models.train("ann", "net", ModelTraining())) == "[]\n"


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({}, InvalidRequest, "exactly one"),
        ({"path": "templates/digits", "template": "x"}, InvalidRequest, "exactly one"),
        ({"path": "nothing"}, NotFound, "There is no nothing"),
        ({"path": "/etc"}, InvalidRequest, "outside"),
        ({"path": "mnist"}, PackageError, "no .py file"),
        ({"path": "single.csv"}, PackageError, "neither a folder nor"),
        ({"path": "templates/digits", "main": "no.py"}, PackageError, "no.py"),
        ({"path": "templates/digits", "main": "../x.py"}, InvalidRequest, "inside the folder"),
        ({"path": "templates/digits", "framework": "Caffe"}, Unprocessable, "edtPyTorch"),
        ({"path": "templates/digits", "dataset": "letters"}, NotFound, "no data set 'letters'"),
        ({"path": "templates/digits", "hyperparameters": {"lr": 1}}, Unprocessable, "no hyper-parameter 'lr'"),
        ({"path": "templates/digits", "hyperparameters": {"epochs": "x"}}, Unprocessable, "whole number"),
        ({"path": "templates/digits", "hyperparameters": {"optimizer": "SGD"}}, Unprocessable, "object with a name"),
        ({"path": "templates/digits", "kind": "job"}, Unprocessable, "'model' or 'template'"),
        ({"path": "templates/digits", "name": "../x"}, InvalidRequest, "is no name"),
    ],
)
async def test_what_cannot_be_added(service, settings, models, code, changes, error, text):
    with pytest.raises(error) as caught:
        await models.add("ann", NewModel(**{"name": "net", **changes}))
    assert re.search(text, f"{caught.value} {caught.value.hint}")
    assert await models.list("ann") == []
    assert list((settings.data_dir / "catalogue").glob("*/*")) == []


async def test_too_much_code(service, settings, models, data_fs, code):
    for number in range(60):
        (code / f"m{number}.py").write_text("")
    with pytest.raises(TooLarge):
        await models.add("ann", NewModel(name="net", path="templates/digits"))
    assert list((settings.data_dir / "catalogue").glob("*/*")) == []


async def test_names_are_the_owners_alone(service, models, code):
    await models.add("ann", NewModel(name="net", path="templates/digits"))
    with pytest.raises(Conflict, match="You have a model 'net' already"):
        await models.add("ann", NewModel(name="net", path="templates/digits"))
    for verb in (
        lambda: models.get("ben", "net"),
        lambda: models.train("ben", "net", ModelTraining()),
        lambda: models.delete("ben", "net"),
        lambda: models.change("ben", "net", ModelChange(max_workers=3)),
        lambda: models.file("ben", "net", "main.py"),
    ):
        with pytest.raises(NotFound):
            await verb()
    assert await models.list("ben") == []


async def test_a_training_that_cannot_be(service, models, code):
    await models.add("ann", NewModel(name="net", path="templates/digits", framework="PyTorch"))
    for wanted in (
        ModelTraining(max_workers=0),
        ModelTraining(framework="Caffe"),
        ModelTraining(dataset="letters"),
        ModelTraining(instance_group="nowhere"),
        ModelTraining(priority=0),
        ModelTraining(warm_start="no-job"),
        ModelTraining(hyperparameters={"lr": 0.1}),
    ):
        with pytest.raises(EdtError) as caught:
            await models.train("ann", "net", wanted)
        assert 400 <= caught.value.status < 500
    assert await service.jobs("ann") == []
    with pytest.raises(NotFound, match="no model 'other'"):
        await models.train("ann", "other", ModelTraining())
