"""What a replica answers without its process: the forms, types, batches of equal bits, examples, predictors."""

from __future__ import annotations

import io
import json
import logging
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from torch import Tensor, nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.serving.examples import DATATYPE_OF, DATATYPES, Example, Examples, FeatureLayout
from edt_sdk.schemas.serving.replica_channel import Signature
from edt_sdk.schemas.serving.replica_channel import Tensor as Named
from edt_sdk.serving.batching import Batching
from edt_sdk.serving.open_inference import ServedNames
from edt_sdk.serving.package_predictor import PackagePredictor
from edt_sdk.serving.trained_model import TrainedModel, load_examples, load_weights
from tests.training.serving.edge import Reply, npy, replies, request, tensor, v2

CPU = torch.device("cpu")
NPY = "application/x-npy"


class Calls(nn.Module):
    """Calls a function, and keeps what came in."""

    def __init__(self, function: Callable[..., Any], first: nn.Module | None = None) -> None:
        super().__init__()
        self.function = function
        self.first = first
        self.seen: list[Any] = []

    def forward(self, *args: Any) -> Any:
        self.seen.append(args)
        return self.function(*args)


def served(
    model: nn.Module, *inputs: Named, layout: FeatureLayout = FeatureLayout.TENSOR, **more: Any
) -> Batching[Any]:
    examples = Examples(signature=Signature(inputs), layout=layout) if inputs else None
    trained = TrainedModel(model, CPU, examples, **{"max_batch": 8, "exact": False, **more})
    return Batching(trained, ServedNames("digits", "3"))


def ask(batches: Batching[Any], *requests: Any) -> list[Reply]:
    answers, bodies = batches.answer([each for each, _ in requests], [memoryview(body) for _, body in requests])
    return replies(answers, bodies)


def one(batches: Batching[Any], *given: Any, **more: Any) -> Any:
    (reply,) = ask(batches, request(*given, **more))
    assert reply.status == 200, reply.body
    return reply


# --- forms ------------------------------------------------------------------------------------------------------------


def test_the_simple_form_takes_lists_objects_and_files_of_numpy() -> None:
    double = served(Calls(lambda x: 2 * x), Named("x", "FP32", (-1, 2)))
    assert one(double, {"inputs": [[1, 2], [3, 4.5]]}).json == {"outputs": [[2, 4], [6, 9]], "version": 3}
    assert one(double, {"inputs": {"x": [[1, 2]]}}).json["outputs"] == [[2, 4]]
    assert one(double, {"inputs": [1, 2]}).json["outputs"] == [2, 4], "a row without the dimension of rows"
    assert one(double, {"inputs": [[1, None]]}).json["outputs"] == [[2, None]], "NaN comes and goes as null"
    reply = one(double, npy(np.array([[1, 2]], ">f8")), content_type=NPY)
    assert reply.answer.content_type == NPY
    array = np.load(io.BytesIO(reply.body))
    assert (array.dtype, array.tolist()) == (np.dtype("float32"), [[2, 4]])


def test_invocations_take_inputs_instances_and_tables() -> None:
    add = served(
        Calls(lambda a, b: a + b), Named("a", "FP64", (-1,)), Named("b", "FP64", (-1,)), layout=FeatureLayout.TENSOR
    )
    bodies = [
        {"inputs": {"b": [10, 20], "a": [1, 2]}},
        {"instances": [{"a": 1, "b": 10}, {"a": 2, "b": 20}]},
        {"dataframe_split": {"columns": ["b", "c", "a"], "data": [[10, 0, 1], [20, 0, 2]], "index": [0, 1]}},
    ]
    assert [one(add, body, "invocations").json for body in bodies] == [{"predictions": [11, 22]}] * 3
    double = served(Calls(lambda x: 2 * x))
    bodies = [{"instances": [[1, 2]]}, {"dataframe_split": {"columns": ["p", "q"], "data": [[1, 2]]}}]
    assert [one(double, body, "invocations").json for body in bodies] == [{"predictions": [[2, 4]]}] * 2


def test_outputs_have_the_names_of_the_model() -> None:
    several = served(Calls(lambda x: (x, x.sum(1))))
    assert one(several, {"inputs": [[1, 2]]}).json["outputs"] == {"output_0": [[1, 2]], "output_1": [3]}
    named = served(Calls(lambda x: {"y": x, "same": x > 1}))
    assert one(named, {"inputs": [[1, 2]]}).json["outputs"] == {"y": [[1, 2]], "same": [[False, True]]}
    (reply,) = ask(named, v2(tensor("x", [1, 2], "FP32", [1, 2]), outputs=[{"name": "same"}], id="7"))
    assert reply.json == {
        "model_name": "digits",
        "model_version": "3",
        "id": "7",
        "outputs": [{"name": "same", "datatype": "BOOL", "shape": [1, 2], "data": [False, True]}],
    }
    (reply,) = ask(several, request(npy([[1.0, 2.0]]), content_type=NPY))
    assert reply.status == 400
    assert reply.error == "the answer has several arrays (output_0, output_1), ask for it as JSON"


def test_one_answer_may_have_binary_and_other_tensors() -> None:
    named = served(Calls(lambda x: {"y": x, "z": x + 1}))
    outputs = [{"name": "z", "parameters": {"binary_data": False}}, {"name": "y"}]
    asked = v2(tensor("x", [1, 2], "FP32", [1, 2]), outputs=outputs, parameters={"binary_data_output": True})
    (reply,) = ask(named, asked)
    head = json.loads(reply.body[: reply.answer.header_length])
    assert [each["name"] for each in head["outputs"]] == ["z", "y"]
    assert head["outputs"][0]["data"] == [2, 3]
    assert head["outputs"][1]["parameters"] == {"binary_data_size": 8}
    assert reply.body[reply.answer.header_length :] == struct.pack("<2f", 1, 2)


ARRAYS = st.sampled_from(sorted(DATATYPES.values())).flatmap(
    lambda kind: st_numpy.arrays(kind, st_numpy.array_shapes(max_dims=3, max_side=4))
)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype.kind != "f":
        return one.tobytes() == other.tobytes()
    # JSON has one null for every NaN, and for infinity.
    numbers = np.isfinite(one)
    return bool(np.array_equal(numbers, np.isfinite(other)) and one[numbers].tobytes() == other[numbers].tobytes())


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.text(), ARRAYS, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_arrays_come_back_as_they_went_through_v2(
    arrays: dict[str, np.ndarray], binary_in: bool, binary_out: bool
) -> None:
    rows = min(len(array) for array in arrays.values())
    arrays = {name: array[:rows] for name, array in arrays.items()}
    inputs, tails = [], []
    for name, array in arrays.items():
        tails.append(array.tobytes() if binary_in else b"")
        more = {"binary_data_size": len(tails[-1])} if binary_in else {}
        flat = [None if value != value or value in (np.inf, -np.inf) else value for value in array.ravel().tolist()]
        inputs.append(tensor(name, array.shape, DATATYPE_OF[array.dtype.name], None if binary_in else flat, **more))
    _, head = v2(*inputs, parameters={"binary_data_output": binary_out})
    asked = request(head + b"".join(tails), "v2", header=len(head) if binary_in else None)
    names = [Named(name, DATATYPE_OF[a.dtype.name], (-1, *a.shape[1:])) for name, a in arrays.items()]
    echo = served(Calls(lambda batch: batch), *names, layout=FeatureLayout.DICT)
    (reply,) = ask(echo, asked)
    assert reply.status == 200, reply.body
    length = reply.answer.header_length
    assert (length is not None) == binary_out
    answer, at = json.loads(reply.body[:length]), length
    assert [output["name"] for output in answer["outputs"]] == list(arrays)
    for output, array in zip(answer["outputs"], arrays.values(), strict=True):
        assert (output["datatype"], tuple(output["shape"])) == (DATATYPE_OF[array.dtype.name], array.shape)
        if binary_out:
            size = output["parameters"]["binary_data_size"]
            found = np.frombuffer(reply.body[at : at + size], array.dtype).reshape(array.shape)
            at += size
        else:
            found = np.array([np.nan if v is None else v for v in output["data"]], array.dtype).reshape(array.shape)
        bits = array.tobytes() == found.tobytes()
        assert bits if binary_in and binary_out else same_bits(array, found)


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "value", "kind"),
    [
        (nn.Linear(2, 2), [[1, 2]], torch.float32),
        (nn.Linear(2, 2).double(), [[1, 2]], torch.float64),
        (nn.Linear(2, 2).bfloat16(), [[1.5, 2]], torch.bfloat16),
        (nn.Linear(2, 2), [[True, False]], torch.bool),
        (nn.Embedding(3, 2), [[1, 2]], torch.int64),
        (nn.Embedding(3, 2), [[1.0, 2.0]], torch.float32),
        (nn.Sequential(nn.Dropout(), nn.Embedding(3, 2), nn.Linear(2, 2)), [[1, 2]], torch.int64),
        (None, [[1, 2]], torch.float32),
    ],
)
def test_without_a_signature_numbers_become_what_the_first_layer_takes(
    first: nn.Module | None, value: Any, kind: torch.dtype
) -> None:
    model = Calls(lambda x: x, first)
    one(served(model), {"inputs": value})
    ((x,),) = model.seen
    assert x.dtype is kind
    assert x.tolist() == value


@pytest.mark.parametrize("layout", [None, *FeatureLayout])
def test_the_model_is_called_as_in_its_training(layout: FeatureLayout | None) -> None:
    model = Calls(lambda *args: torch.zeros(1))
    names = () if layout is None else (Named("a", "FP32", (-1,)), Named("b", "FP32", (-1,)))
    names = names[:1] if layout is FeatureLayout.TENSOR else names
    given = {"a": [1.0]} if layout is FeatureLayout.TENSOR else {"b": [2.0], "a": [1.0]}
    one(served(model, *names, layout=layout or FeatureLayout.TENSOR), {"inputs": given})
    a, b = torch.tensor([1.0]), torch.tensor([2.0])
    expected = {None: (b, a), "tensor": (a,), "tuple": ((a, b),), "list": ([a, b],), "dict": ({"a": a, "b": b},)}
    assert str(model.seen[0]) == str(expected[layout])


# --- batches ----------------------------------------------------------------------------------------------------------


def test_requests_that_fit_are_stacked_in_pieces_and_split_again() -> None:
    model = Calls(lambda x: x * x)
    batches = served(model, max_batch=4)
    sizes = [1, 6, 2]
    found = ask(
        batches,
        *(request({"inputs": [[float(10 * size + row)] for row in range(size)]}) for size in sizes),
        request({"inputs": [[1, 2]]}),
    )
    assert [len(x) for (x,) in model.seen] == [4, 4, 1, 1]
    assert [reply.json["outputs"] for reply in found[:3]] == [
        [[float(10 * size + row) ** 2] for row in range(size)] for size in sizes
    ]
    assert found[3].json["outputs"] == [[1, 4]]
    answers, _ = batches.answer([request({"inputs": [[1], [2]]})[0]], [memoryview(b'{"inputs": [[1], [2]]}')])
    assert (answers.rows, answers.leaving) == (2, False)
    assert answers.seconds > 0


def test_exact_fills_every_piece_with_zeros() -> None:
    model = Calls(lambda x: x + 1)
    found = ask(served(model, max_batch=4, exact=True), *[request({"inputs": [[1.0]] * 3})] * 2)
    assert [x.ravel().tolist() for (x,) in model.seen] == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert [reply.json["outputs"] for reply in found] == [[[2]] * 3] * 2


def guarded(x: Tensor) -> Tensor:
    if (x == 13).any():
        raise RuntimeError("thirteen is not served\nand there is more")
    return x


def test_a_poisoned_request_fails_alone(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [request({"inputs": [[n]]}) for n in (1, 13, 2, 13)]
    found = ask(served(Calls(guarded)), *asked)
    assert [reply.status for reply in found] == [200, 500, 200, 500]
    assert [reply.json["outputs"] for reply in found[::2]] == [[[1]], [[2]]]
    assert found[1].json == {"error": "RuntimeError: thirteen is not served"}
    said = capsys.readouterr().err
    assert said.count("Traceback (most recent call last)") == 2
    assert "in guarded" in said
    assert "/serving/batching.py" not in said


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda x: x.sum(), "output of the model has the shape () for 1 rows, which must come first"),
        (lambda x: (x, x.flatten()), "output_1 of the model has the shape (2,) for 1 rows, which must come first"),
        (lambda x: "text", "the model's answer cannot be sent: the model returned a str, which is no tensor"),
        (lambda x: {"a": x, "b": 1}, "the model's answer cannot be sent: b is a int, which is no tensor"),
        (lambda x: x + 1j, "the model's answer cannot be sent: there is no datatype for complex64"),
        (lambda x: sys.exit(3), "SystemExit: 3"),
    ],
)
def test_what_a_model_returns_must_be_tensors_with_rows_first(function: Any, sentence: str) -> None:
    found = ask(served(Calls(function)), *[request({"inputs": [[1.0, 2.0]]})] * 2)
    assert [(reply.status, reply.error) for reply in found] == [(500, sentence)] * 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.unflatten(1, (4, 32)))[:, 0]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "attention": Attention,
    "layers": lambda: nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 8, 8)), nn.Conv2d(2, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10)
    ),
}


def alone_and_together(model: nn.Module, exact: bool) -> tuple[list[bytes], list[bytes]]:
    """The answers to 19 requests one by one, and to all of them at once."""
    batches = served(model, max_batch=32, exact=exact)
    numbers = torch.randn(19, 128, generator=torch.Generator().manual_seed(1)).tolist()
    asked = [request({"inputs": [row]}) for row in numbers]
    return [ask(batches, each)[0].body for each in asked], [reply.body for reply in ask(batches, *asked)]


@pytest.mark.parametrize("name", MODELS)
def test_exact_answers_do_not_depend_on_their_company(name: str) -> None:
    torch.manual_seed(1)
    alone, together = alone_and_together(MODELS[name](), exact=True)
    assert alone == together


def test_without_exact_some_model_answers_by_its_company() -> None:
    """Otherwise the test above shows nothing."""
    torch.manual_seed(1)
    differs = {name: sum(map(bytes.__ne__, *alone_and_together(make(), exact=False))) for name, make in MODELS.items()}
    if not any(differs.values()):
        pytest.skip(f"on this processor none of {', '.join(MODELS)} depends on the size of its batch")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("max_batch", "exact"), [(1, True), (1, False), (8, False)])
def test_one_row_is_answered_as_the_model_answers_it(name: str, max_batch: int, exact: bool) -> None:
    torch.manual_seed(1)
    model = MODELS[name]().eval()
    x = torch.randn(1, 128)
    with torch.no_grad():
        expected = model(x)
    array = np.load(io.BytesIO(one(served(model, max_batch=max_batch, exact=exact), npy(x), content_type=NPY).body))
    assert array.tobytes() == expected.numpy().tobytes()


# --- weights and examples ---------------------------------------------------------------------------------------------


def example(model: nn.Module, x: Tensor) -> Example:
    return Example({"input": npy(x)}, {"output": npy(model(x).detach())})


def checked(caplog: pytest.LogCaptureFixture, model: nn.Module, examples: list[Example], **more: Any) -> list[str]:
    caplog.clear()
    signature = Signature((Named("input", "FP32", (-1, 2)),), (Named("output", "FP32", (-1, 2)),))
    given = Examples(signature=signature, examples=tuple(examples))
    with caplog.at_level(logging.INFO, "edt_sdk"):
        TrainedModel(model, CPU, given, **{"max_batch": 4, "exact": False, **more}).check()
    return caplog.messages


def test_examples_are_compared_with_the_answers_of_the_training(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Linear(2, 2)
    rows = [torch.rand(1, 2) for _ in range(3)]
    right = [example(model, row) for row in rows]
    assert checked(caplog, model, right) == []
    assert checked(caplog, model, right, exact=True) == []
    output = model(rows[1]).detach()
    near = Example(right[1].inputs, {"output": npy(output * (1 + 1e-7))})
    far = Example(right[1].inputs, {"output": npy(output + 0.25)})
    assert checked(caplog, model, [right[0], near]) == []
    (said,) = checked(caplog, model, [right[0], far])
    assert said.startswith("The answer to example 2 is not that of the training: output differs by up to 0.25, its lar")
    other = Example(right[1].inputs, {"y": npy(output)})
    (said,) = checked(caplog, model, [other])
    assert said.endswith("there are other outputs, or other shapes")


def test_a_model_that_looks_at_other_rows_is_told_from_exact_ones(caplog: pytest.LogCaptureFixture) -> None:
    model = Calls(lambda x: x - x.mean(0))
    (said, *more) = checked(caplog, model, [example(model, torch.rand(1, 2)) for _ in range(2)], exact=True)
    assert not more
    assert said == "The answers of this model depend on the requests beside them, although exact is set."


def test_weights_that_do_not_fit_are_an_error_of_the_version(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 3).state_dict(), tmp_path / "w.pth")
    with pytest.raises(Unprocessable, match=r"The weights of digits/3 do not fit the model that its script builds: "):
        load_weights(nn.Linear(2, 2), tmp_path / "w.pth", "digits/3")


def test_a_broken_file_of_examples_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load_examples(tmp_path / "w.pth") is None
    assert caplog.messages == []
    (tmp_path / "signature.json").write_text("{")
    assert load_examples(tmp_path / "w.pth") is None
    assert caplog.messages[0].startswith(f"{tmp_path}/signature.json cannot be read, so inputs are not checked: ")


# --- predictors -------------------------------------------------------------------------------------------------------


class Echo:
    """Returns what it is asked for, and keeps the sizes of its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def predict(self, inputs: list[Any]) -> Any:
        self.calls.append(len(inputs))
        texts = [each for each in inputs if isinstance(each, str)]
        if "fewer" in texts:
            return inputs[1:]
        if "poison" in texts:
            raise KeyError("poison")
        return [each["answer"] if isinstance(each, dict) and "answer" in each else each for each in inputs]


def predictor(max_batch: int = 4) -> tuple[Echo, Batching[Any]]:
    echo = Echo()
    return echo, Batching(PackagePredictor(echo, max_batch), ServedNames("digits", "3"))


def test_a_predictor_gets_values_of_json_one_for_each_row() -> None:
    _, batches = predictor()
    rows = [["a", 1], None, {"b": [True]}]
    assert one(batches, {"inputs": rows}).json == {"outputs": rows, "version": 3}
    assert one(batches, {"inputs": "text"}).json["outputs"] == "text"
    columns = {"a": [1, 2], "b": ["x", "y"]}
    as_rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert one(batches, {"inputs": columns}).json["outputs"] == as_rows
    assert one(batches, {"inputs": {"a": 1, "b": "x"}}).json["outputs"] == as_rows[0]
    table = {"columns": ["a", "b"], "data": [[1, "x"], [2, "y"]]}
    assert one(batches, {"dataframe_split": table}, "invocations").json == {"predictions": as_rows}
    (refused, uneven) = ask(batches, request({"inputs": {"a": 1, "b": [1]}}), request({"inputs": {"a": [], "b": [1]}}))
    assert refused.error == "input 'a' is one value, but others are lists of rows"
    assert uneven.error == "input 'b' has 1 rows, but input 'a' has 0"


def test_a_predictor_gets_bytes_of_images_and_arrays() -> None:
    _, batches = predictor()
    content = b"PNG"
    for kind in ("image/png", "image/jpeg; q=1", "application/octet-stream"):
        assert one(batches, content, content_type=kind).json["outputs"] == "UE5H", "bytes are written as base64"
    reply = one(batches, npy(np.eye(2)), content_type=NPY)
    assert np.load(io.BytesIO(reply.body)).tolist() == [[1, 0], [0, 1]]
    (reply,) = ask(batches, request(npy(np.array(["a"])), content_type=NPY))
    assert (reply.status, reply.error) == (400, "the answer is no array of numbers, ask for it as JSON")


def test_a_predictor_answers_v2_with_numbers_or_texts() -> None:
    _, batches = predictor()
    (numbers, texts, mixed) = ask(
        batches,
        v2(tensor("x", [2, 2], "FP32", [1, 2, 3, 4])),
        v2(tensor("x", [2], "BYTES", ["ä", "b"]), parameters={"binary_data_output": True}),
        v2(tensor("x", [2], "INT64", [1, 2]), tensor("answer", [2], "BYTES", ["a", "b"])),
    )
    (output,) = numbers.json["outputs"]
    assert output == {"name": "output", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}
    length = texts.answer.header_length
    (output,) = json.loads(texts.body[:length])["outputs"]
    assert (output["datatype"], output["shape"]) == ("BYTES", [2])
    assert texts.body[length:] == struct.pack("<I", 2) + "ä".encode() + struct.pack("<I", 1) + b"b"
    (output,) = mixed.json["outputs"]
    assert (output["datatype"], output["data"]) == ("BYTES", ["a", "b"])
    _, binary = v2(tensor("x", [1], "BYTES", None, binary_data_size=5))
    (reply,) = ask(batches, request(binary + struct.pack("<I", 1) + b"\xff", "v2", header=len(binary)))
    assert reply.json["outputs"][0]["data"] == ["\N{REPLACEMENT CHARACTER}"]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), st.booleans(), st.booleans())
def test_texts_come_back_as_they_went_through_v2(texts: list[str], binary_in: bool, binary_out: bool) -> None:
    _, batches = predictor(max_batch=1024)
    texts = [f"{text}." for text in texts]
    tail = b"".join(struct.pack("<I", len(each.encode())) + each.encode() for each in texts) if binary_in else b""
    more = {"binary_data_size": len(tail)} if binary_in else {}
    _, head = v2(
        tensor("x", [len(texts)], "BYTES", None if binary_in else texts, **more),
        parameters={"binary_data_output": binary_out},
    )
    (reply,) = ask(batches, request(head + tail, "v2", header=len(head) if binary_in else None))
    assert reply.status == 200, reply.body
    if not binary_out:
        assert reply.json["outputs"][0]["data"] == texts
        return
    rest = reply.body[reply.answer.header_length :]
    assert rest == b"".join(struct.pack("<I", len(each.encode())) + each.encode() for each in texts)


def test_a_predictor_that_fails_does_so_for_the_guilty_request_alone() -> None:
    echo, batches = predictor()
    asked = [request({"inputs": rows}) for rows in (["a", "b", "c"], ["poison"], ["d", "e"], ["fewer", "f"])]
    found = ask(batches, *asked)
    assert [reply.status for reply in found] == [200, 500, 200, 500]
    assert found[1].error == "KeyError: 'poison'"
    assert found[3].error == "predict() returned 1 answers for 2 rows"
    assert max(echo.calls) == 4


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("ab", "predict() returned a str, expected a list of 1 answers"),
        (None, "predict() returned a NoneType, expected a list of 1 answers"),
        ([object()], "the answer cannot be written as JSON: it has a object"),
        ([{(1,): 1}], "the answer cannot be written as JSON: "),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_the_predictor(answer: Any, sentence: str) -> None:
    class Bad:
        def predict(self, inputs: list[Any]) -> Any:
            return answer

    (reply,) = ask(Batching(PackagePredictor(Bad(), 4), ServedNames("d", "3")), request({"inputs": [1]}))
    assert reply.status == 500
    assert reply.error.startswith(sentence)


def test_numbers_of_numpy_and_tensors_are_values_of_json() -> None:
    class Numbers:
        def predict(self, inputs: list[Any]) -> Any:
            return [{"p": np.float32(0.5), "at": np.arange(2), "t": torch.ones(1, requires_grad=True)}] * len(inputs)

    assert one(Batching(PackagePredictor(Numbers(), 4), ServedNames("d", "3")), {"inputs": [1]}).json["outputs"] == [
        {"p": 0.5, "at": [0, 1], "t": [1]}
    ]
