"""Replicas as real processes, between a stand-in of the supervisor and the edge's end of the channel."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.registered import Runtime, Serves
from edt_sdk.schemas.serving.replica_channel import LENGTHS, SOCKET
from edt_sdk.schemas.wire import link as wire
from edt_sdk.schemas.wire.context import WorkerContext, to_environ
from tests.training.serving.edge import Edge, npy, request, tensor, v2
from tests.training.stand_in import COMPAT, Child, StandIn
from tests.waiting import until

MODULE = "edt_sdk.serving.replica"
NPY = "application/x-npy"
# Its rows are poison, or wait for a line in a pipe, where their first number says so.
SCRIPT = """
import sys
import torch
from torch import nn
from fabric_model import FabricModel

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))

    def forward(self, x):
        if (x[:, 0] == 13).any():
            raise RuntimeError("thirteen is not served")
        if (x[:, 0] == 99).any():
            open("pipe").read()
        return self.body(x)

def datasets():
    raise AssertionError("a replica opens no data")

def train(model):
    fabric = FabricModel(model, datasets, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    try:
        fabric.train(1, 4, 2)
    finally:
        print("came back from", type(model).__name__)

if __name__ == "__main__":
    print("argv", sys.argv[1:])
    if "pipe" in sys.argv:
        open("pipe").read()
    if "raise" in sys.argv:
        raise ValueError("no such file")
    train(nn.Linear(2, 2))
    if "once" not in sys.argv:
        train(Net())
"""
PREDICTOR = """
import os

class Predictor:
    def __init__(self, model_dir, params):
        self.names = sorted(os.listdir(model_dir))
        self.params = params
        self.here = os.path.basename(os.getcwd())

    def predict(self, inputs):
        return [[self.here, self.params, *self.names, str(row)] for row in inputs]

    def close(self):
        print("closed", flush=True)
"""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Deployment(StandIn):
    """A revision: its package, its weights, and the place where its edge listens."""

    def __init__(self, *args: str, **serves: Any) -> None:
        super().__init__(main="train.py", args=args)
        (self.code / "train.py").write_text(SCRIPT)
        (self.code / "predictor.py").write_text(PREDICTOR)
        os.mkfifo(self.code / "pipe")
        torch.manual_seed(5)
        self.model = Net().eval()
        self.weights = self.root / "version" / "weights.pth"
        self.weights.parent.mkdir()
        torch.save(self.model.state_dict(), self.weights)
        self.socket = self.root / SOCKET
        digest = hashlib.sha256(self.weights.read_bytes()).hexdigest()
        given = {"deployment": "digits", "revision": 1, "version": "digits/3", "sha256": digest, "calls": 2} | serves
        self.job = msgspec.structs.replace(
            self.job,
            framework=Framework.SERVE.value,
            warm_start=str(self.weights),
            serve_socket=str(self.socket),
            serves=Serves(**given),
        )

    def start_replica(self, *, from_nothing: bool = False) -> Child:
        own = WorkerContext(worker=0, slot=7, device="cpu")
        path = os.pathsep.join(map(str, (COMPAT / "kernel", COMPAT / "job")))
        environ = {**to_environ(self.job, own), "PYTHONPATH": path}
        if not from_nothing:
            return self._start("w0", MODULE, environ)
        said = self.root / "w0.log"
        with self.changed, said.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-u", "-m", MODULE],
                env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join([path, *sys.path])},
                cwd=self.code,
                stdout=log,
                stderr=log,
            )
            child = self.children["w0"] = Child(process, said)  # type: ignore[arg-type]
        return child

    def drain(self) -> None:
        self.send("w0", wire.Drain())

    def release(self) -> None:
        """Let the model go on that waits at the pipe."""
        (self.code / "pipe").write_text("go on")

    @property
    def text(self) -> str:
        return self.children["w0"].text


@pytest.fixture
def deployment() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        yield lambda *args, **serves: stack.enter_context(Deployment(*args, **serves))


@pytest.fixture
def edges() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        yield lambda at: stack.enter_context(contextlib.closing(Edge(at.socket)))


def array(reply: Any) -> np.ndarray:
    assert reply.status == 200, reply.body
    return np.load(io.BytesIO(reply.body))


def rows(x: torch.Tensor) -> Any:
    return request(npy(x.numpy()), content_type=NPY)


def test_the_script_of_the_training_serves_its_model_bit_for_bit(deployment: Any, edges: Any) -> None:
    """Also: an edge that is late, dies and begins anew; a poisoned request; a drain amid a batch."""
    at = deployment("--rate", "2", max_batch=1, exact=True)
    child = at.start_replica(from_nothing=True)
    hello = at.expect("w0", wire.WorkerHello)
    assert (hello.worker, hello.pid, hello.store_port) == (0, child.process.pid, 0)
    assert at.expect("w0", wire.WorkerReady) == wire.WorkerReady(worker=0, training=0)
    edge = edges(at)
    ready = edge.accept()
    assert (ready.worker, ready.slot, ready.most, ready.signature) == (0, 7, 1, None)

    x = torch.randn(5, 4)
    with torch.no_grad():
        expected = [at.model(row[None]).numpy() for row in x]
    together = edge.ask(*(rows(row[None]) for row in x))
    assert [array(reply).tobytes() for reply in together] == [each.tobytes() for each in expected]
    (several,) = edge.ask(rows(x))
    assert array(several).tobytes() == np.concatenate(expected).tobytes()

    poison = request({"inputs": [[13, 0, 0, 0]]})
    good = v2(tensor("x", [1, 4], "FP32", x[0].tolist()))
    found = edge.ask(good, poison, good)
    assert [reply.status for reply in found] == [200, 500, 200]
    assert found[1].json == {"error": "RuntimeError: thirteen is not served"}
    (output,) = found[0].json["outputs"]
    assert np.array(output["data"], np.float32).tobytes() == expected[0].tobytes()

    edge.close()
    at.socket.unlink()
    edge = edges(at)
    assert edge.accept() == ready
    edge.send_bytes(LENGTHS.pack(1, 0) + b"\xc1")  # no message
    assert edge.ended
    assert edge.accept() == ready

    edge.send(request({"inputs": [[99, 0, 0, 0]]}))
    at.drain()

    def refuses() -> bool:
        try:
            edge.send_bytes(b"\0")
        except BrokenPipeError:
            return True
        return False

    until(refuses, "the replica to take nothing more")
    assert child.process.poll() is None
    at.release()
    answers, (reply,) = edge.hear()
    assert (reply.status, answers.leaving, answers.rows) == (200, True, 1)
    assert edge.ended
    assert at.exit_code("w0") == 0, at.text
    said = at.text
    assert "argv ['--rate', '2']" in said
    assert "edt: train() call 1 of the script is passed over; call 2 is served." in said
    assert "came back from Linear" in said
    assert "came back from Net" not in said
    assert said.count("Traceback (most recent call last)") == 1
    assert 'train.py", line 14, in forward' in said
    assert "edt: The edge sent what is no batch, so the replica connects again: " in said


def test_a_predictor_answers_until_it_is_drained(deployment: Any, edges: Any) -> None:
    at = deployment(runtime=Runtime.PREDICTOR, max_batch=8)
    edge = edges(at)
    at.start_replica()
    at.expect("w0", wire.WorkerReady)
    assert edge.accept().most == 8
    texts, image, text = edge.ask(
        request({"inputs": ["a", "b"]}),
        request(b"\x89PNG", content_type="image/png"),
        request(b'["a"]', "verbatim", "text/csv"),
    )
    known = ["code", {}, "weights.pth"]
    assert texts.json == {"outputs": [[*known, "a"], [*known, "b"]], "version": 3}
    assert image.json == {"outputs": [*known, "b'\\x89PNG'"], "version": 3}
    assert text.json == [*known, '["a"]'], "one row, whatever the text looks like"
    at.drain()
    assert edge.ended
    assert at.exit_code("w0") == 0, at.text
    assert at.text.splitlines()[-1] == "closed"


def test_a_replica_without_an_edge_is_drained_at_once(deployment: Any) -> None:
    at = deployment()
    at.start_replica()
    at.expect("w0", wire.WorkerReady)
    at.drain()
    assert at.exit_code("w0") == 0, at.text


def test_a_replica_that_loads_is_drained_at_once(deployment: Any) -> None:
    at = deployment("pipe")
    at.start_replica()
    at.expect("w0", wire.WorkerHello)
    at.drain()
    assert at.exit_code("w0") == 0, at.text


def test_a_model_that_hangs_ends_its_process(deployment: Any, edges: Any) -> None:
    at = deployment(deadline=0.1)
    edge = edges(at)
    at.start_replica()
    edge.accept()
    edge.send(request({"inputs": [[99, 0, 0, 0]]}))
    assert edge.ended
    assert at.exit_code("w0") == 1
    assert "Timeout (0:00:00.200000)!" in at.text
    assert 'train.py", line 16 in forward' in at.text


def failure(at: Deployment) -> wire.Failed:
    at.start_replica()
    with at.changed:
        assert at.changed.wait_for(lambda: any(isinstance(m, wire.Failed) for m in at.children["w0"].inbox), 180)
    assert at.exit_code("w0") == 1
    return next(m for m in at.children["w0"].inbox if isinstance(m, wire.Failed))


def test_weights_that_have_changed_are_not_served(deployment: Any) -> None:
    at = deployment()
    torch.save(Net().state_dict(), at.weights)
    found = hashlib.sha256(at.weights.read_bytes()).hexdigest()
    failed = failure(at)
    assert failed.final
    assert failed.message == (
        "The weights of digits/3 cannot be served. Its weights have changed on disk: "
        f"expected {at.job.serves.sha256}, found {found}. Register the version again, and deploy that."
    )
    assert failed.message in at.text


def test_a_script_that_does_not_come_to_its_call_is_not_served(deployment: Any) -> None:
    failed = failure(deployment("once"))
    assert failed.final
    assert failed.message.startswith(
        "train.py ended after 1 train() calls, so there is no model to serve: the weights of digits/3 are from call 2."
    )


def test_a_script_that_raises_may_be_tried_again(deployment: Any) -> None:
    at = deployment("raise")
    failed = failure(at)
    assert (failed.worker, failed.message, failed.final) == (0, "ValueError: no such file", False)
    assert failed.traceback in at.text
    assert failed.traceback.splitlines()[1].endswith('train.py", line 34, in <module>')


@pytest.mark.parametrize(
    ("source", "message", "final"),
    [
        (None, "The package has no predictor.py. Write one with a class Predictor.", True),
        ("Predictor = 1", "predictor.py has no class Predictor with a method predict. Define", True),
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'. The job runs in", False),
    ],
)
def test_a_package_without_a_predictor_is_not_served(
    deployment: Any, source: str | None, message: str, final: bool
) -> None:
    at = deployment(runtime=Runtime.PREDICTOR)
    path = at.code / "predictor.py"
    path.unlink() if source is None else path.write_text(source)
    failed = failure(at)
    assert failed.message.startswith(message)
    assert failed.final is final


def test_a_replica_ends_with_its_supervisor(deployment: Any, edges: Any) -> None:
    at = deployment()
    edge = edges(at)
    at.start_replica()
    edge.accept()
    at.hang_up("w0")
    assert edge.ended
    assert at.exit_code("w0") == 1
    assert "the supervisor is gone" in at.text
