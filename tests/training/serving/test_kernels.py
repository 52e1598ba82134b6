"""Kernels of WMLA's inference as real replicas: chains of tasks, errors, and what they learn of their world."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from edt_sdk.schemas.registered import Runtime
from edt_sdk.schemas.wire import link as wire
from tests.training.serving.edge import Edge, request, tensor, v2
from tests.training.serving.test_replica import deployment, edges

__all__ = ["deployment", "edges"]
# It answers in four ways, by the first word of its task.
KERNEL = """
import json, os, sys
import redhareapiversion
from redhareapi import Kernel

HERE = os.getcwd()

class K(Kernel):
    def __init__(self, word):
        self.word, self.calls = word, 0

    def on_kernel_start(self, kernel_context):
        os.chdir("/")
        self.about = json.loads(kernel_context.get_model_description())
        self.about["kernel"] = [kernel_context.get_id(), kernel_context.get_instance_id()]

    def on_task_invoke(self, task):
        self.calls += 1
        verb = task.get_input_data().strip('"').split()[0]
        if verb == "hang":
            open(HERE + "/pipe").read()
        if verb == "exit":
            sys.exit("enough")
        if verb == "raise":
            raise ValueError("a bad day")
        if verb == "chain":
            places = []
            while task != None:
                places.append(task)
                before = task.prev()
                task.set_output_data("%d %s %d" % (len(places), before and before.get_input_data(), self.calls))
                task = task.next()
        elif verb == "about":
            known = [task.get_id(), task.get_model_name(), task.get_version(), len(task.get_uuid())]
            task.set_output_data(json.dumps([self.word, HERE, known, self.about]))
        elif verb != "nothing":
            task.set_output_data(task.get_input_data() + "!")

    def on_kernel_shutdown(self):
        print("shut down", flush=True)

if __name__ == "__main__":
    K("hello").run()
"""


def packaged(at: Any, program: str) -> Any:
    """Put a kernel into the package of a deployment."""
    (at.code / "kernel.py").write_text(program)
    at.job = msgspec.structs.replace(at.job, main="kernel.py")
    return at


@pytest.fixture
def kernel(deployment: Any, edges: Any) -> Any:
    """Start a replica with this program, and return it with its edge once it is ready."""

    def start(deadline: float = 30.0, **described: Any) -> tuple[Any, Edge]:
        at = packaged(deployment(runtime=Runtime.KERNEL, sha256="", max_batch=4, deadline=deadline), KERNEL)
        fields = {"name": "k", "kernel_path": "kernel.py", "model_path": "./", "weight_path": "N/A", **described}
        (at.code / "model.json").write_text(json.dumps(fields))
        at.start_replica()
        edge = edges(at)
        edge.accept()
        return at, edge

    return start


def text(body: str) -> Any:
    return request(body.encode(), "verbatim", "")


def test_a_chain_is_walked_once_and_other_tasks_are_given_one_by_one(kernel: Any) -> None:
    at, edge = kernel()
    found = edge.ask(*(text(f"chain {number}") for number in range(4)))
    assert [reply.body.decode() for reply in found] == ["1 None 1", "2 chain 0 1", "3 chain 1 1", "4 chain 2 1"]
    found = edge.ask(text("one"), text("two"))
    assert [(reply.status, reply.body) for reply in found] == [(200, b"one!"), (200, b"two!")]
    assert found[0].answer.content_type.startswith("text/plain")
    # Of a batch only the guilty task fails, and one without an output fails at once.
    found = edge.ask(text("good"), text("raise"), text("nothing"), text("exit"))
    assert [reply.status for reply in found] == [200, 500, 500, 500]
    assert (found[1].error, found[3].error) == ("ValueError: a bad day", "SystemExit: enough")
    assert "has set no output" in found[2].error
    at.drain()
    assert at.exit_code("w0") == 0
    assert "shut down" in at.text


def test_what_a_kernel_learns(kernel: Any) -> None:
    at, edge = kernel(weight_path="weights/a.pth", attributes=[{"key": "a", "value": "b"}])
    (reply,) = edge.ask(text("about"))
    word, here, known, about = reply.json
    assert (word, here) == ("hello", str(at.code.resolve()))
    assert known == ["1", "digits", "digits/3", 36]
    assert about["kernel"][0] == "0"
    assert about["weight_path"] == f"{here}/weights/a.pth"
    assert about["model_path"] == here
    assert about["attributes"] == [{"key": "a", "value": "b"}]


def test_a_kernel_that_hangs_ends_its_process(kernel: Any) -> None:
    at, edge = kernel(deadline=0.1)
    edge.send(text("hang"))
    assert edge.ended
    assert at.exit_code("w0") == 1
    assert "kernel.py" in at.text
    assert "Timeout (0:00:00.200000)!" in at.text


def test_the_forms_of_other_callers(kernel: Any) -> None:
    _, edge = kernel()
    (plain,) = edge.ask(request({"inputs": "about"}))
    assert plain.json["outputs"][0] == "hello"
    (words,) = edge.ask(request({"inputs": "some words"}))
    assert words.json["outputs"] == '"some words"!'
    (several,) = edge.ask(request({"inputs": {"a": 1}}, "invocations"))
    assert several.json == {"predictions": '{"a": 1}!'}
    (parsed,) = edge.ask(v2(tensor("a", [2], "BYTES", ["x", "y"])))
    assert parsed.json["outputs"] == [
        {"name": "output", "datatype": "BYTES", "shape": [], "data": ['{"a": ["x", "y"]}!']}
    ]
    (binary,) = edge.ask(request(b"\xff\xfe", "simple", "image/png"))
    assert (binary.status, "no text" in binary.error) == (400, True)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print('nothing')", "ended without serving"),
        ("raise SystemExit(0)", "kernel.py ended without serving"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import redhareapi\nredhareapi.Kernel().run(1, 2)", "TypeError"),
        ("from redhareapi import Kernel\nclass K(Kernel):\n    on_kernel_start = 1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_program_that_does_not_serve(deployment: Any, program: str, said: str) -> None:
    at = packaged(deployment(runtime=Runtime.KERNEL, sha256=""), program)
    at.start_replica()
    assert said in at.expect("w0", wire.Failed).message
