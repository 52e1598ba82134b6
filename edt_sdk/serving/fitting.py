"""Check the inputs of a request against what a model takes, and make them arrays of its datatypes.

Each request is checked on its own, before it is stacked with others, so that a bad one never harms its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edt_sdk.schemas.serving.examples import DATATYPE_OF, DATATYPES
from edt_sdk.schemas.serving.replica_channel import Signature, Tensor
from edt_sdk.serving.calls import MOST_NUMBERS, MOST_ROWS, UNNAMED, Array, BadRequest, InferenceCall, label, times


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request that the model can take: arrays by name with rows first, in the order of the model's inputs."""

    inputs: dict[str, Array]
    rows: int
    single: bool

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what requests must share to be stacked."""
        return tuple((name, array.dtype, array.shape[1:]) for name, array in self.inputs.items())


@dataclass(frozen=True, slots=True)
class Expected:
    """What a model takes.

    Attributes:
        signature: names, datatypes and shapes, None where they are not known.
        floating: numbers become this type where there is no signature.
        whole: whole numbers stay what they are there, as the model looks them up.
    """

    signature: Signature | None
    floating: np.dtype[Any]
    whole: bool = False

    def fit(self, call: InferenceCall) -> Fitted:
        """Return the inputs of a request as the model takes them. BadRequest with a sentence where they do not fit."""
        if call.raw and isinstance(call.inputs[UNNAMED][0], str):
            raise BadRequest("this version takes arrays, not a text: ask for /predict, which reads them from JSON")
        if call.raw:
            raise BadRequest("this version takes arrays: send application/json or application/x-npy", status=415)
        if self.signature is None:
            arrays = {name: self._without_signature(name, value) for name, value in call.inputs.items()}
            single = False
        else:
            known = self.signature.inputs
            given = _named(call, [each.name for each in known])
            fitted = {each.name: _fit(each, given[each.name], strict=call.strict) for each in known}
            arrays = {name: array for name, (array, _) in fitted.items()}
            (single, *others) = {alone for _, alone in fitted.values()}
            if others:
                raise BadRequest("some inputs are one row without the dimension of rows, and others have it")
        return Fitted(arrays, common_rows({name: len(array) for name, array in arrays.items()}), single)

    def _without_signature(self, name: str, value: Any) -> Array:
        array = numbers(name, value)
        if array.ndim == 0:
            raise BadRequest(f"{label(name)} is one number, expected rows")
        if array.dtype.kind == "b" or (self.whole and array.dtype.kind in "iu"):
            return array
        return cast(name, array, self.floating)


def _named(call: InferenceCall, names: list[str]) -> Mapping[str, Any]:
    """Return the inputs of a request by these names, which are all that there may be."""
    given = call.inputs
    listed = ", ".join(map(repr, names))
    if call.columns and set(names) <= set(call.columns):
        places = {name: call.columns.index(name) for name in names}
        return {name: [row[place] for row in given[UNNAMED]] for name, place in places.items()}
    if not call.named:
        if len(names) > 1:
            raise BadRequest(f"this version has several inputs, name them: {listed}")
        return {names[0]: given[UNNAMED]}
    for name in given:
        if name not in names:
            raise BadRequest(f"there is no input {name!r}, expected {listed}")
    for name in names:
        if name not in given:
            raise BadRequest(f"{label(name)} is missing")
    return given


def common_rows(rows: Mapping[str, int]) -> int:
    """Return the number of rows that all inputs have. BadRequest where there are none, too many, or unequal numbers."""
    (first, count), *others = rows.items()
    for name, other in others:
        if other != count:
            raise BadRequest(f"{label(name)} has {other} rows, but {label(first)} has {count}")
    if count == 0:
        raise BadRequest(f"{label(first)} has no rows")
    if count > MOST_ROWS:
        raise BadRequest(f"{label(first)} has {count} rows, at most {MOST_ROWS} are answered at once")
    return count


def numbers(name: str, value: Any, kind: np.dtype[Any] | None = None) -> Array:
    """Return numbers or truth values as an array, which can then be cast to `kind`. JSON's null is NaN."""
    if isinstance(value, np.ndarray):
        array = value
    else:
        try:
            array = np.asarray(value)
            if array.dtype == object:
                array = np.asarray(value, dtype=np.float64)
            elif kind == np.uint64 and array.dtype.kind == "f":
                # Numpy makes floats of small and large whole numbers together, which would lose digits.
                whole = np.asarray(value, dtype=kind)
                array = whole if np.array_equal(whole.astype(np.float64), array) else array
        except (ValueError, TypeError, OverflowError):
            raise BadRequest(f"{label(name)} is no array of numbers, all of whose rows have the same shape") from None
    if array.dtype.kind not in "biuf":
        raise BadRequest(f"{label(name)} has other values than numbers")
    if array.size > MOST_NUMBERS:
        raise BadRequest(f"{label(name)} has more than {MOST_NUMBERS} numbers")
    return array


def cast(name: str, array: Array, kind: np.dtype[Any]) -> Array:
    """Return an array as another type. BadRequest where a number would become another one, but for rounding."""
    if array.dtype == kind:
        return array
    with np.errstate(all="ignore"):
        changed = array.astype(kind)
    if kind.kind == "f" and np.isfinite(changed).all():
        return changed
    # NaN differs from everything, so it is no whole number.
    bad = np.isinf(changed) & np.isfinite(array) if kind.kind == "f" else changed != array
    if bad.any():
        raise BadRequest(f"{label(name)}: {array[bad].flat[0]} is no {DATATYPE_OF[kind.name]}")
    return changed


def _fit(expected: Tensor, value: Any, *, strict: bool) -> tuple[Array, bool]:
    """Return an input of the signature with its rows first, and whether it came as one row without that dimension."""
    name, kind = expected.name, np.dtype(DATATYPES[expected.datatype])
    array = numbers(name, value, kind)
    if strict and array.dtype != kind:
        raise BadRequest(f"{label(name)}: datatype {DATATYPE_OF[array.dtype.name]}, expected {expected.datatype}")
    shape = expected.shape[1:]
    single = array.ndim == len(shape)
    if not single and array.ndim != len(expected.shape):
        raise BadRequest(f"{label(name)}: shape {times(array.shape)}, expected {times(expected.shape)}")
    row = array.shape if single else array.shape[1:]
    if any(size not in (-1, found) for size, found in zip(shape, row, strict=True)):
        if len(shape) == 1:
            raise BadRequest(f"{label(name)}: {row[0]} numbers, expected {shape[0]} a row")
        raise BadRequest(f"{label(name)}: rows of {times(row)}, expected {times(shape)}")
    return cast(name, array[None] if single else array, kind), single
