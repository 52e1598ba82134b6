"""Every request that a replica refuses, with the sentence that its caller gets, and neighbours that are answered."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edt_sdk.schemas.serving.examples import Examples, FeatureLayout
from edt_sdk.schemas.serving.replica_channel import Signature, Tensor
from edt_sdk.serving.batching import Batching
from edt_sdk.serving.open_inference import ServedNames
from edt_sdk.serving.trained_model import TrainedModel
from tests.training.serving.edge import Reply, replies, request, tensor, v2

CPU = torch.device("cpu")
GOOD = {"inputs": [[1.0, 2.0, 3.0, 4.0]]}


class Weighted(nn.Module):
    """Two inputs: numbers and what to take of them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.linear(batch["x"]) * batch["count"][:, None]


def known(*inputs: Tensor, layout: FeatureLayout = FeatureLayout.TENSOR) -> Examples:
    return Examples(signature=Signature(inputs), layout=layout)


def batching(model: nn.Module, examples: Examples | None, max_batch: int = 8, exact: bool = False) -> Batching[Any]:
    trained = TrainedModel(model, CPU, examples, max_batch=max_batch, exact=exact)
    return Batching(trained, ServedNames("digits", "3"))


def ask(batches: Batching[Any], *requests: Any) -> list[Reply]:
    answers, bodies = batches.answer([each for each, _ in requests], [memoryview(body) for _, body in requests])
    return replies(answers, bodies)


ONE = batching(nn.Linear(4, 2), known(Tensor("x", "FP32", (-1, 4))))
WHOLE = batching(nn.Embedding(9, 2), known(Tensor("x", "INT64", (-1, -1))))
IMAGE = batching(nn.Conv2d(1, 1, 2), known(Tensor("x", "FP32", (-1, 1, 3, 3))))
TWO = batching(
    Weighted(), known(Tensor("x", "FP32", (-1, 4)), Tensor("count", "INT64", (-1,)), layout=FeatureLayout.DICT)
)
UNKNOWN = batching(nn.Linear(4, 2), None)
ROW = [1.0, 2.0, 3.0, 4.0]


def binary(body: bytes, size: Any, shape: Any = (1, 4), datatype: str = "FP32", length: int | None = None) -> Any:
    _, content = v2(tensor("x", shape, datatype, None, binary_data_size=size))
    return request(content + body, "v2", "application/octet-stream", len(content) if length is None else length)


V2 = {
    "no inputs": (ONE, v2(), "the request has no inputs"),
    "no list of inputs": (ONE, request({"id": "a"}, "v2"), "the body does not fit: Object missing required field `in"),
    "an unknown name": (ONE, v2(tensor("y", [1, 4], "FP32", ROW)), "there is no input 'y', expected 'x'"),
    "a missing name": (TWO, v2(tensor("x", [1, 4], "FP32", ROW)), "input 'count' is missing"),
    "a name twice": (ONE, v2(*[tensor("x", [1, 4], "FP32", ROW)] * 2), "input 'x' is there twice"),
    "no data": (ONE, v2(tensor("x", [1, 4], "FP32", None)), "input 'x' has no data"),
    "too many numbers a row": (
        ONE,
        v2(tensor("x", [1, 5], "FP32", [*ROW, 5.0])),
        "input 'x': 5 numbers, expected 4 a row",
    ),
    "more data than its shape": (
        ONE,
        v2(tensor("x", [1, 4], "FP32", [*ROW, 5.0])),
        "input 'x': 5 numbers, but its shape 1×4 has 4",
    ),
    "a wrong datatype": (ONE, v2(tensor("x", [1, 4], "FP64", ROW)), "input 'x': datatype FP64, expected FP32"),
    "no datatype": (ONE, v2(tensor("x", [1, 4], "FP8", ROW)), "input 'x': datatype 'FP8', expected one of BOOL"),
    "texts": (ONE, v2(tensor("x", [1], "BYTES", ["a"])), "input 'x' has other values than numbers"),
    "no texts": (ONE, v2(tensor("x", [1], "BYTES", [1])), "input 'x': a value of BYTES is a text, not 1"),
    "a text for a number": (ONE, v2(tensor("x", [1, 4], "FP32", ["1"] * 4)), "input 'x' has other values than numbers"),
    "a null in INT": (WHOLE, v2(tensor("x", [1, 2], "INT64", [1, None])), "input 'x': nan is no INT64"),
    "a fraction in INT": (WHOLE, v2(tensor("x", [1, 2], "INT64", [1, 1.5])), "input 'x': 1.5 is no INT64"),
    "too large for its type": (
        ONE,
        v2(tensor("x", [1, 4], "FP32", [1e39, 0, 0, 0])),
        "input 'x': 1e+39 is no FP32",
    ),
    "too large for INT8": (UNKNOWN, v2(tensor("x", [1, 4], "INT8", [200, 0, 0, 0])), "input 'x': 200 is no INT8"),
    "a huge shape": (ONE, v2(tensor("x", [1 << 20, 1 << 20], "FP32", ROW)), "input 'x': its shape 1048576×1048576 has"),
    "a huge shape without numbers": (
        ONE,
        v2(tensor("x", [0, 1 << 31, 1 << 31], "FP32", [])),
        "input 'x': its shape 0×2147483648×2147483648 has",
    ),
    "many dimensions": (ONE, v2(tensor("x", [1] * 99, "FP32", ROW)), "input 'x': its shape has 99 dimensions"),
    "a negative size": (ONE, v2(tensor("x", [-1, 4], "FP32", ROW)), "input 'x': a size of its shape [-1, 4] is neg"),
    "a wrong rank": (ONE, v2(tensor("x", [1, 1, 4], "FP32", ROW)), "input 'x': shape 1×1×4, expected n×4"),
    "a wrong image": (IMAGE, v2(tensor("x", [1, 1, 3, 2], "FP32", [0] * 6)), "input 'x': rows of 1×3×2, expected"),
    "too many rows": (
        ONE,
        v2(tensor("x", [1025, 4], "FP32", [0] * 4100)),
        "input 'x' has 1025 rows, at most 1024 are answered at once",
    ),
    "no rows": (ONE, v2(tensor("x", [0, 4], "FP32", [])), "input 'x' has no rows"),
    "unequal rows": (
        TWO,
        v2(tensor("x", [1, 4], "FP32", ROW), tensor("count", [2], "INT64", [1, 1])),
        "input 'count' has 2 rows, but input 'x' has 1",
    ),
    "one row among rows": (
        TWO,
        v2(tensor("x", [4], "FP32", ROW), tensor("count", [1], "INT64", [1])),
        "some inputs are one row without the dimension of rows",
    ),
    "a number for rows": (UNKNOWN, v2(tensor("x", [], "FP32", [1])), "input 'x' is one number, expected rows"),
    "an unknown output": (
        ONE,
        v2(tensor("x", [1, 4], "FP32", ROW), outputs=[{"name": "y"}]),
        "there is no output 'y', expected 'output'",
    ),
    "a length beyond the body": (ONE, binary(bytes(16), 17), "input 'x': 16 bytes of binary data are left, not 17"),
    "a length that is no number": (ONE, binary(bytes(16), "16"), "input 'x': 16 bytes of binary data are left, not 16"),
    "a length below 0": (ONE, binary(bytes(16), -1), "input 'x': 16 bytes of binary data are left, not -1"),
    "bytes that belong to nothing": (ONE, binary(bytes(20), 16), "4 bytes after the binary data belong to no input"),
    "fewer bytes than its shape": (ONE, binary(bytes(12), 12), "input 'x': 12 bytes, but its shape 1×4 needs 16"),
    "a header longer than the body": (ONE, binary(b"", 0, length=999), "the JSON before the binary data has 999 bytes"),
    "a header within the JSON": (ONE, binary(bytes(16), 16, length=5), "the body is no JSON: "),
    "elements beyond their bytes": (
        ONE,
        binary(struct.pack("<I", 9) + b"abc", 7, [1], "BYTES"),
        "input 'x': the lengths of its elements go beyond its 7 bytes",
    ),
    "half a length": (ONE, binary(b"ab", 2, [1], "BYTES"), "input 'x': the lengths of its elements go beyond its 2 by"),
    "no JSON": (ONE, request(b"{", "v2"), "the body is no JSON: "),
    "NaN as Python writes it": (ONE, request(b'{"inputs": [NaN]}', "v2"), "the body is no JSON: "),
    "bytes that are no text": (ONE, request(b'{"id": "\xff"}', "v2"), "the body is no JSON: "),
    "JSON within JSON": (ONE, request(b'{"inputs": ' + b"[" * 100_000, "v2"), "the body "),
}  # fmt: skip
SIMPLE = {
    "no inputs": (ONE, request({"input": 1}), 'the body has no "inputs"'),
    "an empty object": (ONE, request({"inputs": {}}), "the request has no inputs"),
    "no object": (ONE, request([1]), "the body does not fit: Expected `object`"),
    "JSON within JSON": (
        ONE,
        request(b'{"inputs": ' + b"[" * 500 + b"]" * 500 + b"}"),
        "input 'x' is no array of numbers",
    ),
    "rows of other lengths": (ONE, request({"inputs": [[1, 2], [3]]}), "input 'x' is no array of numbers"),
    "an object for a number": (ONE, request({"inputs": [{}]}), "input 'x' is no array of numbers"),
    "a huge number": (ONE, request(b'{"inputs": [[1' + b"0" * 400 + b", 2, 3, 4]]}"), "input 'x' "),
    "a text": (ONE, request({"inputs": "abc"}), "input 'x' has other values than numbers"),
    "one row too long": (ONE, request({"inputs": [1, 2, 3, 4, 5]}), "input 'x': 5 numbers, expected 4 a row"),
    "no names": (TWO, request(GOOD), "this version has several inputs, name them: 'x', 'count'"),
    "no .npy": (ONE, request(b"abc", content_type="application/x-npy"), "the body is no file of numpy's format .npy"),
    "pickles": (
        ONE,
        request(b"\x93NUMPY\x01\x00", content_type="application/x-npy"),
        "the body is no file of numpy's format .npy",
    ),
    "a text as it is": (
        ONE,
        request(b'{"inputs": [[1, 2, 3, 4]]}', "verbatim"),
        "this version takes arrays, not a text",
    ),
    "no text as it is": (ONE, request(b"\xff", "verbatim"), "the body is no text in UTF-8"),
    "no instances": (ONE, request({}, "invocations"), 'the body has none of "inputs", "instances" and "dataframe_spl'),
    "an empty list of instances": (ONE, request({"instances": []}, "invocations"), '"instances" is no list of rows'),
    "instances of other names": (
        TWO,
        request({"instances": [{"x": ROW, "count": 1}, {"x": ROW}]}, "invocations"),
        "the instances have different names",
    ),
    "no table": (ONE, request({"dataframe_split": 1}, "invocations"), "the dataframe does not fit: "),
    "a short row": (
        ONE,
        request({"dataframe_split": {"columns": ["a", "b"], "data": [[1]]}}, "invocations"),
        "each row of the dataframe must have 2 values",
    ),
}


@pytest.mark.parametrize(
    ("batches", "bad", "sentence"),
    [*V2.values(), *SIMPLE.values()],
    ids=[*(f"v2: {name}" for name in V2), *(f"simple: {name}" for name in SIMPLE)],
)
def test_a_bad_request_gets_a_sentence_and_its_neighbours_an_answer(batches: Any, bad: Any, sentence: str) -> None:
    good = {
        id(ONE): request(GOOD),
        id(UNKNOWN): request(GOOD),
        id(WHOLE): request({"inputs": [[1, 2]]}),
        id(IMAGE): request({"inputs": np.zeros((1, 1, 3, 3)).tolist()}),
        id(TWO): request({"inputs": {"x": [ROW], "count": [2]}}),
    }[id(batches)]
    first, refused, last = ask(batches, good, bad, good)
    assert refused.status == 400
    assert refused.error.startswith(sentence)
    assert first.status == last.status == 200, first.body
    assert first.body == last.body
    assert "outputs" in first.json


def test_other_content_types_are_refused_with_those_that_can_be_read() -> None:
    (reply,) = ask(ONE, request(b"a,b", content_type="text/csv; header=present"))
    assert reply.status == 415
    assert reply.error == "content type 'text/csv' cannot be read, send application/json or application/x-npy"
    (reply,) = ask(ONE, request(b"\x89PNG", content_type="image/png"))
    assert reply.status == 415
    assert reply.error == "this version takes arrays: send application/json or application/x-npy"


JUNK = [
    b"null",
    b"-1",
    b"1e400",
    b"[]",
    b"{}",
    b'""',
    b"1.5",
    b"[[",
    b"9223372036854775808",
    b'"BYTES"',
    b'"INT8"',
    b"\xff",
]
BODIES = [each for _, each, _ in (*V2.values(), *SIMPLE.values()) if each[0].size < 2000]
EDITS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 9), st.sampled_from([b"", *JUNK])), max_size=4)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from([ONE, TWO, IMAGE]),
    st.sampled_from(BODIES),
    EDITS,
    st.sampled_from(["v2", "simple", "invocations", "verbatim"]),
)
def test_no_body_is_an_error_of_the_model(batches: Any, sample: Any, edits: Any, form: str) -> None:
    """Each edit puts some bytes in place of others."""
    asked, body = sample
    for place, length, junk in edits:
        at = place % (len(body) + 1)
        body = body[:at] + junk + body[at + length :]
    (reply,) = ask(batches, request(body, form, asked.content_type, asked.header_length))
    assert reply.status in (200, 400, 415), reply.error
