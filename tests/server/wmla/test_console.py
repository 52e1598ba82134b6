"""The console's words: hyper-parameters there and back, folders, engines."""

from __future__ import annotations

import pytest

from edt_sdk.schemas.catalogue import check_hyperparameters
from edt_sdk.schemas.errors import InvalidRequest, NotFound, TooLarge, Unprocessable
from edt_server.wmla import data_pages
from edt_server.wmla.console import change, new_dataset, new_model, new_template, new_training, written
from edt_server.wmla.console_hyperparameters import from_console, to_console


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ({"epoch": 3}, {"epochs": 3}),
        ({"epoch": "3"}, {"epochs": 3}),
        ({"learningrate": 0.1}, {"optimizer": {"name": "SGD", "lr": 0.1}}),
        (
            {"solvertype": "Adam", "learningrate": 0.1, "beta1": 0.8, "weightdecay": 0.01},
            {"optimizer": {"name": "Adam", "lr": 0.1, "weight_decay": 0.01, "betas": [0.8, 0.999]}},
        ),
        (
            {"lrpolicy": "step", "stepsize": 2, "gamma": 0.5},
            {"learning_rate": {"name": "StepLR", "step_size": 2, "gamma": 0.5}},
        ),
        (
            {"lrpolicy": "multistep", "stepvalues": "2, 4"},
            {"learning_rate": {"name": "MultiStepLR", "milestones": [2, 4]}},
        ),
        ({"lrpolicy": "CosineAnnealingLR", "t_max": 9}, {"learning_rate": {"name": "CosineAnnealingLR", "T_max": 9}}),
        ({"lrpolicy": "fixed"}, {}),
        ({}, {}),
    ],
)
def test_hyperparameters_there_and_back(given, ours):
    found, remarks = from_console(given)
    assert (found, remarks) == (ours, ())
    assert check_hyperparameters(found) == found
    again, _ = from_console(to_console(found))
    assert again == found


def test_what_has_no_counterpart_is_said():
    found, remarks = from_console({"hiddenstatesize": 3, "epoch": 1, "decaysteps": None, "stepsize": 3}, "16")
    assert found == {"epochs": 1, "train_batch_size": 16}
    assert remarks == ("The hyper-parameters hiddenstatesize, step_size have no meaning here.",)
    for wrong in ({"epoch": "many"}, {"epoch": 0}, {"epoch": True}, {"lrpolicy": "multistep", "stepvalues": "a"}):
        with pytest.raises(InvalidRequest, match="whole number"):
            from_console(wrong)


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ({"trainpath": "/fs/d/train", "testpath": "/fs/d/test/"}, ("/fs/d", "train", "test", "")),
        ({"trainpath": "d"}, ("d", "", "", "")),
        ({"trainpath": "/fs/a/x", "valpath": "/fs/b"}, ("/fs", "a/x", "", "b")),
        ({"imagedetail": {"trainimagepath": "/fs/d/t", "testimagepath": "/fs/d/v"}}, ("/fs/d", "t", "v", "")),
    ],
)
def test_folders_become_one_with_parts(paths, found):
    new, remarks = new_dataset({"name": "d", "datasourcetype": "Any", **paths})
    assert (new.path, new.train, new.test, new.val) == found
    assert (new.type, remarks) == ("Any", ())


def test_what_a_data_set_may_not_be():
    with pytest.raises(InvalidRequest, match="all paths absolute, or all relative"):
        new_dataset({"name": "d", "trainpath": "/a", "testpath": "b"})
    with pytest.raises(InvalidRequest, match="trainpath is a text"):
        new_dataset({"name": "d", "trainpath": 5})
    _, remarks = new_dataset({"name": "d", "trainpath": "a", "shards": 3, "imagedetail": {"height": 3}})
    assert len(remarks) == 2


@pytest.mark.parametrize(
    ("body", "framework"),
    [
        ({"dlFramework": "PyTorch"}, None),
        ({"dlFramework": "pytorch", "distribute": True}, "distPyTorch"),
        ({"dlFramework": "PyTorchOnElastic"}, "edtPyTorch"),
        ({"dlFramework": "distPyTorch"}, "distPyTorch"),
    ],
)
def test_the_engine_of_a_training(body, framework):
    training, begins_with, remarks = new_training({"trainName": "t", "clusterSize": 2, **body}, group="g")
    assert (training.framework, training.max_workers, training.instance_group) == (framework, 2, "g")
    assert (begins_with, remarks, training.log) == ("", (), "batches")


@pytest.mark.parametrize(
    "body",
    [
        {"trainName": "t", "dlFramework": "PyTorch", "clusterSize": True},
        {"trainName": "t", "dlFramework": "PyTorch", "clusterSize": 1, "wtURL": "http://x"},
        {"trainName": "t", "dlFramework": "PyTorch", "clusterSize": 1, "cmd": "'"},
        {"dlFramework": "PyTorch", "clusterSize": 1},
        {"trainName": "t", "dlFramework": "TensorFlow", "clusterSize": 1},
    ],
)
def test_a_training_that_cannot_be(body):
    with pytest.raises((InvalidRequest, Unprocessable)):
        new_training(body, group="g")


def test_a_name_stays():
    with pytest.raises(Unprocessable, match="keeps its name"):
        change({"name": "other", "description": "x"}, "net")
    assert change({"name": "net"}, "net") == (None, ())
    found, _ = change({"name": "net", "framework": "PyTorch", "dataset": "d"}, "net")
    assert (found.framework, found.dataset) == (None, "d")
    assert new_template({"name": "t", "path": "p", "framework": "PyTorch"}).framework == "PyTorch"
    assert new_model({"name": "m", "templatename": "t"})[0].framework is None


def test_a_file_that_is_written():
    assert written({"tmpfilePath": "a.py", "tmpfileContent": " x\n"}, "main.py") == ("a.py", " x\n")
    assert written({"tfmainContent": ""}, "main.py") == ("main.py", "")
    assert written({"tfmainpath": "x"}, "main.py") is None
    with pytest.raises(InvalidRequest, match="no tmpfilePath"):
        written({"tmpfileContent": "x"}, "main.py")


def test_pages(tmp_path):
    with pytest.raises(NotFound):
        data_pages.rows(tmp_path, 0, 1)
    (tmp_path / "b.csv").write_text("")
    assert data_pages.rows(tmp_path, 0, 5)["data"] == []
    (tmp_path / "a.csv").write_text("1,2\n3,nan\n")
    page = data_pages.rows(tmp_path, 1, 5)
    assert (page["columns"], page["data"]) == (["0", "1"], [[3.0, "nan"]])
    (tmp_path / "cat").mkdir()
    for name in ("b.JPG", "a.png", "a.txt"):
        (tmp_path / "cat" / name).write_text("")
    found = data_pages.pictures(tmp_path, 0, 5)
    assert [(each["name"], each["labels"].rpartition("/")[2]) for each in found] == [
        ("a.png", "a.txt"),
        ("b.JPG", "cat"),
    ]
    assert data_pages.pictures(tmp_path, 1, 1) == found[1:]


def test_pages_of_files_that_are_no_tables(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes(b"1," * (2 << 20))
    with pytest.raises(TooLarge, match="fewer rows"):
        data_pages.rows(tmp_path, 0, 5)
    file.write_bytes(b'"' + b"x\n" * 200_000 + b'"')
    with pytest.raises(Unprocessable, match="cannot be read as CSV"):
        data_pages.rows(tmp_path, 0, 5)
    # Rows that are passed over do not count.
    file.write_bytes(b"a,b\n" + b"1,2\n" * 400_000)
    assert data_pages.rows(tmp_path, 399_999, 5)["data"] == [[1.0, 2.0]]
    assert data_pages.rows(tmp_path, data_pages.FARTHEST, 5)["data"] == []
