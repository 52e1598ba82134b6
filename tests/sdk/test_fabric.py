"""FabricModel: what it accepts, what it refuses and in which words; what importing WMLA's names does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from edt_sdk.callbacks import Callback, LoggerCallback
from edt_sdk.fabric.fabric import FabricModel
from edt_sdk.schemas.errors import Conflict, EdtError, InvalidRequest, ServerUnreachable
from edt_sdk.schemas.wire.context import JobContext, WorkerContext, to_environ
from edt_sdk.training.checkpoints import onnx_file

COMPAT = Path(__file__).parents[2] / "edt_sdk" / "compat"


def parts(**changes: Any) -> dict[str, Any]:
    model = nn.Linear(2, 2)
    given = {
        "model": model,
        "datasets_function": lambda: ([], []),
        "loss_function": nn.functional.mse_loss,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    return given | changes


def test_the_union_of_both_keyword_families_is_accepted(capfd: pytest.CaptureFixture[str]) -> None:
    FabricModel(
        **parts(),
        driver_logger=LoggerCallback(), worker_logger=None, user_callback=[Callback()], enable_onnx=True,
        fn_step_train=print, fn_test=print, scaleup_function=print, metrics=[nn.functional.l1_loss],
        worker_logger_callback=None, driver_logger_callback=object(), save_to_onnx=False, keras_custom_objects=None,
        fn_batch_collate=torch.utils.data.default_collate, clip_grad_norm=0.5, lr_scheduler=None,
    )  # fmt: skip
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    FabricModel(**parts(), scaleup_function=4, keras_custom_objects={})
    assert capfd.readouterr().err.splitlines() == [
        "edt: scaleup_function is ignored: it is 4, not a function.",
        "edt: keras_custom_objects: accepted, without effect here.",
    ]
    model, datasets_function, loss_function, optimizer = parts().values()
    with pytest.raises(InvalidRequest, match="not the model's"):
        FabricModel(nn.Linear(2, 2), datasets_function, loss_function, optimizer)
    needs = r"train\(\): missing a required argument: 'batch_size'\. It needs epoch_number and batch_size\."
    with pytest.raises(InvalidRequest, match=needs):
        FabricModel(model, datasets_function, loss_function, optimizer).train(5)  # type: ignore[call-arg]
    FabricModel(model, datasets_function, loss_function, optimizer)


@pytest.mark.parametrize("keyword", ["enable_onnx", "save_to_onnx"])
def test_onnx_without_its_packages_is_said_at_once(
    keyword: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    FabricModel(**parts(), **{keyword: True})
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(onnx_file, "_NEEDED", ("torch", "nothing_like_it"))
    FabricModel(**parts(), **{keyword: False})
    assert capfd.readouterr().err == ""
    FabricModel(**parts(), **{keyword: True})
    said = "edt: no ONNX file will be written: nothing_like_it is not installed here. pip install 'jupyter-edt[onnx]'\n"
    assert capfd.readouterr().err == said


def test_an_optimizer_over_some_of_the_parameters_is_fine() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    FabricModel(**parts(model=model, optimizer=torch.optim.Adam(model[1].parameters())))


def frozen() -> nn.Module:
    model = nn.Linear(2, 2)
    return model.requires_grad_(False)


def other_optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)


def test_a_schedule_over_this_optimizer_is_fine() -> None:
    given = parts()
    for schedule in (
        torch.optim.lr_scheduler.StepLR(given["optimizer"], 2),
        torch.optim.lr_scheduler.ReduceLROnPlateau(given["optimizer"]),
        torch.optim.lr_scheduler.SequentialLR(
            given["optimizer"], [torch.optim.lr_scheduler.ConstantLR(given["optimizer"])] * 2, [3]
        ),
    ):
        FabricModel(**given, lr_scheduler=schedule)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": nn.ReLU()}, "model has no parameters: there is nothing to train. Layers count when"),
        ({"model": frozen()}, "All parameters of the model are frozen.* Set requires_grad"),
        (
            {"lr_scheduler": torch.optim.lr_scheduler.StepLR(other_optimizer(), 2)},
            "lr_scheduler is built over another optimizer than the one given. Build it over this",
        ),
        ({"lr_scheduler": 0.1}, "lr_scheduler must be one of torch.optim.lr_scheduler, not a float"),
        ({"optimizer": other_optimizer()}, "optimizer holds parameters that are not the model's. Build it over"),
        ({"model": nn.Linear}, "model must be a torch.nn.Module, not a type. Give an instance"),
        ({"model": None}, "model must be a torch.nn.Module, not a NoneType"),
        ({"optimizer": torch.optim.SGD}, "optimizer must be an instance of torch.optim.Optimizer"),
        ({"datasets_function": ([], [])}, "datasets_function must be callable, not a tuple"),
        ({"loss_function": "mse"}, "loss_function must be callable, not a str"),
        ({"fn_step_train": 1}, "fn_step_train must be callable"),
        ({"fn_batch_collate": []}, "fn_batch_collate must be callable"),
        ({"metrics": ["accuracy"]}, "metrics must be callable, not a str"),
        ({"clip_grad_norm": 0}, "clip_grad_norm must be above 0"),
    ],
)
def test_wrong_parts_are_refused_at_once(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        FabricModel(**parts(**changes))


def test_a_model_of_another_library_is_refused_by_its_name() -> None:
    other = type("Sequential", (), {"__module__": "keras.src.models"})()
    with pytest.raises(InvalidRequest, match=r"keras.src.models.Sequential: only PyTorch models"):
        FabricModel(**parts(model=other))


@pytest.mark.parametrize(
    ("arguments", "options", "workers", "engines"),
    [
        ((), {}, 8, None),
        ((3,), {}, 3, 3),
        ((3,), {"worker_num": 2, "worker_device_num": 4}, 3, 3),
        ((), {"worker_num": 2, "worker_device_num": 3}, 6, 6),
        ((), {"worker_num": 2}, 2, 2),
        ((), {"hardware_spec": {"nodes": {"num_nodes": 2, "gpu": {"num_gpu": 2}}}, "worker_num": 3}, 4, 4),
        ((8,), {"hardware_spec": {"nodes": {"num_nodes": 2, "num_drivers": 1, "cpu": {"units": 1}}}}, 2, 8),
        ((2,), {"hardware_spec": {"nodes": {"gpu": {"num_gpu": 4, "gpu_profile": "generic"}}}}, 2, 2),
        ((5,), {"hardware_spec": {"name": "M"}}, 5, 5),
        ((5,), {"hardware_spec": "an-id"}, 5, 5),
        ((), {"effective_batch_size": 40, "worker_num": 4}, 4, None),
    ],
)
def test_outside_a_job_the_keywords_say_how_many_workers(
    arguments: tuple[int, ...],
    options: dict[str, Any],
    workers: int,
    engines: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(FabricModel, "_train_as_job", lambda self, **given: calls.append(given))
    FabricModel(**parts()).train(1, 4, *arguments, **options)
    assert [(call["max_workers"], call["engines_number"]) for call in calls] == [(workers, engines)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hardware_spec": 3}, "hardware_spec must be a dictionary of dictionaries, not 3"),
        ({"hardware_spec": {"nodes": {"num_nodes": 0}}}, "hardware_spec must be at least 1, not 0"),
        ({"hardware_spec": {"nodes": {"gpu": 2}}}, "hardware_spec must be a dictionary of dictionaries, not 2"),
        ({"worker_num": "2"}, "worker_num must be a whole number"),
    ],
)
def test_a_wrong_count_of_workers_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(EdtError, match=said):
        FabricModel(**parts()).train(1, 4, **options)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((0, 4), {}, "epoch_number must be at least 1, not 0"),
        ((1.5, 4), {}, "epoch_number must be a whole number, not 1.5"),
        ((True, 4), {}, "epoch_number must be a whole number, not True"),
        ((1, 0), {}, "batch_size must be at least 1"),
        ((1, 4, 0), {}, "engines_number must be at least 1"),
        ((1, 4, 2), {"effective_batch_size": 8}, "exclude each other"),
        ((1, 4), {"num_dataloader_threads": -1}, "num_dataloader_threads must be at least 0"),
        ((1, 4), {"validation_freq": "1"}, "validation_freq must be a whole number"),
        ((1, 4.0), {}, "batch_size must be a whole number, not 4.0"),
        ((1, "4"), {}, "batch_size must be a whole number, not '4'"),
        ((1, 4), {"lr_step": "batch"}, "lr_step is 'epoch' or 'update', not 'batch'"),
        ((1, 4), {"on_nan": None}, "on_nan is 'warn' or 'stop', not None"),
        ((1, 4), {"mode": "quick"}, "mode is 'exact' or 'fast', not 'quick'"),
        ((1, 4), {"checkpoint_freq": -2}, "checkpoint_freq must be at least 0"),
    ],
)
def test_wrong_numbers_are_refused(arguments: tuple[Any, ...], options: dict[str, Any], said: str) -> None:
    with pytest.raises(EdtError, match=said):
        FabricModel(**parts()).train(*arguments, **options)


def test_outside_a_job_training_needs_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    for name in ("EDT_URL", "EDT_TOKEN", "JPY_PARENT_PID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ServerUnreachable, match="jupyter edt"):
        FabricModel(**parts()).train(np.int64(1), 4, num_dataloader_threads=4, hardware_spec={"name": "x"})


def test_there_is_nothing_to_download_before_a_training() -> None:
    with pytest.raises(Conflict, match=r"train\(\)"):
        FabricModel(**parts()).download()


def test_train_in_a_worker_is_a_missing_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in to_environ(job(), WorkerContext(worker=0, slot=0, device="cpu")).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Conflict, match="__main__"):
        FabricModel(**parts()).train(1, 4)


def job() -> JobContext:
    return JobContext(
        job_id="j", owner="o", data_dir="/nowhere", link="/nowhere/l", main="m.py", code_dir="", args=(), seed=0,
        mode="exact", threads_per_slot=1, max_workers=1,
    )  # fmt: skip


def run(code: str, **environ: str) -> list[str]:
    path = os.pathsep.join([str(COMPAT / "kernel"), str(COMPAT / "job")])
    base = {name: value for name, value in os.environ.items() if not name.startswith(("EDT_", "DATA_DIR", "LOG_DIR"))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**base, "PYTHONPATH": path, **environ}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


IMPORTS = """
from fabric_model import FabricModel
from pyedt.fabric_model import FabricModel as Again
from callbacks import Callback, LoggerCallback
import edt_sdk.callbacks, edt_sdk.fabric.fabric
assert FabricModel is Again is edt_sdk.fabric.fabric.FabricModel
assert Callback is edt_sdk.callbacks.Callback and LoggerCallback is edt_sdk.callbacks.LoggerCallback
"""


def test_in_a_job_the_import_says_once_what_wmlas_engine_said() -> None:
    said = run(IMPORTS, DATA_DIR="/data", RESULT_DIR="/r", LOG_DIR="", **to_environ(job()))
    assert said == ["<> DATA_DIR /data", "<> RESULT_DIR /r", "Using pytorch backend."]
    quiet = msgspec.structs.replace(job(), log="quiet")
    assert run(IMPORTS, DATA_DIR="/data", RESULT_DIR="/r", LOG_DIR="", **to_environ(quiet)) == []


def test_a_backend_that_there_is_not_is_said() -> None:
    code = "import fabric_model"
    assert run(code, FABRIC_BACKEND="pytorch", **to_environ(job())) == ["Using pytorch backend."]
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(COMPAT / "kernel"), "FABRIC_BACKEND": "keras"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stderr == "edt: FABRIC_BACKEND is 'keras', which has no effect: models are PyTorch models here.\n"


def test_elsewhere_the_import_is_silent() -> None:
    assert run(IMPORTS, DATA_DIR="/data") == []


def test_the_callbacks_need_no_torch() -> None:
    assert run("import sys, callbacks; print('torch' in sys.modules)") == ["False"]


def test_subclasses_may_forget_to_initialise_their_base() -> None:
    class Mine(LoggerCallback):
        def __init__(self) -> None:
            self.calls = 0

        def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
            self.calls += 1

    mine = Mine()
    mine.on_train_begin()
    mine.log_train_metrics(1.0, 0.5, 2)
    mine.log_test_metrics(1.0, 0.5, 2)
    mine.on_train_end()
    assert mine.calls == 1
    Callback().on_epoch_end(0)
