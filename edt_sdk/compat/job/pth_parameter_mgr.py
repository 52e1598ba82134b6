"""Provide `pth_parameter_mgr`, where console-managed models get data sets, batch sizes, epochs and the optimizer.

WMLA generated the module for each training. Here it is one module that reads its settings from `pth_parameters.json`, a
JSON object. The file lies next to the model code (the working directory) or in $RESULT_DIR, which wins key by key.
Every key is optional:

    train_data, test_data, val_data   folders; default $DATA_DIR, else $DLI_DATA_FS
    train_batch_size, test_batch_size 20; the second defaults to the first
    epochs                            10
    optimizer                         a class of torch.optim and its arguments: {"name": "SGD", "lr": 0.01, …}
    learning_rate                     null, or a class of torch.optim.lr_scheduler: {"name": "StepLR", "step_size": 5}

A copy in the submitted folder or in the parent of `--train_dir` is imported instead of this module. Function names are
WMLA's. Only the standard library is needed until an optimizer is requested.
"""

from __future__ import annotations

import json
import os
from typing import Any

FILE = "pth_parameters.json"
_DEFAULTS: dict[str, Any] = {
    "train_data": None,
    "test_data": None,
    "val_data": None,
    "train_batch_size": 20,
    "test_batch_size": None,
    "epochs": 10,
    "optimizer": {"name": "SGD", "lr": 0.01, "momentum": 0.9},
    "learning_rate": None,
}


def getTrainData(files: bool = True) -> Any:
    """Return the training data: the folder, or with `files` a sorted list of all files below it."""
    return _data("train_data", files)


def getTestData(files: bool = True) -> Any:
    """Return the test data, likewise."""
    return _data("test_data", files)


def getValData(files: bool = True) -> Any:
    """Return the validation data, likewise."""
    return _data("val_data", files)


def getTrainBatchSize() -> int:
    """Return the samples per batch in training."""
    return _whole("train_batch_size", _settings()["train_batch_size"])


def getTestBatchSize() -> int:
    """Return the samples per batch in a test."""
    settings = _settings()
    if settings["test_batch_size"] is None:
        return getTrainBatchSize()
    return _whole("test_batch_size", settings["test_batch_size"])


def getEpoch() -> int:
    """Return the number of passes over the training data."""
    return _whole("epochs", _settings()["epochs"])


def getOptimizer(model: Any) -> Any:
    """Return the optimizer over the parameters of `model` that are not frozen.

    Raises:
        ValueError: torch.optim has none with this name, or it does not accept the arguments.
    """
    import torch

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return _made("optimizer", torch.optim, torch.optim.Optimizer, trained)


def getLearningRate(optimizer: Any) -> Any:
    """Return a learning-rate scheduler over `optimizer`, None when none is set. ValueError as in `getOptimizer`."""
    if not _settings()["learning_rate"]:
        return None
    import torch

    schedulers = torch.optim.lr_scheduler
    return _made("learning_rate", schedulers, schedulers.LRScheduler, optimizer)


def _settings() -> dict[str, Any]:
    """Return all settings. Read on every call, because WMLA's scripts may change their working directory."""
    settings = dict(_DEFAULTS)
    for folder in (os.getcwd(), os.environ.get("RESULT_DIR", "")):
        path = os.path.join(folder, FILE)
        if folder and os.path.isfile(path):
            settings |= _read(path)
    return settings


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a JSON object, such as {json.dumps(_DEFAULTS)}")
    unknown = sorted(content.keys() - _DEFAULTS.keys())
    if unknown:
        raise ValueError(f"{path} has no setting {unknown[0]!r}; there are {', '.join(_DEFAULTS)}.")
    return content


def _data(key: str, files: bool) -> Any:
    folder = _settings()[key] or os.environ.get("DATA_DIR") or os.environ.get("DLI_DATA_FS")
    if not folder:
        raise ValueError(f"There is no folder of data: set {key} in {FILE}, or DATA_DIR.")
    if not files:
        return folder
    return sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)


def _whole(key: str, value: Any) -> int:
    # Hyper-parameter searches write numbers as text.
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise ValueError(f"{key} in {FILE} must be a whole number above 0, not {value!r}.")
    return number


def _made(key: str, module: Any, kind: type[Any], over: Any) -> Any:
    given = _settings()[key]
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ValueError(f'{key} in {FILE} must be an object such as {{"name": "…", "lr": 0.01}}, not {given!r}.')
    # The console's names differ from the class names in case only.
    classes = {
        name.lower(): value
        for name, value in vars(module).items()
        # The name comes from a file. It must not reach any class of the module but an optimizer or a scheduler.
        if isinstance(value, type) and issubclass(value, kind) and value is not kind
    }
    chosen = classes.get(given["name"].lower())
    if chosen is None:
        raise ValueError(f"{key} in {FILE}: {module.__name__} has no {given['name']!r}.")
    try:
        return chosen(over, **{name: value for name, value in given.items() if name != "name"})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key} in {FILE}: {chosen.__name__} refuses its arguments: {error}") from error
