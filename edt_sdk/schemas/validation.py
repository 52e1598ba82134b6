"""Describe a validation, which runs a trained model once over the test data: its request, settings and result.

`named_metrics` reads names of metrics for every surface. A validation is an ordinary job with `Registered.validates`
(docs/decisions/031-validations.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable

DEFAULT_METRICS = ("loss", "accuracy")
DEFAULT_THRESHOLD = 0.5
KNOWN = ("loss", "accuracy", "top<K> (such as top5)", "precision", "recall", "f1", "iou", "confusion")
RESULT = "validation.json"
# Other spellings of users and WMLA clients, in lower case without blanks, dashes and underscores.
_ALSO = {
    "acc": "accuracy",
    "testloss": "loss",
    "topk": "top5",
    "f1score": "f1",
    "meaniou": "iou",
    "confusionmatrix": "confusion",
}
_PLAIN = ("loss", "accuracy", "precision", "recall", "f1", "iou", "confusion")
_SHOWN = {"f1": "F1", "iou": "IoU"}
_TOP = re.compile(r"top([1-9]\d{0,5})\Z")


class Validates(msgspec.Struct, frozen=True, kw_only=True):
    """The training that a job validates. Only the server sets it.

    Attributes:
        training: id of the job that trained. It may have been deleted since.
        training_name: its name.
        metrics: names as `named_metrics` gives them.
        threshold: the score from which on a binary output means class 1. None for 0.5, and for the highest of two.
        calls: which of the script's `train()` calls made the weights, counted from 1. Earlier calls are passed over.
    """

    training: str
    training_name: str
    metrics: tuple[str, ...] = DEFAULT_METRICS
    threshold: float | None = None
    calls: int = 1


class NewValidation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a validation.

    Attributes:
        metrics: what is measured, with commas (default: loss,accuracy). There are loss, accuracy, top<K> (such as
            top5), precision, recall, f1, iou and confusion.
        threshold: the score from which a binary output means class 1, between 0 and 1 (default: 0.5).
        dataset: name of a registered data set (default: the training's).
        name: what to call the validation's job (default: the training's name and "-validation").
        max_workers: most slots it may hold at once.
        instance_group: its queue (default: the training's).
        priority: its weight under fair share (default: the training's).
    """

    metrics: Annotated[tuple[str, ...] | str, Meta(extra={"metavar": "M,…"})] = DEFAULT_METRICS
    threshold: (
        Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "exclusiveMaximum": 1}, extra={"metavar": "T"})]
        | None
    ) = None
    dataset: Annotated[str, Meta(extra={"metavar": "NAME"})] | None = None
    name: str | None = None
    max_workers: Annotated[int, Meta(extra_json_schema={"minimum": 1}, extra={"metavar": "N"})] = 1
    instance_group: Annotated[str, Meta(extra={"metavar": "G"})] | None = None
    priority: Annotated[int, Meta(extra_json_schema={"minimum": 1}, extra={"metavar": "P"})] | None = None

    def check(self) -> NewValidation:
        """Return self with the canonical names of its metrics, or raise InvalidRequest or Unprocessable."""
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise Unprocessable(
                f"threshold lies between 0 and 1, not at {self.threshold:g}.",
                hint="It is the probability from which on a binary output means class 1; the default is 0.5.",
                field="threshold",
            )
        return msgspec.structs.replace(self, metrics=named_metrics(self.metrics))


class ClassScores(msgspec.Struct, frozen=True, kw_only=True):
    """The scores for a class, as fractions. 0 where the divisor is 0.

    Attributes:
        samples: number of its labels.
    """

    label: int
    samples: int
    precision: float
    recall: float
    f1: float


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a validation: the content of RESULT_DIR's `validation.json`.

    Attributes:
        training, training_name: id and name of the validated job.
        metrics: the requested metrics that are one number, in that order. None for NaN.
        own: means of the metrics that the script gave `FabricModel`, by name.
        classes: number of classes. None when only the loss was requested. 2 for binary outputs.
        threshold: the score binary outputs were compared with. None when the highest score counted.
        confusion: rows are labels, columns are predictions. None when it was not requested.
        per_class: scores by class when precision, recall or f1 was requested. Empty above 1000 classes.
        samples: size of the test data.
        time: when it ended, seconds since the epoch.
    """

    training: str
    training_name: str
    samples: int
    metrics: dict[str, float | None]
    own: dict[str, float | None] = {}
    classes: int | None = None
    threshold: float | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None
    per_class: tuple[ClassScores, ...] = ()
    time: float = 0.0

    @property
    def words(self) -> str:
        """Return the metrics, such as "F1 98.9 %, loss 0.1234". "" where none is one number."""
        known = [
            f"loss {value:.4g}" if name == "loss" else f"{_SHOWN.get(name, name)} {100 * value:.1f} %"
            for name, value in self.metrics.items()
            if value is not None
        ]
        return ", ".join(known)


def named_metrics(given: Iterable[str] | str) -> tuple[str, ...]:
    """Return the canonical names of metrics, each once, in the order of `given`, which may be one text with commas.

    Upper and lower case, blanks, dashes and underscores make no difference: "Top1", "Confusion Matrix" and "F1-Score"
    are names too. Raises InvalidRequest when a name is unknown, or none is given.
    """
    words = given.split(",") if isinstance(given, str) else list(given)
    found = [_named(word) for word in words if str(word).strip()]
    if not found:
        raise InvalidRequest("No metrics are named.", hint=f"There are {', '.join(KNOWN)}.", field="metrics")
    return tuple(dict.fromkeys(found))


def _named(word: str) -> str:
    plain = re.sub(r"[\s_-]", "", str(word)).lower()
    plain = _ALSO.get(plain, plain)
    if plain not in _PLAIN and not _TOP.match(plain):
        raise InvalidRequest(
            f"There is no metric {str(word).strip()!r}.", hint=f"There are {', '.join(KNOWN)}.", field="metrics"
        )
    return plain


def top_of(metric: str) -> int | None:
    """Return the K of a "top<K>", or None for every other metric."""
    match = _TOP.match(metric)
    return int(match[1]) if match else None
