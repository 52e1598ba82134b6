"""Define a request between its form and the model: arrays or values by name on the way in, and on the way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
# What a model answers, by name. A predictor answers with a list: a JSON value or an array for each row.
Outputs: TypeAlias = dict[str, Array | list[Any]]

# The key of an input that has no name in its form.
UNNAMED = ""
MOST_ROWS = 1024
MOST_NUMBERS = 1 << 31


class BadRequest(Exception):
    """The request cannot be answered. The text is for its caller, `status` is that of HTTP."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Unanswerable(Exception):
    """The model's code ran and returned what cannot be an answer."""


@dataclass(frozen=True, slots=True)
class Written:
    """The body of an answer. `header_length` is that of the JSON before binary tensors, None where there are none."""

    content_type: str
    body: bytes
    header_length: int | None = None


@dataclass(frozen=True, slots=True)
class InferenceCall:
    """A request as its form has read it.

    Attributes:
        inputs: arrays, or decoded JSON values, by name.
        write: makes the body of the answer. Its second argument is whether outputs lose their first dimension.
        strict: the request names its datatypes, so they must be those of the signature.
        named: False where the only input has no name. Its key is `UNNAMED`.
        raw: the only input is one row, the bytes of the body.
        columns: names of the values in each row, where the only input is a table with names.
    """

    inputs: dict[str, Any]
    write: Callable[[Outputs, bool], Written]
    strict: bool = False
    named: bool = True
    raw: bool = False
    columns: tuple[str, ...] = ()


def label(name: str) -> str:
    """Return how a message calls an input."""
    return f"input {name!r}" if name else "the input"


def times(shape: tuple[int, ...] | list[int]) -> str:
    """Return a shape as people write it, with n for a free size."""
    return "×".join("n" if size < 0 else str(size) for size in shape) or "one number"
