"""A validation: a trained model run once over the test data. What is asked for, what its job is told, what came out.

Names of metrics are read here, once for every surface: `named_metrics`. A validation is an ordinary job, whose
`Registered.validates` says what it validates; see docs/decisions/031-validations.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable

DEFAULT_METRICS = ("loss", "accuracy")
DEFAULT_THRESHOLD = 0.5
KNOWN = ("loss", "accuracy", "top<K> (such as top5)", "precision", "recall", "f1", "iou", "confusion")
RESULT = "validation.json"
# Every other spelling that people and WMLA's clients use, in small letters without blanks, dashes and underscores.
_ALSO = {
    "acc": "accuracy",
    "testloss": "loss",
    "topk": "top5",
    "f1score": "f1",
    "meaniou": "iou",
    "confusionmatrix": "confusion",
}
_PLAIN = ("loss", "accuracy", "precision", "recall", "f1", "iou", "confusion")
_TOP = re.compile(r"top([1-9]\d{0,5})\Z")


class Validates(msgspec.Struct, frozen=True, kw_only=True):
    """What a validation's job validates. The server's word.

    Attributes:
        training: id of the job that trained; it may be deleted meanwhile.
        training_name: what people called it.
        metrics: names as `named_metrics` gives them.
        threshold: from which score on a binary output means class 1; None for 0.5, and for the highest score of two.
        calls: which of the script's `train()` calls made the weights, counted from 1; those before it are passed over.
    """

    training: str
    training_name: str
    metrics: tuple[str, ...] = DEFAULT_METRICS
    threshold: float | None = None
    calls: int = 1


class NewValidation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for one.

    Attributes:
        metrics: names in any usual spelling, or one text with commas.
        threshold: as in `Validates`, between 0 and 1.
        dataset: name of a registered data set in place of the training's; None for the same data.
        name: of the job; None for the training's, and "-validation".
        max_workers: most slots it may hold.
        instance_group, priority: as in `JobSpec`; None for the training's.
    """

    metrics: tuple[str, ...] | str = DEFAULT_METRICS
    threshold: float | None = None
    dataset: str | None = None
    name: str | None = None
    max_workers: int = 1
    instance_group: str | None = None
    priority: int | None = None

    def check(self) -> NewValidation:
        """Return self with the names of its metrics as they are kept; InvalidRequest or Unprocessable."""
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise Unprocessable(
                f"threshold lies between 0 and 1, not at {self.threshold:g}.",
                hint="It is the probability from which on a binary output means class 1; the default is 0.5.",
                field="threshold",
            )
        return msgspec.structs.replace(self, metrics=named_metrics(self.metrics))


class ClassScores(msgspec.Struct, frozen=True, kw_only=True):
    """One class: how many labels name it, and what of it was found, as fractions; 0 where nothing can be divided by."""

    label: int
    samples: int
    precision: float
    recall: float
    f1: float


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """What came out: the content of RESULT_DIR's `validation.json`.

    Attributes:
        training, training_name: what was validated.
        samples: of the test data.
        metrics: those that were asked for and are one number, in that order; None for one that is not a number.
        own: means of the metrics that the script gave `FabricModel`, by name.
        classes: how many classes there are; None where only the loss was asked for. 2 for binary outputs.
        threshold: what binary outputs were compared with, None where the highest score counted.
        confusion: rows are labels, columns what the model said; None where it was not asked for.
        per_class: where precision, recall or f1 was asked for; none of more than 1000 classes.
        time: of its end, seconds since the epoch.
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


def named_metrics(given: Iterable[str] | str) -> tuple[str, ...]:
    """The names of metrics as they are kept, each once, in the order of `given`.

    Args:
        given: names, or one text with commas between them. Upper and lower case, blanks, dashes and underscores make no
            difference; "Top1", "Confusion Matrix" and "F1-Score" are names too.

    Raises:
        InvalidRequest: there is no metric of a name, or none is named.
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
    """The K of a "top<K>", None for every other metric."""
    match = _TOP.match(metric)
    return int(match[1]) if match else None
