"""A trained model as an ONNX file: what it computes is what the model computes, for any number of samples."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

from edt_sdk.training.checkpoints import onnx_file
from edt_sdk.training.member import onnx_export
from edt_sdk.training.sampling.order import Order
from edt_sdk.training.update.loader import ShardLoader

CPU = torch.device("cpu")


class Net(nn.Module):
    """What models of digits are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4 * 36, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.convolution(x)))
        x = nn.functional.dropout(x, training=self.training)
        return nn.functional.log_softmax(self.linear(x.flatten(1)), dim=1)


class Pictures:
    def __init__(self, size: int = 5) -> None:
        self.asked: list[int] = []
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.asked.append(index)
        return torch.full((1, 8, 8), float(index)), index


def export(folder: Path, model: nn.Module, data: Any, collate: Any = None) -> Path:
    with ShardLoader(data, collate, 0) as loader:
        onnx_export.attempt(folder, model, loader, Order(len(data), (4,), 4, 0, 2), CPU)
    return folder / onnx_export.NAME


def run(path: Path, **inputs: Any) -> list[np.ndarray]:
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return ReferenceEvaluator(model).run(None, {name: value.numpy() for name, value in inputs.items()})


@pytest.mark.parametrize("size", [1, 5])
def test_the_file_computes_what_the_model_does_for_any_number_of_samples(tmp_path: Path, size: int) -> None:
    model, data = Net().train(), Pictures(size)
    model.linear.eval()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(4)
    before = torch.get_rng_state()
    path = export(tmp_path / "train", model, data)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in model.modules()] == modes
    assert [p.name for p in path.parent.iterdir()] == [onnx_export.NAME]
    assert data.asked == [0, min(1, size - 1)]
    model.eval()
    for count in (1, 2, 7):
        x = torch.rand(count, 1, 8, 8)
        (y,) = run(path, input=x)
        np.testing.assert_allclose(y, model(x).detach(), rtol=1e-4, atol=1e-5)
    graph = onnx.load(path).graph
    assert [graph.input[0].name, graph.output[0].name] == ["input", "output"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, features: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.linear(features["left"]) * features["right"]


def test_features_may_have_any_structure(tmp_path: Path) -> None:
    data = [({"left": torch.ones(3) * n, "right": torch.ones(2)}, n) for n in range(3)]
    model = Pair()
    path = export(tmp_path, model, data)
    names = [entry.name for entry in onnx.load(path).graph.input]
    values = torch.rand(4, 3), torch.rand(4, 2)
    (y,) = run(path, **dict(zip(names, values, strict=True)))
    expected = model({"left": values[0], "right": values[1]}).detach()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


class Counting(nn.Module):
    """Its way depends on the data, which no graph can tell."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if x.sum().item() > 0 else -self.linear(x)


def test_a_model_that_cannot_be_exported_is_a_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "edt_sdk"):
        path = export(tmp_path, Counting(), [(torch.ones(3), 0)] * 4)
    assert not list(tmp_path.iterdir())
    (said,) = (record.getMessage() for record in caplog.records if record.name.startswith("edt_sdk"))
    assert said.startswith("No ONNX file was written: this model cannot be exported (GuardOnDataDependent")
    assert said.endswith("Its weights are in model_epoch_final.pth.")
    assert "\n" not in said
    assert not path.exists()


def test_without_its_packages_the_log_says_how_to_get_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "_NEEDED", ("onnx", "no_such_package"))
    export(tmp_path, Net(), Pictures())
    assert caplog.messages == [
        "No ONNX file was written: no_such_package is not installed here. pip install 'jupyter-edt[onnx]'"
    ]
    assert not list(tmp_path.iterdir())


def test_large_weights_lie_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "_LARGEST_MESSAGE", 100)
    model = Net().eval()
    path = export(tmp_path, model, Pictures())
    assert sorted(p.name for p in tmp_path.iterdir()) == [onnx_export.NAME, f"{onnx_export.NAME}.data"]
    x = torch.rand(3, 1, 8, 8)
    (y,) = ReferenceEvaluator(str(path)).run(None, {"input": x.numpy()})
    np.testing.assert_allclose(y, model(x).detach(), rtol=1e-4, atol=1e-5)
