"""What model code managed by WMLA's console imports: `pth_parameter_mgr` and `monitor_pth`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.compat.conftest import JOB_MODULES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def settings(job, tmp_path, monkeypatch):
    """Writes the file beside the model code; without arguments there is none."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATA_DIR", "DLI_DATA_FS"):
        monkeypatch.delenv(name, raising=False)

    def write(content=None, folder=tmp_path):
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / "pth_parameters.json").write_text(text)
        return job.pth_parameter_mgr

    return write


@pytest.fixture
def model():
    layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    layers[0].requires_grad_(False)
    return layers


def test_without_a_file_there_are_defaults(settings, model, monkeypatch):
    monkeypatch.setenv("DLI_DATA_FS", "/all")
    given = settings()
    assert (given.getTrainBatchSize(), given.getTestBatchSize(), given.getEpoch()) == (20, 20, 10)
    assert given.getTrainData(False) == given.getTestData(False) == given.getValData(False) == "/all"
    monkeypatch.setenv("DATA_DIR", "/mine")
    assert given.getTrainData(False) == "/mine"
    optimizer = given.getOptimizer(model)
    assert type(optimizer) is torch.optim.SGD
    assert (optimizer.defaults["lr"], optimizer.defaults["momentum"]) == (0.01, 0.9)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in model[1].parameters()]
    assert given.getLearningRate(optimizer) is None


def test_every_setting_can_be_given(settings, model):
    given = settings(
        {
            "train_data": "/train", "test_data": "/test", "val_data": "/val",
            "train_batch_size": "64", "test_batch_size": 100, "epochs": 3,
            "optimizer": {"name": "adam", "lr": 0.5}, "learning_rate": {"name": "steplr", "step_size": 2, "gamma": 0.5},
        }
    )  # fmt: skip
    assert [given.getTrainData(False), given.getTestData(False), given.getValData(False)] == ["/train", "/test", "/val"]
    assert (given.getTrainBatchSize(), given.getTestBatchSize(), given.getEpoch()) == (64, 100, 3)
    optimizer = given.getOptimizer(model)
    assert type(optimizer) is torch.optim.Adam
    schedule = given.getLearningRate(optimizer)
    assert type(schedule) is torch.optim.lr_scheduler.StepLR
    assert schedule.step_size == 2


def test_the_files_of_the_result_folder_win_key_by_key(settings, tmp_path):
    settings({"epochs": 3, "train_batch_size": 7})
    given = settings({"epochs": 4}, tmp_path / "result")
    assert (given.getEpoch(), given.getTrainBatchSize()) == (4, 7)


def test_data_can_be_asked_for_file_by_file(settings, tmp_path):
    data = tmp_path / "data"
    (data / "b").mkdir(parents=True)
    for name in ("z", "b/y"):
        (data / name).write_text("")
    given = settings({"train_data": str(data)})
    assert given.getTrainData() == [str(data / "b/y"), str(data / "z")]


@pytest.mark.parametrize(
    ("content", "ask", "said"),
    [
        ("{", "getEpoch", "is not JSON"),
        ("[]", "getEpoch", "must be a JSON object"),
        ({"epoch": 3}, "getEpoch", "no setting 'epoch'; there are train_data"),
        ({"epochs": "many"}, "getEpoch", "epochs in pth_parameters.json must be a whole number above 0, not 'many'"),
        ({"epochs": None}, "getEpoch", "above 0, not None"),
        ({"train_batch_size": 0}, "getTrainBatchSize", "train_batch_size .* above 0, not 0"),
        ({}, "getTrainData", "There is no folder of data: set train_data"),
        ({"optimizer": "SGD"}, "getOptimizer", "optimizer .* must be an object such as"),
        ({"optimizer": {"name": "Optimizer"}}, "getOptimizer", "torch.optim has no 'Optimizer'"),
        ({"optimizer": {"name": "SGD", "speed": 1}}, "getOptimizer", "SGD refuses its arguments: .*speed"),
        ({"optimizer": {"name": "SGD", "lr": -1}}, "getOptimizer", "SGD refuses its arguments: .*-1"),
    ],
)
def test_what_is_wrong_is_said_by_name(settings, model, content, ask, said):
    function = getattr(settings(content), ask)
    with pytest.raises(ValueError, match=said):
        function(model) if ask == "getOptimizer" else function()


def test_no_module_needs_torch_before_it_makes_something_of_torchs():
    code = (
        "import sys, pth_parameter_mgr, monitor_pth, emetrics, elog, edtcallback; pth_parameter_mgr.getEpoch();"
        "edtcallback.EDTTrainCallback('/tmp'); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{ROOT}:{JOB_MODULES}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


def test_the_monitor_prints_what_the_console_drew(job, capsys):
    monitor = job.monitor_pth.PytorchMonitor("anything")
    right = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    monitor.log_train(1, 0, 2, torch.tensor([1, 1]), torch.tensor(0.5), right)
    monitor.log_train(1, 1, 2, torch.tensor([0, 0]), torch.tensor(1.5), right)
    monitor.log_test(1, 1, 0, 2, torch.tensor([1, 0]), torch.tensor(3.0), right)
    monitor.log_test(1, 1, 1, 2, torch.tensor([1, 1]), torch.tensor(4.0), right)
    monitor.log_train(2, 0, 2, torch.tensor([1, 1]), torch.tensor(0.25), right)
    assert capsys.readouterr().out.splitlines() == [
        f"Iteration {n}: tag {group}, simple_value {value}"
        for n, group, value in [
            (1, "train_accuracy", "1.00000"), (1, "train_loss", "0.50000"),
            (2, "train_accuracy", "0.50000"), (2, "train_loss", "1.00000"),
            (2, "test_accuracy", "0.50000"), (2, "test_loss", "3.00000"),
            (2, "test_accuracy", "0.75000"), (2, "test_loss", "2.00000"),
            (3, "train_accuracy", "1.00000"), (3, "train_loss", "0.25000"),
        ]
    ]  # fmt: skip
