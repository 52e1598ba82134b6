"""Define the types of the functions a user provides for a training, and convert their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

LossFunction = Callable[[Any, Any], Tensor]
Metric = Callable[[Any, Any], Any]
StepFunction = Callable[..., tuple[Any, Any]]
# Receives outputs and labels of each batch in a validation.
Observer = Callable[[Any, Any], None]


def metric_names(metrics: Sequence[Metric]) -> tuple[str, ...]:
    """Return a name for each metric: its `__name__`, else its class, with a number after repeated names."""
    names: list[str] = []
    for metric in metrics:
        name = str(getattr(metric, "__name__", type(metric).__name__))
        taken = names.count(name) + sum(other.startswith(f"{name}_") for other in names)
        names.append(f"{name}_{taken + 1}" if name in names else name)
    return tuple(names)


def plain(value: Any) -> float:
    """Return a tensor with a single element, or a number, as a Python float."""
    return float(value.detach() if isinstance(value, Tensor) else value)


def number_or_none(value: Any) -> float | None:
    """Return a count of correct samples as a plain number, None for None and NaN."""
    if value is None:
        return None
    number = plain(value)
    return None if math.isnan(number) else number
