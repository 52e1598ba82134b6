"""Translate data sets, model templates, models, trainings and validations to and from WMLA's console. Pure.

A template is code, a model is a template with a data set and hyper-parameters, and trainings and validations are jobs.
Names of fields are those of IBM's SDK, which gives the objects to its user unchanged. A validation's results are a list
of pairs of texts there, so a confusion matrix is one of them as JSON.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from edt_sdk.schemas.catalogue import Dataset, DatasetType, Model, ModelChange, ModelTraining, NewDataset, NewModel
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobView
from edt_sdk.schemas.validation import NewValidation, Validated, Validates
from edt_server.wmla import data_pages as data_pages  # of its data sets, for the routes
from edt_server.wmla import ids
from edt_server.wmla.console_hyperparameters import from_console, to_console
from edt_server.wmla.execs import utc
from edt_server.wmla.states import EXEC

# The console's types of data (`datasourcetype`), with what `dbbackend` calls them.
_TYPES = {
    "ANY": (DatasetType.ANY, "Any"),
    "LMDB": (DatasetType.LMDB, "LMDB"),
    "TFRECORDS": (DatasetType.TFRECORDS, "TFRecords"),
    "OTHER": (DatasetType.OTHER, "Other"),
    "IMAGEFORCLASSIFICATION": (DatasetType.IMAGES, "Other"),
    "CSV": (DatasetType.CSV, "CSV"),
    "IMAGEFOROBJECTDETECTION": (DatasetType.OBJECTS, "ObjectDetection"),
    "IMGTOVECTOR": (DatasetType.VECTORS, "Other"),
}
_ENGINES = {"single": Framework.PYTORCH, "native": Framework.DIST, "elastic": Framework.EDT}
_PYTORCH = "PyTorch"
_ON_ELASTIC = "PyTorchOnElastic"
# The content of a file, where blanks at its start and end count. All other texts are stripped.
_AS_THEY_ARE = ("tmpfileContent", "tfmainContent")
# The console's names of metrics. The other metrics have our names.
_SHOWN = {"loss": "Loss", "accuracy": "Accuracy", "confusion": "ConfusionMatrix", "iou": "IoU", "f1": "F1"}


# --- fields of a request ----------------------------------------------------------------------------------------------


def text(body: Mapping[str, Any], field: str) -> str:
    """Return a text without surrounding blanks, "" for none. InvalidRequest for another type.

    `field` is its name, perhaps after those of the objects that hold it: algoDef.algorithm.
    """
    value = body.get(field.rpartition(".")[2])
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidRequest(f"{field} is a text, not {value!r:.60}.", field=field)
    return value if field in _AS_THEY_ARE else value.strip()


def required(body: Mapping[str, Any], field: str) -> str:
    """Return a text. InvalidRequest when it is missing."""
    found = text(body, field)
    if not found:
        raise InvalidRequest(f"The request has no {field}.", field=field)
    return found


# --- data sets --------------------------------------------------------------------------------------------------------


def new_dataset(body: Mapping[str, Any]) -> tuple[NewDataset, tuple[str, ...]]:
    """Return the data set that a request adds, and remarks. InvalidRequest or Unprocessable for missing fields."""
    word = text(body, "datasourcetype") or text(body, "dbbackend") or "ANY"
    known = {name.lower(): name for name in _TYPES} | {type_.value.lower(): key for key, (type_, _) in _TYPES.items()}
    if word.lower() not in known:
        raise Unprocessable(
            f"There is no datasourcetype {word!r}.", hint=f"There are {', '.join(_TYPES)}.", field="datasourcetype"
        )
    images = body.get("imagedetail") or {}
    if not isinstance(images, Mapping):
        raise InvalidRequest("imagedetail is an object.", field="imagedetail")
    parts = {
        part: text(body, f"{part}path") or text(images, f"{part}imagepath") or text(images, f"{part}textpath")
        for part in ("train", "test", "val")
    }
    given = {part: os.path.normpath(path) for part, path in parts.items() if path}
    if not given:
        raise InvalidRequest(
            "The data set names no folder.",
            hint="Give trainpath, a folder of the server's data folder (DLI_DATA_FS of GET /conf).",
            field="trainpath",
        )
    # The common folder below is the data set's folder, and such a mixture has none.
    if len({os.path.isabs(path) for path in given.values()}) > 1:
        raise InvalidRequest("Give all paths absolute, or all relative to the data folder.", field="trainpath")
    top = os.path.commonpath(list(given.values()))
    inside = {part: "" if path == top else os.path.relpath(path, top) for part, path in given.items()}
    remarks = [
        f"{name} has no meaning here: data are used as they are."
        for name in ("meanfilepath", "shards", "byclass", "plugin")
        if body.get(name)
    ]
    changes = [
        name
        for name in ("height", "width", "resizetransformation", "valpercentage", "testpercentage")
        if images.get(name)
    ]
    if changes:
        remarks.append(f"imagedetail's {', '.join(changes)} has no meaning here: data are used as they are.")
    type_ = _TYPES[known[word.lower()]][0]
    return (
        NewDataset(
            name=required(body, "name"),
            type=type_.value,
            path=top,
            train=inside.get("train", ""),
            test=inside.get("test", ""),
            val=inside.get("val", ""),
        ),
        tuple(remarks),
    )


def dataset_object(dataset: Dataset, group: str) -> dict[str, Any]:
    """Return a data set as the console shows it. `group` is the group that would process it."""
    word, backend = next((name, db) for name, (type_, db) in _TYPES.items() if type_ == dataset.type)
    return {
        "name": dataset.name,
        "dbbackend": backend,
        "datasourcetype": word,
        "trainpath": os.path.join(dataset.place, dataset.train).rstrip("/"),
        "valpath": os.path.join(dataset.place, dataset.val).rstrip("/"),
        "testpath": os.path.join(dataset.place, dataset.test).rstrip("/"),
        "meanfilepath": "",
        "status": "ERROR" if dataset.trouble else "CREATED",
        "message": dataset.trouble,
        "runduration": 0.0,
        "sigid": ids.sig_id(group),
        "signame": group,
        "masterUrl": "",
        "driverid": "",
        "sparkappid": "",
        "submittedtime": utc(dataset.created),
        "createUser": dataset.owner,
        "size": dataset.size or 0,
        "shards": 1,
        "byclass": False,
        "plugin": "",
    }


# --- templates and models ---------------------------------------------------------------------------------------------


def new_template(body: Mapping[str, Any]) -> NewModel:
    """Return the template that a request adds."""
    return NewModel(
        name=required(body, "name"),
        kind="template",
        path=required(body, "path"),
        # Of the console's three libraries only PyTorch exists here.
        framework=engine(required(body, "framework")) or Framework.PYTORCH.value,
        description=text(body, "description"),
    )


def new_model(body: Mapping[str, Any]) -> tuple[NewModel, tuple[str, ...]]:
    """Return the model that a request adds, and remarks."""
    said, remarks = _settings(body)
    return NewModel(name=required(body, "name"), template=required(body, "templatename"), **said), remarks


def change(body: Mapping[str, Any], name: str) -> tuple[ModelChange | None, tuple[str, ...]]:
    """Return what a request changes in a template or model (None for its files only), and remarks."""
    if text(body, "name") not in ("", name):
        raise Unprocessable(f"{name} keeps its name.", hint="Add another one, and delete this.", field="name")
    said, remarks = _settings(body)
    if "framework" not in said and text(body, "framework"):
        said["framework"] = engine(text(body, "framework"))
    said = {key: value for key, value in said.items() if value is not None}
    return (ModelChange(**said) if said else None), remarks


def written(body: Mapping[str, Any], main: str) -> tuple[str, str] | None:
    """Return the file that a request writes, and its content, or None without one."""
    if body.get("tmpfileContent") is not None:
        return required(body, "tmpfilePath"), text(body, "tmpfileContent")
    return (main, text(body, "tfmainContent")) if body.get("tfmainContent") is not None else None


def template_object(model: Model) -> dict[str, Any]:
    """Return a template as the console shows it."""
    return {
        "name": model.name,
        "path": model.origin,
        "description": model.description,
        "hyperparameter": to_console(model.hyperparameters),
        "framework": _PYTORCH,
        "tfmainpath": model.main,
        "frameworkVersion": "",
    }


def model_object(model: Model, group: str) -> dict[str, Any]:
    """Return a model as the console shows it. `group` is the group of trainings that name none."""
    return {
        "name": model.name,
        "path": model.origin,
        "description": model.description,
        "templatename": model.template,
        "framework": _PYTORCH,
        "accelerator": accelerator(model.framework),
        "hyperparameter": to_console(model.hyperparameters),
        "batchsize": model.hyperparameters.get("train_batch_size"),
        "dataset": model.dataset,
        "tfmainpath": model.main,
        "sig": ids.sig_id(group),
        "signame": group,
        "wfinit": "",
        "wtfolder": "own" if model.weights else "",
        "type": "ModelTraining",
        "user": model.owner,
        "createTime": utc(model.created),
        "frameworkVersion": "",
        "distributeStrategy": "",
    }


def accelerator(framework: str) -> str:
    """Return the training engine in the console's words."""
    return next((name.capitalize() for name, engine in _ENGINES.items() if engine == framework), "Elastic")


# --- trainings --------------------------------------------------------------------------------------------------------


def new_training(body: Mapping[str, Any], *, group: str) -> tuple[ModelTraining, str, tuple[str, ...]]:
    """Return the training that a request starts, the weights it starts from ("" for none), and remarks."""
    framework = engine(required(body, "dlFramework"))
    if body.get("distribute") is True and framework is None:
        framework = Framework.DIST.value
    workers = body.get("clusterSize")
    # In Python a bool is an int: `true` would be one worker.
    if not isinstance(workers, int) or isinstance(workers, bool):
        raise InvalidRequest(f"clusterSize is the number of workers, not {workers!r}.", field="clusterSize")
    if text(body, "wtURL"):
        raise Unprocessable(
            "Weights are not fetched from an address.",
            hint="Upload them (POST /models/weightfile), and give the name in the answer as wfinit.",
            field="wtURL",
        )
    try:
        words = tuple(shlex.split(text(body, "cmd")))
    except ValueError as wrong:
        raise InvalidRequest(f"cmd cannot be read: {wrong}.", field="cmd") from None
    remarks = synchronous(body)
    ignored = [name for name in ("gpuRatio", "testInterval", "testIteration") if body.get(name) is not None]
    if ignored:
        remarks.append(f"{', '.join(ignored)} have no meaning here: a worker has one slot, and the script tests.")
    training = ModelTraining(
        name=required(body, "trainName"),
        framework=framework,
        max_workers=workers,
        args=words or None,
        instance_group=group,
        log="batches",
    )
    return training, text(body, "wfinit") or text(body, "wtfolder"), tuple(remarks)


def synchronous(body: Mapping[str, Any]) -> list[str]:
    """Return the remark about a request for gradients that are not exchanged at every update, if it is one."""
    if text(body, "syncMode").upper() != "ASYNC":
        return []
    return ["syncMode ASYNC has no meaning here: gradients are exchanged at every update."]


def training_object(view: JobView, *, server: str) -> dict[str, Any]:
    """Return a training as the console shows it."""
    progress = view.progress
    share = 100 * progress.update // progress.total_updates if progress is not None and progress.total_updates else 0
    return {
        "model": view.model,
        "dataset": view.dataset,
        "trainingParameters": {
            "sigId": ids.sig_id(view.instance_group),
            "sigName": view.instance_group,
            "sigMasterUrl": server,
            "driverid": ids.driver_id(view.id),
            "cmd": shlex.join(view.args),
            "trainName": view.name,
            "dlFramework": view.framework,
            "status": EXEC[view.state],
            "appid": view.id,
            "appURL": f"{server}/edt/api/jobs/{view.id}",
            "wtURL": "",
            "wfinit": view.warm_start,
            "wtfolder": "",
            "gpuRatio": view.slots_per_unit,
            "createTime": utc(view.created),
            "user": view.owner,
            # A worker of WMLA is one process, which holds a unit of slots here (docs/decisions/022).
            "clusterSize": view.max_workers // view.slots_per_unit,
            "testInterval": 0,
            "testIteration": 0,
            "syncMode": "SYNC",
            # A plain script reports no updates, so its share stays 0. It must still show 100 once it has finished.
            "progress": 100 if EXEC[view.state] == "FINISHED" else share,
            "historyServerUrl": "",
        },
        "message": view.message or (view.reason.text if view.reason is not None else ""),
    }


# --- validations ------------------------------------------------------------------------------------------------------


def new_validation(body: Mapping[str, Any]) -> tuple[str, NewValidation]:
    """Return the name of the training that a request validates, and the validation it asks for."""
    name, training = required(body, "valName"), required(body, "trainName")
    metrics, threshold = body.get("metrics"), body.get("threshold")
    if isinstance(metrics, list) and all(isinstance(metric, str) for metric in metrics):
        metrics = tuple(metrics)
    elif not isinstance(metrics, str):
        raise InvalidRequest(
            f"metrics is a list of names, not {metrics!r}." if metrics is not None else "The request has no metrics.",
            hint='Such as ["Accuracy", "Top5", "ConfusionMatrix"].',
            field="metrics",
        )
    if threshold is not None and (not isinstance(threshold, int | float) or isinstance(threshold, bool)):
        raise InvalidRequest(f"threshold is a number, not {threshold!r}.", field="threshold")
    return training, NewValidation(metrics=metrics, threshold=threshold, name=name).check()


def validation_object(view: JobView, validates: Validates, result: Validated | None, *, server: str) -> dict[str, Any]:
    """Return a validation as the console shows it. `result` is None until there is one."""
    return {
        "modelname": view.model,
        "dataSet": view.dataset,
        "status": EXEC[view.state],
        "driverId": ids.driver_id(view.id),
        "appid": view.id,
        "appURL": f"{server}/edt/api/jobs/{view.id}",
        "historyServerUrl": "",
        "valParameters": {
            "valName": view.name,
            "trainName": validates.training_name,
            "metrics": [shown(metric) for metric in validates.metrics],
            "threshold": validates.threshold,
            "sigId": ids.sig_id(view.instance_group),
            "sigName": view.instance_group,
            "sigMasterUrl": server,
            "createTime": utc(view.created),
            "user": view.owner,
        },
        "startTime": utc(view.started) if view.started is not None else "",
        "endTime": utc(view.ended) if view.ended is not None else "",
        "outPairs": [] if result is None else list(_pairs(result)),
        "message": view.message or (view.reason.text if view.reason is not None else ""),
    }


def shown(metric: str) -> str:
    """Return the console's name of a metric."""
    return _SHOWN.get(metric, metric.capitalize())


def _pairs(result: Validated) -> Iterator[dict[str, str]]:
    # `repr` gives the shortest text that is read back as the same number. A missing value is NaN in that text, because
    # the value of a pair is never null.
    for name, value in result.metrics.items():
        yield {"name": shown(name), "value": "NaN" if value is None else repr(value)}
    for name, value in result.own.items():
        yield {"name": name, "value": "NaN" if value is None else repr(value)}
    if result.confusion is not None:
        # The console's pairs hold texts only, so the matrix is JSON in a text.
        yield {"name": shown("confusion"), "value": msgspec.json.encode(result.confusion).decode()}


def _settings(body: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a model's training settings, and remarks."""
    given = body.get("hyperparameter") or {}
    if not isinstance(given, Mapping):
        raise InvalidRequest("hyperparameter is an object.", field="hyperparameter")
    found, remarks = from_console(given, body.get("batchsize"))
    word = text(body, "accelerator")
    if word and word.lower() not in _ENGINES:
        raise Unprocessable(
            f"There is no accelerator {word!r}.", hint="There are Single, Native and Elastic.", field="accelerator"
        )
    said: dict[str, Any] = {
        "description": text(body, "description") or None,
        "dataset": text(body, "dataset") or None,
        "hyperparameters": found or None,
    }
    if word:
        said["framework"] = _ENGINES[word.lower()].value
    return said, remarks


def engine(word: str) -> str | None:
    """Return the framework for the console's word, None for "PyTorch", which keeps the model's own engine."""
    if word.lower() == _PYTORCH.lower():
        return None
    if word.lower() == _ON_ELASTIC.lower():
        return Framework.EDT.value
    for framework in Framework:
        if word.lower() == framework.value.lower():
            return framework.value
    raise Unprocessable(
        f"There is no framework {word!r} here.",
        hint=f"There are {', '.join(Framework)} and {_ON_ELASTIC}.",
        field="framework",
    )
