"""The messages between the server and the processes that suggest values, and the loop in which such a process answers.

A message is MessagePack after its length in four bytes, from the server on stdin and back on stdout. The loop takes
both descriptors for itself, so whatever other code prints goes to stderr, where the server keeps the last words.
"""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec

from edt_sdk.schemas.search.space import Parameter, Value
from edt_sdk.schemas.wire.control import Account
from edt_server.agent.guard import die_with
from edt_server.searching import PastTrial

LENGTH = struct.Struct(">I")
# Seconds without a question after which a process ends. It is a cache, and the next question starts another one.
IDLE = 600


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A question for the values of some trials. The answer is a function of the question with its whole history.

    Attributes:
        search: id of the search.
        algorithm: name of the sampler, or of the plug-in.
        options: as `check_algorithm` returns them, or for a plug-in as the user gave them.
        seed: of the search.
        space: the parameters.
        direction: "minimize" or "maximize".
        numbers: the trials to suggest, in this order. Each takes the ones before it as running.
        state: for a plug-in `Suggested.state` of its last answer, b"" at first.
        upto: how many entries of the history the answer may see.
        since: how many of them the process has already; for a plug-in those that its last question could see.
        history: the others. `Suggestions` sets it, and `since` for a sampler.
    """

    search: str
    algorithm: str
    options: dict[str, Value] = {}
    seed: int
    space: dict[str, Parameter]
    direction: str = "minimize"
    numbers: tuple[int, ...]
    state: bytes = b""
    upto: int = 0
    since: int = 0
    history: tuple[PastTrial, ...] = ()


class Suggestion(msgspec.Struct, frozen=True):
    """The values of a trial. `sampler_state` is kept with the trial, and comes back with its history."""

    number: int
    values: dict[str, Value]
    sampler_state: bytes = b""


class Suggested(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to an `Ask`. Fewer suggestions than numbers mean that there are no more.

    Attributes:
        suggestions: one for each number, in their order.
        state: of a plug-in, for its next question.
        note: a sentence for the user, "" for none.
    """

    suggestions: tuple[Suggestion, ...]
    state: bytes = b""
    note: str = ""


class NoSuggestion(msgspec.Struct, frozen=True, tag=True):
    """There is no answer, and there will be none to the same question again."""

    message: str


Answer = Suggested | NoSuggestion


class Plugin(msgspec.Struct, frozen=True):
    """An installed plug-in: the folder of its `optimizer.py`, its interpreter, and the level of its log.

    `account` is that of the search's owner, where jobs run as the accounts of their owners.
    """

    folder: Path
    interpreter: str
    log_level: str = "INFO"
    account: Account | None = None


def seed_of(seed: int, number: int) -> int:
    """Return the seed of a trial's suggestion. No two trials, nor two searches, share a stream of random numbers."""
    return int.from_bytes(sha256(f"{seed}:{number}".encode()).digest()[:4], "big")


def serve(parent: int, answer: Callable[[Ask], Answer]) -> None:
    """Answer questions until there are no more, or the process `parent` has ended, 0 for one that cannot be seen."""
    if parent:
        die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the server's terminal is for the server
    with os.fdopen(os.dup(0), "rb") as questions, os.fdopen(os.dup(1), "wb") as answers:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        decoder = msgspec.msgpack.Decoder(Ask)
        signal.alarm(IDLE)
        while size := questions.read(LENGTH.size):
            signal.alarm(0)
            said = msgspec.msgpack.encode(answer(decoder.decode(questions.read(*LENGTH.unpack(size)))))
            answers.write(LENGTH.pack(len(said)) + said)
            answers.flush()
            signal.alarm(IDLE)
