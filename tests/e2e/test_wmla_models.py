"""Model folders as people wrote them for each release of WMLA, run as real jobs: code, data and files as they expect.

The data are scikit-learn's digits in MNIST's file format; what torchvision would read, `models/digits_idx.py` reads.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import nbformat
import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from nbclient import NotebookClient
from onnx.reference import ReferenceEvaluator
from sklearn.datasets import load_digits

from edt_sdk import Job
from edt_sdk.testing import LocalServer
from tests.e2e.harness import Jobs
from tests.kernels import on_unix_sockets

MODELS = Path(__file__).parent / "models"
TRAINED, TESTED = 300, 100


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with digits in four idx files below MNIST/raw."""
    root = tmp_path_factory.mktemp("data")
    write_digits(root)
    return root


def write_digits(root: Path) -> None:
    """8 × 8 pixels of 0 … 16 become 24 × 24 within 28 × 28 of 0 … 255."""
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    digits = load_digits()
    images = np.kron(digits.images, np.ones((3, 3)))
    images = np.pad(images * 255 / 16, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    for kind, part in (("train", slice(0, TRAINED)), ("t10k", slice(TRAINED, TRAINED + TESTED))):
        for name, array in (("images-idx3", images[part]), ("labels-idx1", labels[part])):
            sizes = np.array(array.shape, dtype=">u4").tobytes()
            (folder / f"{kind}-{name}-ubyte").write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


@pytest.fixture(scope="module")
def jobs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server with two slots, whose data folder is `data`."""
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.data_fs": str(data)}
    with LocalServer(tmp_path_factory.mktemp("server"), slots=2, traits=traits) as server:
        yield Jobs(server)


@pytest.fixture
def submit(jobs: Jobs, tmp_path: Path) -> Any:
    """Submits one of the model folders, with the reader of the data beside it, and waits for its end."""

    def run(style: str, main: str = "main.py", *args: str, files: dict[str, str] | None = None, **options: Any) -> Job:
        folder = tmp_path / style
        shutil.copytree(MODELS / style, folder)
        shutil.copy(MODELS / "digits_idx.py", folder)
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        options.setdefault("max_workers", 2)
        options.setdefault("log", "batches")
        job = jobs.client.submit(folder, main=main, args=list(args), progress=False, **options)
        job.wait(200)
        return job

    return run


def result(job: Job) -> Path:
    return Path(job.view.result_dir)


def log_dir(job: Job, start: str) -> Path:
    (found,) = result(job).glob(f"log/{start}*")
    return found


def accuracy(model: torch.nn.Module, data: Path, *, flat: bool = False) -> float:
    """Of the test set."""
    raw = data / "MNIST" / "raw"
    images = np.frombuffer((raw / "t10k-images-idx3-ubyte").read_bytes()[16:], np.uint8).reshape(-1, 1, 28, 28)
    labels = np.frombuffer((raw / "t10k-labels-idx1-ubyte").read_bytes()[8:], np.uint8)
    x = torch.from_numpy(images.astype(np.float32) / 255)
    right = model(x.flatten(1) if flat else x).argmax(1).numpy() == labels
    return float(right.mean())


# --- WMLA 1.2 ---------------------------------------------------------------------------------------------------------


def test_a_folder_of_release_1_2(submit: Any) -> None:
    job = submit("one_two", "main.py", "--numWorker", "2", "--gpuPerWorker", "1", "--epochs", "3", "--extra", "1")
    batches = -(-TRAINED // 16)
    said = job.logs(stream="stdout")
    assert f"<> RESULT_DIR {result(job)}" in said
    assert "Using pytorch backend." in said
    assert "unknown arguments: ['--extra', '1']" in said
    assert "engines_number:2" in said
    assert "--------START TRAINING--------" in said
    assert "--------END TRAINING: completed epoch 3 in time " in said
    # A logger of one's own replaces the default one, and runs in the driver.
    assert "tag train_loss" not in said
    assert "history of driver-" in said

    elog = (log_dir(job, "driver-") / "stdout").read_text()
    frame = pd.read_csv(io.StringIO(elog.replace(":", ",")), header=None)[[4, 6, 8, 10, 12]]
    frame.columns = ["timestamp", "global_steps", "iteration", "loss", "accuracy"]
    train = frame[frame["loss"].notna()]
    assert len(frame) - len(train) == 3  # validations
    assert train["global_steps"].astype(int).tolist() == list(range(1, 3 * batches + 1))
    assert train["iteration"].astype(int).tolist() == 3 * [*range(2, batches + 1), 0]
    # Sums of batches' mean losses over samples; accuracies are fractions, over 100.
    assert 0.5 * 2.3 / 16 < float(train["loss"].iloc[0]) < 2 * 2.3 / 16
    assert 0.005 < float(train["accuracy"].iloc[-1]) <= 0.01

    records = [
        json.loads(line) for line in (log_dir(job, "driver-") / "evaluation-metrics.txt").read_text().split("\n")[:-1]
    ]
    assert len(records) == 3 * batches
    assert {record["grouplabel"] for record in records} == {"test"}
    assert [record["values"]["loss"]["type"] for record in records] == [3] * len(records)
    history = json.loads((result(job) / "val_dict_list.json").read_text())
    assert [entry["steps"] for entry in history] == list(range(1, 3 * batches + 1))
    assert history[-1]["loss"] < history[0]["loss"] / 2
    assert job.logs(stream="elog") == elog

    trained = {path.name for path in (result(job) / "model" / "train").iterdir()}
    epochs = ("1", "2", "3", "final")
    assert trained == {f"model_epoch_{n}{end}.pth" for n in epochs for end in ("", "_optimizer_state")}
    worker = job.logs(worker=0, stream="stdout")
    assert "Timestamp " in worker
    assert "batches :1 " in worker
    assert "--------END TRAINING: completed " in worker


# --- WMLA 2 -----------------------------------------------------------------------------------------------------------


def test_a_folder_of_release_2(submit: Any, data: Path) -> None:
    job = submit("two")
    workers = "".join(job.logs(worker=n, stream="stdout") for n in (0, 1))
    assert "RATES [(0, 0.1), (1, 0.1), (2, 0.05), (3, 0.05)] WORKER " in workers
    assert workers.count("RATES") == 1
    state = torch.load(result(job) / "model/train/model_epoch_final_optimizer_state.pth", weights_only=True)
    assert state["param_groups"][0]["lr"] == 0.05

    (number,) = {line.split("WORKER ")[1] for line in workers.splitlines() if "RATES" in line}
    texts = [line.split("] ")[1] for line in (log_dir(job, f"{number}-") / "stdout").read_text().splitlines()]
    assert texts[-1].startswith("Train finished. Time cost: 0.")
    assert texts[-2] == "on_epoch_end, epoch=3, total_epochs=4, save_model=False"

    lines = (log_dir(job, "driver-") / "stdout").read_text().splitlines()
    tests = [line for line in lines if "] Test," in line]
    assert len(tests) == 4
    losses = [line["test_loss"] for line in curve(job) if line["test_loss"] is not None]
    assert losses[-1] < losses[0]
    trained = {path.name for path in (result(job) / "model" / "train").iterdir()}
    assert trained == {
        "model_epoch_final.pth", "model_epoch_final_optimizer_state.pth", "model_epoch_final.onnx"
    }  # fmt: skip

    for path in (result(job) / "model/train/model_epoch_final.onnx", result(job) / "model/trained_model.onnx"):
        session = ReferenceEvaluator(str(path))
        (name,) = session.input_names
        assert (
            accuracy(
                lambda x, s=session, n=name: torch.cat(
                    [torch.from_numpy(s.run(None, {n: one[None].numpy()})[0]) for one in x]
                ),
                data,
            )
            > 0.8
        )


def curve(job: Job) -> list[dict[str, Any]]:
    """Every validation."""
    path = Path(job.view.result_dir).parents[3] / "jobs" / job.id / "training-0.metrics.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [{"test_loss": line["loss"]} for line in found if line["kind"] == "test"]


# --- WMLA 4 -----------------------------------------------------------------------------------------------------------


def test_a_folder_of_release_4(submit: Any, data: Path, tmp_path: Path) -> None:
    job = submit("four", max_workers=2)
    driver = [json.loads(line) for line in (log_dir(job, "driver-") / "driver.jsonl").read_text().splitlines()]
    assert [driver[0], driver[-1]] == [["begin"], ["end"]]
    trained = [entry[1:] for entry in driver if entry[0] == "train"]
    tested = [entry[1:] for entry in driver if entry[0] == "test"]
    assert [(iteration, epoch) for _, iteration, epoch, _ in trained] == [(4 * n, (n - 1) // 3) for n in range(1, 10)]
    assert [(iteration, epoch) for _, iteration, epoch in tested] == [(0, 0), (0, 1), (0, 2)]
    names = {"loss", "accuracy", "confidence", "Top2"}
    assert all(set(entry[0]) == names for entry in trained + tested)
    assert all(isinstance(value, float) for entry in trained + tested for value in entry[0].values())
    assert {entry[3] for entry in trained} <= {1, 2}
    assert tested[-1][0]["accuracy"] > 0.7
    assert tested[-1][0]["Top2"] >= tested[-1][0]["accuracy"]

    own = [
        json.loads(line) for path in result(job).glob("log/*/worker.jsonl") for line in path.read_text().splitlines()
    ]
    steps = [entry for entry in own if entry[0] == "train"]
    assert len(steps) == 36
    assert len([entry for entry in own if entry[0] == "test"]) == 3 * 4
    assert max(entry[2] for entry in steps) <= 36

    own_zip = result(job) / "saved" / f"{job.id}.zip"
    assert f"Save model:  {own_zip}" in job.logs(stream="stdout")
    with zipfile.ZipFile(own_zip) as archive, zipfile.ZipFile(job.download(tmp_path / "same", "model")) as other:
        assert sorted(archive.namelist()) == sorted(other.namelist())

    # The result as it is downloaded.
    saved = job.download(tmp_path / "down", "model")
    with zipfile.ZipFile(saved) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(".onnx")]
        archive.extract(member, tmp_path)
    model = onnx.load(tmp_path / member)
    onnx.checker.check_model(model)
    session = ReferenceEvaluator(model)
    exported = lambda x: torch.from_numpy(session.run(None, {"input": x.numpy()})[0])  # noqa: E731
    assert accuracy(exported, data, flat=True) == pytest.approx(tested[-1][0]["accuracy"])


@pytest.mark.long
def test_a_model_that_cannot_be_exported_is_trained_all_the_same(jobs: Jobs) -> None:
    job = jobs.submit("unexportable.py", max_workers=2)
    job.wait(100)
    assert "still 8 parameters" in job.logs(stream="stdout")
    said = "".join(job.logs(worker=n, stream="stderr") for n in (0, 1))
    assert said.count("No ONNX file was written: this model cannot be exported (") == 1
    found = {path.name for path in (result(job) / "model" / "train").iterdir()}
    assert "model_epoch_final.pth" in found
    assert not any("onnx" in name for name in found)


# --- models of the console, and scripts that train by themselves -----------------------------------------------------


def test_a_model_that_the_console_manages(submit: Any, data: Path, tmp_path: Path) -> None:
    settings = {"epochs": 2, "train_batch_size": 30, "optimizer": {"name": "Adam", "lr": 0.01}, "test_data": str(data)}
    files = {"pth_parameters.json": json.dumps(settings)}
    first = submit("console", "elastic-main.py", files=files)
    final = torch.load(result(first) / "model/train/model_epoch_final.pth", weights_only=True)
    assert set(final) == {"1.weight", "1.bias"}
    assert json.loads((log_private(first)).read_text().splitlines()[0])["samples"] == 120
    said = first.logs(stream="stdout").splitlines()
    # The default logger: 10 batches of 30 in an epoch.
    tags = [line.split(": tag ") for line in said if ": tag " in line]
    numbers = [int(start.removeprefix("Iteration ")) for start, _ in tags if start.startswith("Iteration ")]
    train = [number for number, (_, rest) in zip(numbers, tags, strict=True) if rest.startswith("train")]
    assert train == 2 * [n for k in (*range(2, 11), 0) for n in (k, k)]
    assert [rest.split(",")[0] for _, rest in tags].count("test_loss") == 2
    assert all(re.fullmatch(r"\w+_(accuracy|loss), simple_value \d+\.\d{5}", rest) for _, rest in tags)

    shutil.rmtree(tmp_path / "console")
    weights = str(result(first) / "model" / "train")
    # What WMLA generated for a training lay beside its results, where no worker looks.
    generated = tmp_path / "generated"
    (generated / "train").mkdir(parents=True)
    (generated / "pth_parameter_mgr.py").write_text(
        f"import torch\nFOLDER = {str(data)!r}\n"
        "def getTrainData(files):\n    return FOLDER\n"
        "def getTestData(files):\n    return FOLDER\n"
        "def getEpoch():\n    return 1\n"
        "def getTrainBatchSize():\n    return 50\n"
        "def getOptimizer(model):\n    return torch.optim.SGD(model.parameters(), lr=0.01)\n"
    )
    places = ("--weights", weights, "--train_dir", str(generated / "train"))
    second = submit("console", "elastic-main.py", *places)
    assert log_private(second).read_text().count('"kind":"train"') == 2  # 300 samples, 4 × 50 an update
    assert "Initial weight file is model_epoch_final.pth" in second.logs(stream="stdout")
    begun = [json.loads(line)["loss"] for line in log_private(second).read_text().splitlines()]
    before = [json.loads(line)["loss"] for line in log_private(first).read_text().splitlines()]
    assert begun[0] < before[0] / 2


def log_private(job: Job) -> Path:
    return Path(job.view.result_dir).parents[3] / "jobs" / job.id / "training-0.metrics.jsonl"


def test_a_script_that_trains_by_itself(submit: Any, data: Path) -> None:
    job = submit("single", "main.py", "--no-cuda", "--epochs", "3", framework="PyTorch", max_workers=1)
    said = job.logs(worker=0, stream="stdout")
    assert "Namespace(epochs=3, no_cuda=True)" in said
    assert f"Model saved in path: {result(job) / 'model' / 'trained_model.pt'}" in said
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    model.load_state_dict(torch.load(result(job) / "model" / "trained_model.pt", weights_only=True))
    assert accuracy(model, data) > 0.5
    records = [path.read_text().count("\n") for path in result(job).glob("log/*/evaluation-metrics.txt")]
    assert records == [3]


# --- notebooks --------------------------------------------------------------------------------------------------------

CELLS = (
    """
    import os
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from digits_idx import Digits
    from MODULE import FabricModel
    data_dir = os.environ.get("DATA_DIR", "/gpfs/mydatafs") + "/MNIST"
    """,
    """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(784, 32)
            self.fc2 = nn.Linear(32, 10)

        def forward(self, x):
            return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)

    def getDatasets():
        return Digits(data_dir, train=True), Digits(data_dir, train=False)
    """,
    """
    torch.manual_seed(1)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    BATCH_SIZE_PER_DEVICE, MAX_NUM_ENGINES, NUM_EPOCHS = 16, WORKERS, 6
    edt_m = FabricModel(model, getDatasets, F.nll_loss, optimizer)
    edt_m.train(NUM_EPOCHS, BATCH_SIZE_PER_DEVICE, MAX_NUM_ENGINES)
    """,
    "edt_m.download()",
    "edt_m.download(OUT)",
    """
    x = torch.stack([image for image, _ in getDatasets()[1]])
    y = torch.tensor([label for _, label in getDatasets()[1]])
    print("RIGHT", (model(x).argmax(1) == y).float().mean().item())
    """,
)


@pytest.mark.long  # test_train_from_a_cell.py trains in a cell, and the folder of release 4 imports pyedt
@pytest.mark.parametrize(("module", "workers"), [("pyedt.fabric_model", 1), ("fabric_model", 2)])
def test_the_notebooks_of_release_4(
    module: str, workers: int, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train in a cell, with classes of the notebook; then the model twice as a zip."""
    write_digits(tmp_path / "data" / "MNIST")
    monkeypatch.setenv("EDT_URL", jobs.server.url)
    monkeypatch.setenv("EDT_TOKEN", jobs.server.token)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shutil.copy(MODELS / "digits_idx.py", tmp_path)
    told = {"MODULE": module, "WORKERS": str(workers), "OUT": repr(str(tmp_path / "out"))}
    cells = [re.sub("MODULE|WORKERS|OUT", lambda found: told[found[0]], cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(dedent(cell)) for cell in cells])
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=200, resources=where, config=on_unix_sockets()).execute()
    printed = ["".join(o.get("text", "") for o in cell.outputs if o.output_type == "stream") for cell in notebook.cells]
    job = printed[2].rsplit("Job ", 1)[1].split()[0]
    assert printed[2].endswith(f"Job {job} finishes with state FINISHED.\n")
    assert printed[3:5] == [f"Save model:  /tmp/{job}.zip\n", f"Save model:  {tmp_path}/out/{job}.zip\n"]
    with zipfile.ZipFile(f"/tmp/{job}.zip") as archive:
        assert "model/train/model_epoch_final.pth" in archive.namelist()
    Path(f"/tmp/{job}.zip").unlink()
    assert float(printed[5].split("RIGHT ")[1]) > 0.7
    assert jobs.client.job(job).view.max_workers == workers
