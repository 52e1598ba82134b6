"""Answer with the class `Predictor` in the `predictor.py` of a package.

    class Predictor:
        def __init__(self, model_dir, params): ...   # the folder with the weights, and {}
        def predict(self, inputs): ...               # a list of rows → a list of as many answers
        def close(self): ...                         # optional, at the end

A row is a value of the JSON, an array, the bytes of an image, or a dictionary where the inputs have names. An answer
is a JSON value or an array.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.registered import PREDICTOR
from edt_sdk.serving.calls import UNNAMED, BadRequest, InferenceCall, Outputs, Unanswerable, label
from edt_sdk.serving.fitting import common_rows

_CLASS = "Predictor"


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a request. All may be computed together."""

    values: list[Any]
    single: bool
    key: None = None

    @property
    def rows(self) -> int:
        """Return how many there are."""
        return len(self.values)


class PackagePredictor:
    """Computes the answers of a predictor, at most `max_batch` rows in a call. Only its code knows what it takes."""

    signature = None

    def __init__(self, predictor: Any, max_batch: int) -> None:
        self._predictor = predictor
        self._max_batch = max_batch

    @classmethod
    def load(cls, code: Path, model_dir: Path, max_batch: int) -> PackagePredictor:
        """Import the module of a package and make its predictor, which is told `model_dir`. Unprocessable for none."""
        os.chdir(code)
        sys.path.insert(0, str(code))
        path = code / PREDICTOR
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise Unprocessable(f"The package has no {PREDICTOR}.", hint=f"Write one with a class {_CLASS}.")
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kind = getattr(module, _CLASS, None)
        if kind is None or not callable(getattr(kind, "predict", None)):
            raise Unprocessable(
                f"{PREDICTOR} has no class {_CLASS} with a method predict.",
                hint=f"Define class {_CLASS}, with __init__(self, model_dir, params) and predict(self, inputs).",
            )
        return cls(kind(str(model_dir), {}), max_batch)

    def fit(self, call: InferenceCall) -> Rows:
        """Return the rows of a request. BadRequest where its inputs have different numbers of them."""
        if call.columns:
            return self._rows([dict(zip(call.columns, row, strict=True)) for row in call.inputs[UNNAMED]], single=False)
        many = {name: _is_many(value) for name, value in call.inputs.items()}
        if len(set(many.values())) != 1:
            one = next(name for name, is_many in many.items() if not is_many)
            raise BadRequest(f"{label(one)} is one value, but others are lists of rows")
        single = call.raw or not all(many.values())
        columns = {name: _rows_of(value) if many[name] else [value] for name, value in call.inputs.items()}
        common_rows({name: len(column) for name, column in columns.items()})
        if len(columns) == 1:
            return self._rows(next(iter(columns.values())), single)
        return self._rows([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], single)

    @staticmethod
    def _rows(values: list[Any], single: bool) -> Rows:
        common_rows({UNNAMED: len(values)})
        return Rows(values, single)

    def compute(self, group: Sequence[Rows]) -> list[Outputs]:
        """Return the answers to each request. Raises what the predictor raises, and Unanswerable."""
        rows = [row for each in group for row in each.values]
        answers: list[Any] = []
        for start in range(0, len(rows), self._max_batch):
            answers += self._predict(rows[start : start + self._max_batch])
        found: list[Outputs] = []
        for each in group:
            found.append({"output": answers[: each.rows]})
            del answers[: each.rows]
        return found

    def _predict(self, rows: list[Any]) -> list[Any]:
        answers = self._predictor.predict(rows)
        if isinstance(answers, str | bytes | dict) or not hasattr(answers, "__len__"):
            raise Unanswerable(f"predict() returned a {type(answers).__name__}, expected a list of {len(rows)} answers")
        if len(answers) != len(rows):
            raise Unanswerable(f"predict() returned {len(answers)} answers for {len(rows)} rows")
        return list(answers)

    def close(self) -> None:
        """Call the method `close` of the predictor, if it has one."""
        close = getattr(self._predictor, "close", None)
        if close is not None:
            close()


def _is_many(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _rows_of(value: Any) -> list[Any]:
    """Return the rows of a list or an array. Those of an array of texts or single numbers are plain values."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype == object or value.ndim == 1 else list(value)
    return list(value)
