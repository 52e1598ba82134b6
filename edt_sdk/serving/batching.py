"""Answer the requests of a batch: read each one, compute those together that fit together, write each answer.

What is wrong with one request never harms another one. A bad request is refused before anything is computed. Where the
model raises for several at once, each is computed again alone, so that only the guilty one fails.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from edt_sdk.schemas.serving.replica_channel import Answer, Answers, ScoringRequest
from edt_sdk.serving import forms
from edt_sdk.serving.calls import BadRequest, InferenceCall, Outputs, Unanswerable, Written
from edt_sdk.serving.open_inference import ServedNames
from edt_sdk.training.user import explanation


class Fitting(Protocol):
    """A request that the model can take. Requests with equal keys may be computed together."""

    @property
    def key(self) -> Hashable: ...  # noqa: D102

    @property
    def rows(self) -> int: ...  # noqa: D102

    @property
    def single(self) -> bool: ...  # noqa: D102


F = TypeVar("F", bound=Fitting)


class ModelRuntime(Protocol[F]):
    """What turns requests into answers."""

    def fit(self, call: InferenceCall) -> F:
        """Return what the model takes. BadRequest where the request does not fit."""

    def compute(self, group: Sequence[F]) -> Sequence[Outputs | BaseException]:
        """Return the outputs of requests with equal keys, in their order, or why one has none.

        Raises what the model raises.
        """

    def close(self) -> None:
        """End, before the process does."""


class Batching(Generic[F]):
    """Answers batches by a runtime."""

    def __init__(self, runtime: ModelRuntime[F], model: ServedNames) -> None:
        self._runtime = runtime
        self._model = model

    def answer(self, requests: Sequence[ScoringRequest], bodies: Sequence[memoryview]) -> tuple[Answers, list[bytes]]:
        """Return the answers to all requests of a batch, and their bodies."""
        replies: dict[int, tuple[int, Written]] = {}
        groups: dict[Hashable, list[tuple[int, InferenceCall, F]]] = defaultdict(list)
        for number, (request, body) in enumerate(zip(requests, bodies, strict=True)):
            try:
                call = forms.read(request, body, self._model)
                fitted = self._runtime.fit(call)
            except Exception as error:  # a fault of ours must cost this request alone
                replies[number] = _failure(error)
            else:
                groups[fitted.key].append((number, call, fitted))
        rows, seconds = 0, 0.0
        for group in groups.values():
            began = time.perf_counter()
            found = self._compute([fitted for _, _, fitted in group])
            seconds += time.perf_counter() - began
            rows += sum(fitted.rows for _, _, fitted in group)
            for (number, call, fitted), outputs in zip(group, found, strict=True):
                replies[number] = _reply(call, outputs, fitted.single)
        answers, written = [], []
        for number, request in enumerate(requests):
            status, reply = replies[number]
            answers.append(Answer(request.id, status, reply.content_type, reply.header_length, len(reply.body)))
            written.append(reply.body)
        return Answers(tuple(answers), rows, seconds), written

    def _compute(self, group: list[F]) -> list[Outputs | BaseException]:
        """Return the outputs of each request, or what the model raised for it."""
        try:
            return [*self._runtime.compute(group)]
        except (Exception, SystemExit) as error:  # the model's code may raise anything
            if len(group) == 1:
                return [error]
        return [answer for each in group for answer in self._compute([each])]


def _reply(call: InferenceCall, outputs: Outputs | BaseException, single: bool) -> tuple[int, Written]:
    """Return status and body of an answer."""
    if isinstance(outputs, BaseException):
        return _failure(outputs)
    try:
        return 200, call.write(outputs, single)
    except Exception as error:  # what a predictor returned may have any form
        return _failure(error)


def _failure(error: BaseException) -> tuple[int, Written]:
    """Return status and body of an answer to a request that failed. A failure of code goes to the log."""
    if isinstance(error, BadRequest):
        return error.status, forms.error(str(error))
    if isinstance(error, Unanswerable):
        text = str(error)
        shown = f"edt: {text}\n"
    else:
        text = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
        shown = explanation.traceback_text(error)
    with contextlib.suppress(OSError):  # the disk of the log may be full, which must not cost an answer
        print(shown, file=sys.stderr, end="", flush=True)
    return 500, forms.error(text)
