"""Read the bodies of requests and write those of answers, in each form that a caller may use.

"simple": `{"inputs": …}` → `{"outputs": …, "version": 3}`, or an array as `application/x-npy` both ways, or the bytes
of one image or file. "verbatim": the whole body is one text, and so is the answer. "invocations", as MLflow's clients
send them: `{"inputs": …}`, `{"instances": …}` or `{"dataframe_split": …}` → `{"predictions": …}`. "v2" is
`open_inference.py`. Inputs are a nested list with rows first, or an object of such lists.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from edt_sdk.schemas.serving.replica_channel import ScoringRequest
from edt_sdk.serving import open_inference
from edt_sdk.serving.calls import UNNAMED, Array, BadRequest, InferenceCall, Outputs, Written
from edt_sdk.serving.open_inference import JSON, ServedNames, encode, parse, to_array

NPY = "application/x-npy"
# One row of bytes, which only the code of a predictor can read.
BYTES = frozenset({"image/png", "image/jpeg", "application/octet-stream"})
# What curl and others send where their user names no type.
_ALSO_JSON = frozenset({"", JSON, "application/x-www-form-urlencoded", "text/plain", "text/json"})


def read(request: ScoringRequest, body: memoryview, model: ServedNames) -> InferenceCall:
    """Return a request of any form. BadRequest with a sentence where it is malformed."""
    if request.form == "v2":
        return open_inference.read(request, body, model)
    if request.form == "verbatim":
        return InferenceCall({UNNAMED: [_text(body)]}, _write_verbatim, named=False, raw=True)
    kind = request.content_type.partition(";")[0].strip().lower()
    if kind == NPY:
        return _call(_npy(body), _write_npy)
    write = _writer({"predictions": None} if request.form == "invocations" else {"outputs": None, **model.named})
    if kind in BYTES:
        return InferenceCall({UNNAMED: [bytes(body)]}, write, named=False, raw=True)
    if kind not in _ALSO_JSON and not kind.endswith("+json"):
        raise BadRequest(f"content type {kind!r} cannot be read, send {JSON} or {NPY}", status=415)
    content = parse(body, dict[str, Any])
    if "inputs" in content:
        return _call(content["inputs"], write)
    if request.form != "invocations":
        raise BadRequest('the body has no "inputs"')
    if "instances" in content:
        return _call(_instances(content["instances"]), write)
    if "dataframe_split" in content:
        return _table(content["dataframe_split"], write)
    raise BadRequest('the body has none of "inputs", "instances" and "dataframe_split"')


def error(text: str) -> Written:
    """Return the body of an answer that names what is wrong."""
    return Written(JSON, encode({"error": text}))


def _call(inputs: Any, write: Callable[[Outputs, bool], Written]) -> InferenceCall:
    if isinstance(inputs, dict) and not inputs:
        raise BadRequest("the request has no inputs")
    return (
        InferenceCall(inputs, write)
        if isinstance(inputs, dict)
        else InferenceCall({UNNAMED: inputs}, write, named=False)
    )


def _instances(rows: Any) -> Any:
    if not isinstance(rows, list) or not rows:
        raise BadRequest('"instances" is no list of rows')
    if not isinstance(rows[0], dict):
        return rows
    names = rows[0].keys()
    if not names or not all(isinstance(row, dict) and row.keys() == names for row in rows):
        raise BadRequest("the instances have different names")
    return {name: [row[name] for row in rows] for name in names}


def _table(content: Any, write: Callable[[Outputs, bool], Written]) -> InferenceCall:
    try:
        table = msgspec.convert(content, _Table)
    except msgspec.ValidationError as wrong:
        raise BadRequest(f"the dataframe does not fit: {wrong}") from None
    if any(len(row) != len(table.columns) for row in table.data):
        raise BadRequest(f"each row of the dataframe must have {len(table.columns)} values, one for each column")
    return InferenceCall({UNNAMED: table.data}, write, named=False, columns=tuple(map(str, table.columns)))


class _Table(msgspec.Struct):
    """What pandas writes with `to_dict("split")`. Its index has no meaning here."""

    columns: list[Any]
    data: list[list[Any]]


def _text(body: memoryview) -> str:
    try:
        return bytes(body).decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is no text in UTF-8") from None


def _write_verbatim(outputs: Outputs, single: bool) -> Written:
    value = next(iter(outputs.values()))[0]
    if not isinstance(value, str):
        return Written(JSON, encode(value))
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return Written("text/plain; charset=utf-8", value.encode())
    return Written(JSON, value.encode())


def _npy(body: memoryview) -> Array:
    try:
        array: Array = np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
    except Exception as wrong:  # numpy parses Python text there, and raises a dozen types
        raise BadRequest(f"the body is no file of numpy's format .npy: {wrong}") from None
    return array


def _writer(content: dict[str, Any]) -> Callable[[Outputs, bool], Written]:
    """Return what writes outputs in place of the None in `content`."""
    (place,) = (name for name, value in content.items() if value is None)

    def write(outputs: Outputs, single: bool) -> Written:
        values = {name: _plain(value, single) for name, value in outputs.items()}
        return Written(JSON, encode({**content, place: values["output"] if list(values) == ["output"] else values}))

    return write


def _plain(values: Array | list[Any], single: bool) -> Any:
    rows = values.tolist() if isinstance(values, np.ndarray) else values
    return rows[0] if single else rows


def _write_npy(outputs: Outputs, single: bool) -> Written:
    if len(outputs) != 1:
        raise BadRequest(f"the answer has several arrays ({', '.join(outputs)}), ask for it as JSON")
    (values,) = outputs.values()
    array = to_array(values)
    if array.dtype == object:
        raise BadRequest("the answer is no array of numbers, ask for it as JSON")
    file = io.BytesIO()
    np.save(file, array[0] if single else array)
    return Written(NPY, file.getvalue())
