"""Read and write the Open Inference Protocol, version 2, with its binary extension.

Without the extension a body is JSON. With it, JSON comes first, its length stands in a header of HTTP, and the data of
each tensor with `binary_data_size` follow, one after the other, little-endian with rows first. An element of BYTES has
its length before it, in four bytes.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from edt_sdk.schemas.registered import Serves
from edt_sdk.schemas.serving.examples import DATATYPE_OF, DATATYPES
from edt_sdk.schemas.serving.replica_channel import ScoringRequest
from edt_sdk.serving.calls import (
    MOST_NUMBERS,
    Array,
    BadRequest,
    InferenceCall,
    Outputs,
    Unanswerable,
    Written,
    label,
    times,
)
from edt_sdk.serving.fitting import cast, numbers

JSON = "application/json"
_BINARY = "application/octet-stream"
_BYTES = "BYTES"
# More than numpy can have, and a product of many sizes takes long.
_MOST_DIMENSIONS = 32
_LENGTH = struct.Struct("<I")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServedNames:
    """The names that answers carry."""

    name: str
    number: str

    @classmethod
    def of(cls, serves: Serves) -> ServedNames:
        """Return the names of what a replica serves."""
        return cls(serves.deployment, serves.version.rpartition("/")[2])

    @property
    def named(self) -> dict[str, Any]:
        """Return the version as the simple form has it."""
        return {"version": int(self.number) if self.number.isdecimal() else self.number}


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: Any = msgspec.UNSET
    parameters: dict[str, Any] = {}


class _Output(msgspec.Struct):
    name: str
    parameters: dict[str, Any] = {}


class _Body(msgspec.Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[_Output] | None = None


def read(request: ScoringRequest, body: memoryview, model: ServedNames) -> InferenceCall:
    """Return a request. BadRequest with a sentence where it is malformed."""
    length = len(body) if request.header_length is None else request.header_length
    if not 0 <= length <= len(body):
        raise BadRequest(f"the JSON before the binary data has {length} bytes, but the body has {len(body)}")
    head = parse(body[:length], _Body)
    if not head.inputs:
        raise BadRequest("the request has no inputs")
    inputs: dict[str, Any] = {}
    at = length
    for given in head.inputs:
        if given.name in inputs:
            raise BadRequest(f"{label(given.name)} is there twice")
        data = None
        if (size := given.parameters.get("binary_data_size")) is not None:
            if type(size) is not int or not 0 <= size <= len(body) - at:
                raise BadRequest(f"{label(given.name)}: {len(body) - at} bytes of binary data are left, not {size}")
            data, at = body[at : at + size], at + size
        inputs[given.name] = _array(given, data)
    if at != len(body):
        raise BadRequest(f"{len(body) - at} bytes after the binary data belong to no input")
    return InferenceCall(inputs, lambda outputs, single: _write(head, model, outputs, single), strict=True)


def parse(body: memoryview, kind: type[T]) -> T:
    """Return a body as JSON of this type. BadRequest where it is none."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as wrong:
        raise BadRequest(f"the body does not fit: {wrong}") from None
    except (msgspec.DecodeError, ValueError) as wrong:
        raise BadRequest(f"the body is no JSON: {wrong}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def encode(value: Any) -> bytes:
    """Return a value as JSON, numbers that are none as null. Unanswerable where it is no JSON value."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except (TypeError, ValueError, RecursionError) as wrong:
        raise Unanswerable(f"the answer cannot be written as JSON: {wrong}") from None


def to_array(values: Array | list[Any]) -> Array:
    """Return answers as an array of numbers. Else as one of texts and bytes, JSON where they are neither."""
    if isinstance(values, np.ndarray):
        return values
    try:
        array = np.asarray([value.tolist() if _is_tensor(value) else value for value in values])
    except ValueError:  # their shapes differ
        array = np.empty(0, object)
    if array.dtype.name in DATATYPE_OF:
        return array
    texts = np.empty(len(values), object)
    texts[:] = [value if isinstance(value, str | bytes) else encode(value) for value in values]
    return texts


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "tolist") and not isinstance(value, np.ndarray)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays and numbers of numpy, tensors
        return value.tolist()
    raise TypeError(f"it has a {type(value).__name__}")


def _array(given: _Input, data: memoryview | None) -> Array:
    """Return an input, of its own datatype and shape."""
    named = label(given.name)
    if len(given.shape) > _MOST_DIMENSIONS:
        raise BadRequest(f"{named}: its shape has {len(given.shape)} dimensions, at most {_MOST_DIMENSIONS}")
    if any(size < 0 for size in given.shape):
        raise BadRequest(f"{named}: a size of its shape {given.shape} is negative")
    # Without zeros, as numpy makes no empty array of a huge shape either.
    if math.prod(size for size in given.shape if size) > MOST_NUMBERS:
        raise BadRequest(f"{named}: its shape {times(given.shape)} has more than {MOST_NUMBERS} numbers")
    count = math.prod(given.shape)
    if given.datatype != _BYTES and given.datatype not in DATATYPES:
        raise BadRequest(f"{named}: datatype {given.datatype!r}, expected one of {', '.join(DATATYPES)} and {_BYTES}")
    if data is None and given.data is msgspec.UNSET:
        raise BadRequest(f"{named} has no data")
    if given.datatype == _BYTES:
        flat = _texts(named, given.data) if data is None else _elements(named, data)
    elif data is None:
        kind = np.dtype(DATATYPES[given.datatype])
        flat = cast(given.name, numbers(given.name, given.data, kind), kind).ravel()
    else:
        kind = np.dtype(DATATYPES[given.datatype]).newbyteorder("<")
        if len(data) != count * kind.itemsize:
            raise BadRequest(
                f"{named}: {len(data)} bytes, but its shape {times(given.shape)} needs {count * kind.itemsize}"
            )
        # Any byte but 0 is true, which numpy does not check.
        flat = np.frombuffer(data, np.uint8) != 0 if kind.kind == "b" else np.frombuffer(data, kind)
    if len(flat) != count:
        what = "values" if given.datatype == _BYTES else "numbers"
        raise BadRequest(f"{named}: {len(flat)} {what}, but its shape {times(given.shape)} has {count}")
    return flat.reshape(given.shape)


def _texts(named: str, data: Any) -> Array:
    flat: list[Any] = []
    rest = [data]
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest.extend(reversed(value))
        elif isinstance(value, str):
            flat.append(value)
        else:
            raise BadRequest(f"{named}: a value of {_BYTES} is a text, not {value!r}")
    return _objects(flat)


def _elements(named: str, data: memoryview) -> Array:
    found, at = [], 0
    while at < len(data):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0] if start <= len(data) else start
        if at > len(data):
            raise BadRequest(f"{named}: the lengths of its elements go beyond its {len(data)} bytes")
        found.append(bytes(data[start:at]))
    return _objects(found)


def _objects(values: list[Any]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _write(head: _Body, model: ServedNames, outputs: Outputs, single: bool) -> Written:
    asked = {name: _Output(name) for name in outputs} if head.outputs is None else {o.name: o for o in head.outputs}
    binary = head.parameters.get("binary_data_output", False) is True
    described, tails = [], []
    for name, output in asked.items():
        if name not in outputs:
            raise BadRequest(f"there is no output {name!r}, expected {', '.join(map(repr, outputs))}")
        array = to_array(outputs[name])
        array = array[0, ...] if single else array
        texts = array.dtype == object
        entry = {"name": name, "datatype": _BYTES if texts else DATATYPE_OF[array.dtype.name], "shape": array.shape}
        if output.parameters.get("binary_data", binary) is True:
            flat = array.ravel()
            tail = b"".join(map(_element, flat)) if texts else flat.astype(flat.dtype.newbyteorder("<")).tobytes()
            described.append({**entry, "parameters": {"binary_data_size": len(tail)}})
            tails.append(tail)
        else:
            described.append({**entry, "data": list(map(_text, array.flat)) if texts else array.ravel().tolist()})
    ids = {"id": head.id} if head.id else {}
    answer = encode({"model_name": model.name, "model_version": model.number, **ids, "outputs": described})
    if not tails:
        return Written(JSON, answer)
    return Written(_BINARY, b"".join([answer, *tails]), len(answer))


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _element(value: str | bytes) -> bytes:
    content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return _LENGTH.pack(len(content)) + content
