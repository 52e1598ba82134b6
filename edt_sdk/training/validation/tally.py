"""Count class by class what a model predicts, and compute named metrics from the counts.

A `Tally` holds counts only. So its size does not depend on the number of samples, and sums of tallies do not depend on
how samples were shared out (decision 031). The engine computes mean losses (`totals.py`). This module knows no jobs,
files or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.validation import DEFAULT_THRESHOLD, ClassScores, top_of
from edt_sdk.training.update.accuracy import class_dimension

Counts = npt.NDArray[np.int64]
MOST_CLASSES = 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selects what is counted.

    Attributes:
        metrics: names from `schemas.validation.named_metrics`.
        threshold: smallest score with which a binary output means class 1. None stands for 0.5, and for the higher
            score where outputs are two scores.
        loss_function: the script's, which shows how to read its outputs. With a loss "with logits" the sigmoid of a
            binary output counts. With cross entropy, a label with a score for each class means the class with the
            highest score.
    """

    metrics: tuple[str, ...]
    threshold: float | None = None
    loss_function: Callable[..., Any] | None = None

    @property
    def anything(self) -> bool:
        """Return whether outputs have to be counted. A loss alone needs no counts."""
        return any(metric != "loss" for metric in self.metrics)

    @property
    def tops(self) -> tuple[int, ...]:
        """Return the K of each top<K>."""
        return tuple(top for metric in self.metrics if (top := top_of(metric)) is not None)


@dataclass(frozen=True, slots=True)
class Tally:
    """Holds counts of labels and predictions.

    Attributes:
        classes: number of classes, 0 before the first batch.
        binary: whether outputs are a single score for each label, compared with a threshold.
        true, said, hits: for each class, the numbers of its labels, its predictions and its correct predictions.
        tops: for each top<K> that is wanted, the number of labels among the K highest scores.
        confusion: [label, prediction], None when it is not wanted.
    """

    classes: int = 0
    binary: bool = False
    true: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    said: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    hits: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    tops: tuple[int, ...] = ()
    confusion: Counts | None = None

    def __add__(self, other: Tally) -> Tally:
        """Return the sum of both. Unprocessable when their numbers of classes differ."""
        # A member without samples in this step has counted nothing and knows no number of classes.
        if not self.classes or not other.classes:
            return self if self.classes else other
        if self.classes != other.classes or self.binary != other.binary:
            raise Unprocessable(
                f"The model's outputs are scores for {self.classes} classes in one batch and for {other.classes} in "
                "another.",
                hint="Every batch needs outputs of one kind; ask for loss alone otherwise.",
                field="metrics",
            )
        return replace(
            self,
            true=self.true + other.true,
            said=self.said + other.said,
            hits=self.hits + other.hits,
            tops=tuple(a + b for a, b in zip(self.tops, other.tops, strict=True)),
            confusion=None if self.confusion is None or other.confusion is None else self.confusion + other.confusion,
        )

    @property
    def accuracy(self) -> float | None:
        """Return the fraction of labels that were predicted, None without labels."""
        total = int(self.true.sum())
        return int(self.hits.sum()) / total if total else None

    def values(self, wanted: Wanted) -> Iterator[tuple[str, float | None]]:
        """Yield the metrics that are computed from counts, by name, in the order in which they are wanted.

        Precision, recall, f1 and iou are means over the classes that occur in labels or predictions. Where outputs are
        binary they are those of class 1.
        """
        total = int(self.true.sum())
        precision, recall, f1, iou = self._scores()
        counted = np.array([False, True]) if self.binary else (self.true + self.said) > 0
        means = {"precision": precision, "recall": recall, "f1": f1, "iou": iou}
        tops = dict(zip(wanted.tops, self.tops, strict=True)) if total else {}
        for metric in wanted.metrics:
            top = top_of(metric)
            if not total:
                yield metric, None
            elif metric == "accuracy":
                yield metric, self.accuracy
            elif top is not None:
                yield metric, tops[top] / total
            elif metric in means:
                yield metric, float(means[metric][counted].mean())

    def per_class(self) -> tuple[ClassScores, ...]:
        """Return the scores of each class, () where there are too many classes to read."""
        if self.classes > MOST_CLASSES:
            return ()
        precision, recall, f1, _ = self._scores()
        return tuple(
            ClassScores(
                label=label,
                samples=int(self.true[label]),
                precision=float(precision[label]),
                recall=float(recall[label]),
                f1=float(f1[label]),
            )
            for label in range(self.classes)
        )

    def _scores(self) -> tuple[npt.NDArray[np.float64], ...]:
        return (
            _divided(self.hits, self.said),
            _divided(self.hits, self.true),
            _divided(2 * self.hits, self.true + self.said),
            _divided(self.hits, self.true + self.said - self.hits),
        )


def portable(counts: Tally) -> SimpleNamespace:
    """Return the counts in the form that members send to each other.

    A namespace and not a `Tally`: a member of version 0.1 knows that class by another path, and reads attributes only.
    """
    return SimpleNamespace(**{field.name: getattr(counts, field.name) for field in fields(Tally)})


def received(counts: SimpleNamespace | Tally) -> Tally:
    """Return the counts that another member sent. A member of version 0.1 sends a `Tally`."""
    return counts if isinstance(counts, Tally) else Tally(**vars(counts))


def _divided(above: Counts, below: Counts) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
    return result


@torch.no_grad()
def tally(outputs: Any, labels: Any, wanted: Wanted) -> Tally:
    """Count one batch.

    Args:
        outputs: scores of classes [n, classes, …] or [n, …, classes], or a single score for each label.
        labels: whole numbers [n, …], of which negative ones are padding and do not count. Where outputs are a single
            score for each label, 0 and 1 of any type.
        wanted: what is counted. Unprocessable when a metric makes no sense for these outputs.
    """
    if not isinstance(outputs, Tensor) or not isinstance(labels, Tensor):
        raise _no_classes(outputs, labels, wanted)
    kind = _kind(wanted.loss_function)
    if kind == "classes" and outputs.dim() > 1 and outputs.shape == labels.shape:
        labels = labels.argmax(1)
    if _is_binary(outputs, labels):
        return _binary(outputs, labels, wanted, logits=kind == "logits")
    found = _flat(outputs, labels)
    if found is None:
        raise _no_classes(outputs, labels, wanted)
    scores, truth = found
    classes = scores.shape[1]
    if len(truth) and int(truth.max()) >= classes:
        raise Unprocessable(
            f"A label is {int(truth.max())}, but the model's outputs are scores for {classes} classes.",
            hint="Labels count from 0.",
            field="metrics",
        )
    if classes == 2 and wanted.threshold is not None:
        predicted = (scores.double().softmax(1)[:, 1] >= wanted.threshold).long()
    else:
        predicted = scores.argmax(1)
    return _counted(predicted, truth, classes, wanted, tops=tuple(_within(scores, truth, top) for top in wanted.tops))


def _is_binary(outputs: Tensor, labels: Tensor) -> bool:
    """Return whether outputs are a single score for each label, and all labels are 0 or 1."""
    if not outputs.is_floating_point() or outputs.shape not in (labels.shape, (*labels.shape, 1)):
        return False
    return bool(((labels == 0) | (labels == 1)).all())


def _binary(outputs: Tensor, labels: Tensor, wanted: Wanted, *, logits: bool) -> Tally:
    for metric in wanted.metrics:
        if top_of(metric) is not None:
            raise Unprocessable(
                f"{metric} makes no sense here: the model's outputs are one score a label.",
                hint="Ask for accuracy, precision, recall or f1.",
                field="metrics",
            )
    scores = outputs.sigmoid() if logits else outputs
    threshold = DEFAULT_THRESHOLD if wanted.threshold is None else wanted.threshold
    predicted = (scores.reshape(-1) >= threshold).long()
    return replace(_counted(predicted, labels.reshape(-1).long(), 2, wanted), binary=True)


def _flat(outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return scores [labels, classes] and labels without padding, None where shapes or types do not fit."""
    dimension = class_dimension(outputs, labels)
    if dimension is None or outputs.shape[dimension] < 2:
        return None
    scores = outputs.movedim(dimension, -1)
    truth = labels.reshape(-1)
    valid = truth >= 0
    return scores.reshape(-1, scores.shape[-1])[valid], truth[valid]


def _within(scores: Tensor, truth: Tensor, top: int) -> int:
    if top > scores.shape[1]:
        raise Unprocessable(
            f"top{top} makes no sense here: the model's outputs are scores for {scores.shape[1]} classes.",
            hint=f"Ask for top{scores.shape[1] - 1} at most.",
            field="metrics",
        )
    return int((scores.topk(top, dim=1).indices == truth[:, None]).any(1).sum())


def _counted(predicted: Tensor, truth: Tensor, classes: int, wanted: Wanted, *, tops: tuple[int, ...] = ()) -> Tally:
    confusion = None
    if "confusion" in wanted.metrics:
        if classes > MOST_CLASSES:
            raise Unprocessable(
                f"A confusion matrix of {classes} classes has {classes**2} cells, too many to read.",
                hint=f"It is there for up to {MOST_CLASSES} classes; ask for precision and recall.",
                field="metrics",
            )
        # Label and prediction form one number, so that a single bincount fills the matrix.
        cells = torch.bincount(truth * classes + predicted, minlength=classes**2)
        confusion = cells.reshape(classes, classes).cpu().numpy()
    return Tally(
        classes=classes,
        true=torch.bincount(truth, minlength=classes).cpu().numpy(),
        said=torch.bincount(predicted, minlength=classes).cpu().numpy(),
        hits=torch.bincount(truth[predicted == truth], minlength=classes).cpu().numpy(),
        tops=tops,
        confusion=confusion,
    )


def _kind(loss_function: Callable[..., Any] | None) -> str:
    """Return how a loss function reads outputs: "logits", "classes", or "" where that is unknown."""
    while isinstance(loss_function, partial):
        loss_function = loss_function.func
    # By name, because torch offers each loss as a function and as a module.
    name = getattr(loss_function, "__name__", type(loss_function).__name__).replace("_", "").lower()
    if "withlogits" in name:
        return "logits"
    return "classes" if "crossentropy" in name and "binary" not in name else ""


def _no_classes(outputs: Any, labels: Any, wanted: Wanted) -> Unprocessable:
    names = ", ".join(metric for metric in wanted.metrics if metric != "loss")
    return Unprocessable(
        f"{names} cannot be computed: the model's outputs ({_shown(outputs)}) are no scores of classes for the labels "
        f"({_shown(labels)}).",
        hint="Ask for loss alone, as for a regression; or give FabricModel metrics=[…] of your own.",
        field="metrics",
    )


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}, shape {tuple(value.shape)}"
    return type(value).__name__
