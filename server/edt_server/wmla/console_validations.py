"""The console's validations in WMLA's words, from ours, and back. Pure.

A validation is a job (`edt_server.service.validations`). Names of fields are those of IBM's SDK; what came out is a
list of pairs of texts there, which is all that its console could show, so a confusion matrix is one of them as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.job import JobView
from edt_sdk.schemas.validation import NewValidation, Validated, Validates
from edt_server.wmla import ids
from edt_server.wmla.execs import utc
from edt_server.wmla.fields import required
from edt_server.wmla.states import EXEC

# What the console called them; the others have our names.
_SHOWN = {"loss": "Loss", "accuracy": "Accuracy", "confusion": "ConfusionMatrix", "iou": "IoU", "f1": "F1"}


def new_validation(body: Mapping[str, Any]) -> tuple[str, NewValidation]:
    """The name of the training that a request validates, and what is asked for.

    Raises:
        InvalidRequest, Unprocessable: it says too little, names a metric that there is not, or an impossible threshold.
    """
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
    """A validation; `result` is None before it has one."""
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
    """A metric as the console called it."""
    return _SHOWN.get(metric, metric.capitalize())


def _pairs(result: Validated) -> Iterator[dict[str, str]]:
    for name, value in result.metrics.items():
        yield {"name": shown(name), "value": "NaN" if value is None else repr(value)}
    for name, value in result.own.items():
        yield {"name": name, "value": "NaN" if value is None else repr(value)}
    if result.confusion is not None:
        yield {"name": shown("confusion"), "value": msgspec.json.encode(result.confusion).decode()}
