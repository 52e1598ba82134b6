"""Folders of MLflow and ONNX files as runtimes, and the ones that versions are exported to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import mlflow.pytorch
import msgspec
import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from mlflow.models import infer_signature
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.registered import Runtime, Serves
from edt_sdk.schemas.serving.examples import Example, Examples, FeatureLayout
from edt_sdk.schemas.serving.replica_channel import Signature, Tensor
from edt_sdk.serving import foreign_model
from edt_sdk.serving.batching import Batching
from edt_sdk.serving.open_inference import ServedNames
from edt_sdk.training.checkpoints import exports, onnx_file
from tests.training.serving.edge import Reply, npy, replies, request, tensor, v2
from tests.training.serving.test_replica import Net, array, deployment, edges, rows

__all__ = ["deployment", "edges"]
# MLflow warns of pandas, of its own classes and of models that are code.
pytestmark = pytest.mark.filterwarnings("ignore")
SERVES = Serves(deployment="net", revision=1, version="net/1", sha256="", max_batch=4)


class Both(nn.Module):
    """Takes a dictionary, and answers with one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        a, b = features["a"], features["b"]
        return {"less": (a - b) * self.scale, "double": 2 * a}


def ask(runtime: Any, *asked: Any) -> list[Reply]:
    """Send requests to a runtime as one batch."""
    answers, bodies = Batching(runtime, ServedNames.of(SERVES)).answer(
        [each for each, _ in asked], [memoryview(body) for _, body in asked]
    )
    return replies(answers, bodies)


def examples(x: torch.Tensor, layout: FeatureLayout = FeatureLayout.TENSOR, **more: torch.Tensor) -> Examples:
    """Describe a model by one row of each input."""
    inputs = more or {"input": x}
    described = tuple(Tensor(name, "FP32", (-1, *each.shape[1:])) for name, each in inputs.items())
    files = {name: npy(each[:1].numpy()) for name, each in inputs.items()}
    return Examples(signature=Signature(described), layout=layout, examples=(Example(files, {}),))


def test_an_exported_onnx_file_answers_in_batches_of_any_size(tmp_path: Path) -> None:
    """Also: requests that do not fit are refused, and a model of several inputs and outputs keeps their names."""
    net, x = Net(), torch.rand(6, 4)
    net.train()
    exports.to_onnx(tmp_path / "net-1.onnx", net, examples(x))
    assert net.training, "the modes are as before"
    assert [each.name for each in tmp_path.iterdir()] == ["net-1.onnx"]
    served = foreign_model.onnx_model(tmp_path / "net-1.onnx", max_batch=4, exact=False)
    assert served.signature == Signature((Tensor("input", "FP32", (-1, 4)),), (Tensor("output", "FP32", (-1, 3)),))
    with torch.no_grad():
        expected = net.eval()(x).numpy()
    whole, first, wrong = ask(served, rows(x), rows(x[:1]), request({"inputs": [[1, 2]]}))
    np.testing.assert_allclose(array(whole), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(array(first), expected[:1], rtol=1e-5, atol=1e-6)
    assert (wrong.status, wrong.error) == (400, "input 'input': 2 numbers, expected 4 a row")

    given = {"b": torch.rand(1, 2), "a": torch.rand(1, 2)}
    exports.to_onnx(tmp_path / "both.onnx", Both(), examples(x, FeatureLayout.DICT, **given))
    both = foreign_model.onnx_model(tmp_path / "both.onnx", max_batch=4, exact=False)
    (found,) = ask(both, request({"inputs": {"a": [[1, 2]], "b": [[3, 5]]}}))
    assert found.status == 200, found.body
    assert found.json["outputs"] == {"less": [[-6, -9]], "double": [[2, 4]]}


def test_an_onnx_file_for_batches_of_one_size_gets_batches_of_that_size(tmp_path: Path) -> None:
    net, x = Net().eval(), torch.rand(3, 4)
    torch.onnx.export(net, (x[:2],), tmp_path / "two.onnx", dynamo=True, verbose=False, input_names=["x"])
    session = onnxruntime.InferenceSession(tmp_path / "two.onnx")
    assert session.get_inputs()[0].shape == [2, 4], "or this test shows nothing"
    served = foreign_model.onnx_model(tmp_path / "two.onnx", max_batch=32, exact=False)
    (found,) = ask(served, rows(x))
    np.testing.assert_allclose(array(found), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_an_onnx_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(Unprocessable, match=r"bad\.onnx cannot be loaded"):
        foreign_model.onnx_model(tmp_path / "bad.onnx", max_batch=1, exact=False)


def test_an_exported_folder_of_mlflow_gives_equal_numbers_in_mlflow_and_here(tmp_path: Path) -> None:
    """Also: it needs nothing of ours, a second export replaces the first, and v2 knows its names."""
    net, x = Net(), torch.rand(3, 4)
    target = tmp_path / "net-1-mlflow"
    for _ in range(2):
        exports.to_mlflow(target, net, examples(x))
    assert [each.name for each in tmp_path.iterdir()] == ["net-1-mlflow"]
    with torch.no_grad():
        expected = net.eval()(x).numpy()
    theirs = mlflow.pyfunc.load_model(str(target)).predict(x.numpy())
    # The graph may choose another kernel than the module, which on some processors rounds the last bit otherwise.
    np.testing.assert_allclose(theirs, expected, rtol=1e-5, atol=1e-7)
    assert "edt" not in (target / "MLmodel").read_text() + (target / "requirements.txt").read_text()
    served = foreign_model.mlflow_model(target, max_batch=4, exact=False)
    assert served.signature == Signature((Tensor("input", "FP32", (-1, 4)),), (Tensor("output", "FP32", (-1, 3)),))
    found, named, wrong = ask(
        served,
        rows(x),
        v2(tensor("input", [1, 4], "FP32", x[0].tolist())),
        v2(tensor("input", [1, 4], "FP64", x[0].tolist())),
    )
    np.testing.assert_allclose(array(found), expected, rtol=1e-5, atol=1e-7)  # in a batch of another size
    assert named.json["outputs"][0]["shape"] == [1, 3]
    assert (wrong.status, wrong.error) == (400, "input 'input': datatype FP64, expected FP32")


def test_models_that_cannot_be_exported_are_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    x = torch.rand(1, 4)
    for write in (exports.to_onnx, exports.to_mlflow):
        with pytest.raises(Unprocessable, match=r"cannot be exported: .*[Dd]ata.dependent"):
            write(tmp_path / "made", Branches(), examples(x))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Unprocessable, match="one array, and this one takes several"):
        exports.to_mlflow(tmp_path / "made", Both(), examples(x, FeatureLayout.DICT, a=x, b=x))
    monkeypatch.setattr(onnx_file, "impediment", lambda: "onnx is not installed here.")
    with pytest.raises(Unprocessable, match="No ONNX file can be written: onnx is not installed here"):
        exports.to_onnx(tmp_path / "made", Net(), examples(x))


def test_a_model_of_mlflow_without_a_signature_takes_rows_of_numbers(tmp_path: Path) -> None:
    torch.manual_seed(1)
    net, x = Net().eval(), torch.rand(2, 4)
    mlflow.pytorch.save_model(net, str(tmp_path / "m"), serialization_format="pickle", pip_requirements=["torch"])
    served = foreign_model.mlflow_model(tmp_path / "m", max_batch=4, exact=False)
    assert served.signature is None
    (found,) = ask(served, rows(x))
    with torch.no_grad():
        assert array(found).tobytes() == net(x).numpy().tobytes()


@pytest.mark.parametrize("answer", [None, np.array(["no", "yes"])], ids=["unknown", "texts"])
def test_a_model_of_mlflow_may_say_what_it_takes_and_no_numbers_of_what_it_returns(tmp_path: Path, answer: Any) -> None:
    class Doubles(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
        def predict(self, context: Any, model_input: np.ndarray) -> np.ndarray:
            return 2 * model_input

    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    signature = infer_signature(x, answer)
    mlflow.pyfunc.save_model(
        str(tmp_path / "m"), python_model=Doubles(), signature=signature, pip_requirements=["numpy"]
    )
    served = foreign_model.mlflow_model(tmp_path / "m", max_batch=4, exact=False)
    assert served.signature == Signature((Tensor("input", "FP64", (-1, 2)),))
    (found,) = ask(served, request({"inputs": x.tolist()}))
    assert found.json["outputs"] == [[2, 4], [6, 8]]


def test_a_model_of_mlflow_that_takes_columns_gets_a_table(tmp_path: Path) -> None:
    """Also: texts, rows without names, and rows that do not fit, which harm no other."""

    class Fares(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
        def predict(self, context: Any, model_input: pd.DataFrame) -> pd.DataFrame:
            fare = model_input["km"] * model_input["people"] + (model_input["tariff"] == "night") * 10
            return pd.DataFrame({"fare": fare, "tariff": model_input["tariff"]})

    table = pd.DataFrame({"km": [1.5], "people": [2], "tariff": ["day"]})
    signature = infer_signature(table, pd.DataFrame({"fare": [3.0], "tariff": ["day"]}))
    mlflow.pyfunc.save_model(
        str(tmp_path / "m"), python_model=Fares(), signature=signature, input_example=table, pip_requirements=["pandas"]
    )
    served = foreign_model.mlflow_model(tmp_path / "m", max_batch=4, exact=False)
    split = {"dataframe_split": {"columns": ["km", "people", "tariff"], "data": [[2, 3, "night"], [1, 1, "day"]]}}
    found, wrong, absent, positions = ask(
        served,
        request(split, form="invocations"),
        request({"inputs": {"km": ["far"], "people": [1], "tariff": ["day"]}}),
        request({"inputs": {"km": [1.0], "tariff": ["day"]}}),
        request({"inputs": [[4, 1, "day"]]}),
    )
    assert found.json == {"predictions": [{"fare": 16, "tariff": "night"}, {"fare": 1, "tariff": "day"}]}
    assert (wrong.status, absent.status) == (400, 400)
    assert "far" in wrong.error
    assert "people" in absent.error
    assert positions.json["outputs"] == [{"fare": 4, "tariff": "day"}]


def test_without_the_package_a_model_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(Unprocessable, match="needs onnxruntime, which is not installed here") as refused:
        foreign_model.onnx_model(tmp_path / "net.onnx", max_batch=1, exact=False)
    assert refused.value.hint == "pip install 'jupyter-edt[onnx]'"


@pytest.mark.parametrize("runtime", [Runtime.ONNX, Runtime.MLFLOW])
def test_a_replica_serves_a_folder(deployment: Any, edges: Any, runtime: Runtime) -> None:
    at = deployment(runtime=runtime, sha256="", max_batch=4)
    x = torch.rand(2, 4)
    if runtime is Runtime.ONNX:
        exports.to_onnx(at.code / "net.onnx", at.model, examples(x))
        at.job = msgspec.structs.replace(at.job, main="net.onnx")
    else:
        exports.to_mlflow(at.code.with_name("made"), at.model, examples(x))
        for path in at.code.with_name("made").iterdir():
            path.rename(at.code / path.name)
    at.start_replica()
    edge = edges(at)
    assert edge.accept().signature.inputs == (Tensor("input", "FP32", (-1, 4)),)
    (found,) = edge.ask(rows(x))
    with torch.no_grad():
        np.testing.assert_allclose(array(found), at.model(x).numpy(), rtol=1e-5, atol=1e-6)
