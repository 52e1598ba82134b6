"""What a training writes beside its weights for the replicas of a version, and a replica that reads it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.registered import Serves
from edt_sdk.schemas.serving.examples import Examples, FeatureLayout
from edt_sdk.schemas.serving.replica_channel import SOCKET, Signature
from edt_sdk.schemas.serving.replica_channel import Tensor as Named
from edt_sdk.schemas.validation import Validates
from edt_sdk.schemas.wire import link as wire
from edt_sdk.schemas.wire.context import WorkerContext, to_environ
from edt_sdk.training.member import examples
from edt_sdk.training.member.parts import Data
from edt_sdk.training.sampling.order import Order, TestOrder
from edt_sdk.training.state import state
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.user.payload import Training, TrainOptions
from tests.training.serving.edge import Edge, request
from tests.training.stand_in import COMPAT, StandIn

HERE = Path(__file__).parents[1]
CPU = torch.device("cpu")
SCRIPT = """
import torch
from torch import nn
from fabric_model import FabricModel

if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    FabricModel(model, dict, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1)).train(1, 4, 2)
"""


def load(file: bytes) -> np.ndarray:
    return np.load(io.BytesIO(file))


def attempt(
    path: Path,
    model: nn.Module,
    train: Any,
    test: Any = None,
    collate: Any = None,
    test_collate: Any = None,
) -> Examples | None:
    tests = 0 if test is None else len(test)
    with ShardLoader(train, collate, 3, test_dataset=test, test_collate=test_collate) as loader:
        data = Data(Order(len(train), (4,), 4, 3, 2), TestOrder(tests, (4,), 4), loader)
        examples.attempt(path, model, data, CPU)
    return msgspec.json.decode(path.read_bytes(), type=Examples) if path.exists() else None


class Noisy(nn.Module):
    """Draws numbers, counts its calls in a buffer and replaces another one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("last", torch.zeros(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        random.random(), np.random.rand(), torch.rand(1)
        self.calls += 1
        self.last = self.norm(self.linear(x))
        return nn.functional.dropout(self.last, training=self.training)


def test_examples_are_the_first_rows_of_the_test_set_alone_and_leave_no_trace(tmp_path: Path) -> None:
    model = Noisy().train()
    model.norm.eval()
    torch.manual_seed(2)
    before, flags = state.own_copies(model), state.flags(model)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    train = [(torch.zeros(3), 0)] * 9
    test = [(torch.rand(3, generator=torch.Generator().manual_seed(n)), 0) for n in range(5)]
    found = attempt(tmp_path / "signature.json", model, train, test)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states
    assert state.differing(model, before) == {}
    assert state.flags(model) == flags
    assert found is not None
    inputs, outputs = (Named("input", "FP32", (-1, 3)),), (Named("output", "FP32", (-1, 2)),)
    assert (found.signature, found.layout) == (Signature(inputs, outputs), FeatureLayout.TENSOR)
    assert [load(each.inputs["input"]).tolist() for each in found.examples] == [[x.tolist()] for x, _ in test[:3]]
    model.eval()
    for each in found.examples:
        x = torch.from_numpy(load(each.inputs["input"]))
        assert load(each.outputs["output"]).tobytes() == model(x).detach().numpy().tobytes()


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 4)

    def forward(self, batch: dict[str, Tensor]) -> Any:
        vectors = self.words(batch["words"]) * batch["mask"][..., None]
        return {"vector": vectors.sum(1), "words": vectors}


def test_structures_and_free_sizes_are_known_from_the_samples(tmp_path: Path) -> None:
    def sample(length: int) -> Any:
        return {"words": torch.arange(length), "mask": torch.ones(length, dtype=torch.bool)}, 0

    found = attempt(tmp_path / "s", Pair(), [sample(length) for length in (3, 5)])
    assert found is not None
    assert found.layout is FeatureLayout.DICT
    assert found.signature.inputs == (Named("words", "INT64", (-1, -1)), Named("mask", "BOOL", (-1, -1)))
    assert found.signature.outputs == (Named("vector", "FP32", (-1, 4)), Named("words", "FP32", (-1, -1, 4)))
    assert len(found.examples) == 2

    def together(samples: list[Any]) -> Any:
        return [torch.stack([x for x, _ in samples]), torch.zeros(len(samples))], None

    found = attempt(tmp_path / "l", Applied(lambda x: (x[0], x[1] + 1)), [(torch.ones(2), 0)] * 3, collate=together)
    assert found is not None
    assert found.layout is FeatureLayout.LIST
    assert [(each.name, each.shape) for each in found.signature.inputs] == [("input_0", (-1, 2)), ("input_1", (-1,))]
    assert [each.name for each in found.signature.outputs] == ["output_0", "output_1"]


class Applied(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def fails(*_: Any) -> Any:
    raise SystemError("not today")


ONES = [(torch.ones(2), 0)] * 4


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (fails, {"train": ONES}),
        (lambda x: x, {"train": ONES, "collate": fails}),
        (lambda x: x, {"train": [torch.ones(2)] * 4}),
        (lambda x: x[0], {"train": [(["text"], 0)] * 4, "collate": lambda samples: (["text"], 0)}),
        (lambda x: x.sum(), {"train": ONES}),
        (lambda x: x.flatten(), {"train": ONES}),
        (lambda x: [x, "text"], {"train": ONES}),
        (lambda x: x.float(), {"train": [(torch.ones(2, dtype=torch.bfloat16), 0)] * 4}),
        (lambda x: x * 1j, {"train": ONES}),
        (lambda x: x[:, :1], {"train": [(torch.ones(300_000), 0)] * 4}),
        (lambda x: x.expand(1, 300_000, 2), {"train": ONES}),
        (lambda x: x, {"train": [(torch.ones(2), 0), (torch.ones(2, dtype=torch.int64), 0)]}),
        (lambda x: x, {"train": [(torch.ones(2), 0), (torch.ones(2, 2), 0)]}),
    ],
)
def test_what_does_not_fit_writes_nothing(
    tmp_path: Path, function: Any, given: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    assert attempt(tmp_path / "signature.json", Applied(function), **given) is None
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert attempt(tmp_path / "file" / "signature.json", Applied(lambda x: x), ONES) is None


class Samples:
    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 3, generator=generator)
        self.y = torch.randint(0, 2, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


def step(model: Any, data: Any, eva: Any, loader: Any, arguments: Any) -> Any:
    loss = nn.functional.cross_entropy(model(data[0]), data[1])
    loss.backward()
    return 0, loss


@contextlib.contextmanager
def trained(*, own_step: bool = False, validates: Validates | None = None) -> Iterator[StandIn]:
    torch.manual_seed(11)
    model = net()
    with StandIn(main="train.py") as job:
        job.job = msgspec.structs.replace(job.job, validates=validates)
        job.pack(
            Training(
                model=model,
                datasets_function=lambda: (Samples(20, 1), Samples(6, 2)),
                loss_function=nn.functional.cross_entropy,
                optimizer=torch.optim.Adam(model.parameters(), lr=0.02),
                options=TrainOptions(epochs=2, micro_batch=4, shards=(4, 4), loader_workers=0 if own_step else 1),
                fn_step_train=step if own_step else None,
            ),
            HERE,
        )
        job.prepare(0)
        job.generation(1, 0)
        job.expect("w0", wire.Trained)
        assert job.exit_code("w0") == 0, job.children["w0"].text
        yield job


def test_steps_of_the_users_own_and_validations_write_none() -> None:
    validates = Validates(training="before", training_name="before", metrics=("loss",))
    with trained(own_step=True) as job:
        assert job.paths.final(0).exists()
        assert not job.paths.signature(0).exists()
    with trained(validates=validates) as job:
        assert job.paths.validation.exists()
        assert not job.paths.signature(0).exists()


def test_a_training_writes_examples_that_its_replica_answers_alike() -> None:
    with trained() as job:
        signature, final = job.paths.signature(0), job.paths.final(0)
        weights = job.root / "version" / "weights.pth"
        weights.parent.mkdir()
        weights.write_bytes(final.read_bytes())
        (weights.parent / "signature.json").write_bytes(signature.read_bytes())
        (job.code / "train.py").write_text(SCRIPT)
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        replica = msgspec.structs.replace(
            job.job,
            framework=Framework.SERVE.value,
            warm_start=str(weights),
            serve_socket=str(job.root / SOCKET),
            serves=Serves(deployment="d", revision=1, version="d/1", sha256=digest, exact=True, max_batch=8),
        )
        with contextlib.closing(Edge(job.root / SOCKET)) as edge:
            environ = {**to_environ(replica, WorkerContext(worker=1, slot=0, device="cpu"))}
            job._start("w1", "edt_sdk.serving.replica", environ, {"PYTHONPATH": str(COMPAT / "kernel")})
            ready = edge.accept()
            found = msgspec.json.decode(signature.read_bytes(), type=Examples)
            assert ready.signature == found.signature
            assert ready.signature.inputs == (Named("input", "FP32", (-1, 3)),)
            (reply,) = edge.ask(request({"inputs": [1, 2, 3, 4]}))
            assert (reply.status, reply.error) == (400, "input 'input': 4 numbers, expected 3 a row")
            for each in found.examples:
                (reply,) = edge.ask(request(each.inputs["input"], content_type="application/x-npy"))
                np.testing.assert_allclose(load(reply.body), load(each.outputs["output"]), rtol=1e-5)
        # What it could not answer as the training did would be a line there.
        assert "example" not in job.children["w1"].text
