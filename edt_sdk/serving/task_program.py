"""Answer by a program of the package that handles tasks: a text comes in, a text goes out, several at once.

The replica runs the program, and the program's own library calls `serve` with what handles its tasks. WMLA's library of
kernels, `redhareapi`, is one. `begin` says what `serve` does, because the replica runs as `__main__` and cannot be
imported by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.serving.calls import UNNAMED, BadRequest, InferenceCall, Outputs, Unanswerable


class TextHandler(Protocol):
    """What a program gives to `serve`."""

    def handle(self, texts: Sequence[str]) -> list[str | None]:
        """Return the output of each task, None for one that has none. Raises what the program raises."""

    def close(self) -> None:
        """End, before the process does."""


Serving = Callable[[TextHandler], NoReturn]
_serving: Serving | None = None


def begin(serving: Serving) -> None:
    """Let `serve` do this in this process."""
    global _serving
    _serving = serving


def serve(handler: TextHandler) -> NoReturn:
    """Answer requests by this handler until the replica ends. Unprocessable outside of a replica."""
    if _serving is None:
        raise Unprocessable(
            "A kernel answers requests in a deployment only.",
            hint='Deploy its folder: client.register("folder", name).',
        )
    _serving(handler)


@dataclass(frozen=True, slots=True)
class TextTask:
    """A request. `verbatim` says that its caller wants the output as it is."""

    text: str
    verbatim: bool
    key: None = None
    rows: int = 1
    single: bool = True


class TaskProgram:
    """Computes the answers of a program, at most `max_batch` tasks in a call."""

    def __init__(self, handler: TextHandler, max_batch: int) -> None:
        self._handler = handler
        self._max_batch = max_batch

    def fit(self, call: InferenceCall) -> TextTask:
        """Return a request as a task: its text, or the JSON of its inputs. BadRequest for bytes that are no text."""
        inputs: Any = call.inputs if call.named else call.inputs[UNNAMED]
        if not call.raw:
            return TextTask(json.dumps(inputs, default=_plain), verbatim=False)
        (body,) = inputs
        if isinstance(body, str):
            return TextTask(body, verbatim=True)
        try:
            return TextTask(body.decode(), verbatim=False)
        except UnicodeDecodeError:
            raise BadRequest("the body is no text, which is what this program takes") from None

    def compute(self, group: Sequence[TextTask]) -> list[Outputs | BaseException]:
        """Return the answer to each task, Unanswerable for one without. Raises what the program raises."""
        found: list[Outputs | BaseException] = []
        for start in range(0, len(group), self._max_batch):
            piece = group[start : start + self._max_batch]
            outputs = self._handler.handle([each.text for each in piece])
            found += [_answer(task, output) for task, output in zip(piece, outputs, strict=True)]
        return found

    def close(self) -> None:
        """Close the program."""
        self._handler.close()


def _answer(task: TextTask, output: str | None) -> Outputs | BaseException:
    if output is None:
        return Unanswerable("the kernel has set no output for this task; its log may say why")
    if task.verbatim:
        return {"output": [output]}
    try:
        return {"output": [json.loads(output)]}
    except (ValueError, RecursionError):
        return {"output": [output]}


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
