"""Count the correctly classified samples of a batch where the labels are classes. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

# Number types that numpy has too.
_PLAIN = (torch.float32, torch.float64)


@torch.no_grad()
def count_correct(outputs: Any, labels: Any) -> Tensor | float | None:
    """Return the number of correct samples, as a float64 scalar tensor or a float. None where labels are no classes.

    Labels are as in `class_dimension`. With several labels per sample (pixels, tokens) a sample counts as the fraction
    of its labels that are right. Negative labels are padding and do not count.
    """
    if not isinstance(outputs, Tensor) or not isinstance(labels, Tensor):
        return None
    dimension = class_dimension(outputs, labels)
    if dimension is None:
        return None
    if outputs.dim() == 2 and _both_plain(outputs, labels):
        # Same result as below in half the time. Between two forward passes each torch call runs with cold caches
        # (decision 032).
        right = outputs.detach().numpy().argmax(1) == labels.numpy()
        return float(np.count_nonzero(right))
    predicted = outputs.argmax(dimension)
    if labels.dim() == 1:
        # A negative label never equals a prediction.
        return (predicted == labels).sum(dtype=torch.float64)
    # Per sample and not per label, so that samples with few labels weigh as much as others.
    valid = (labels >= 0).reshape(len(labels), -1)
    right = (predicted == labels).reshape(len(labels), -1) & valid
    return (right.sum(1, dtype=torch.float64) / valid.sum(1).clamp(min=1)).sum()


def class_dimension(outputs: Tensor, labels: Tensor) -> int | None:
    """Return the dimension of the classes in outputs [n, classes, …] or [n, …, classes], None where there are none.

    Class labels are whole numbers [n, …]. Where both forms fit, the classes are in dimension 1, as in torch's losses.
    """
    # Only whole numbers can be classes. A regression has no accuracy, not an accuracy of 0.
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool or outputs.dim() < 2:
        return None
    if outputs.shape[:1] + outputs.shape[2:] == labels.shape:
        return 1
    return -1 if outputs.shape[:-1] == labels.shape else None


def _both_plain(outputs: Tensor, labels: Tensor) -> bool:
    return outputs.dtype in _PLAIN and outputs.is_cpu and labels.is_cpu and outputs.shape[1] > 0


def eva(outputs: Any, labels: Any) -> float:
    """Return `count_correct` for WMLA's custom training steps, NaN where the labels are no classes."""
    correct = count_correct(outputs, labels)
    return float("nan") if correct is None else float(correct)
