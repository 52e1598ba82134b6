"""What a process of a script tells its agent, by notes in a pipe. The supervisor draws the conclusions.

Whether the script writes checkpoints and loads them, since a change of its size starts it again: the first time of each
kind. What it saves and loads is seen at `torch.save` and `torch.load`, which Lightning, accelerate, the Hugging Face
Trainer and torch's distributed checkpoints use too (decision 043).

And that it ends because of an exception: its peers fail as soon as it closes its connections, and may end before it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from edt_sdk.schemas.torchrun import HERE_VARIABLE

# The kinds of notes: the script runs and is watched, wrote a checkpoint, loaded one that is newer than its agent, and
# has a trainer that computes its number of steps from the number of workers.
RUNS, SAVED, LOADED, COUNTS_WORKERS = "runs", "saved", "loaded", "counts_workers"
_COUNTING = "transformers.trainer"
# Followed by the pid and the time of a failing process.
_FAILS = "fails"
# Seconds that a failing process waits for its agent at most.
_PATIENCE = 5.0


class Failing(NamedTuple):
    """A process ends because of an exception. `since` is a time of the monotonic clock."""

    pid: int
    since: float


class _Channel(NamedTuple):
    write: int
    answers: int
    since: float  # of the agent


_channel: _Channel | None = None


class Notes:
    """Reads the notes of all processes that are forked after this object was made."""

    def __init__(self) -> None:
        global _channel
        self._read, write = os.pipe()
        answers, self._answer = os.pipe()
        # A script must never wait for its agent.
        for descriptor in (self._read, write, answers, self._answer):
            os.set_blocking(descriptor, False)
        # File systems keep whole seconds, some of them.
        _channel = _Channel(write, answers, float(int(time.time())))

    def new(self) -> list[str | Failing]:
        """Return the notes since the last call, each once. `answer` each `Failing`: its process waits."""
        with contextlib.suppress(BlockingIOError):
            return [_read(note) for note in dict.fromkeys(os.read(self._read, 1 << 16).decode().splitlines())]
        return []

    def answer(self) -> None:
        """Let a failing process end: its failure is reported."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._answer, b".")


def fail() -> None:
    """Note that this process ends because of an exception, and wait until its agent has reported it.

    As long as it waits, its peers cannot fail for lack of it. So the supervisor hears of the cause first.
    """
    if _channel is not None:
        with contextlib.suppress(OSError):
            os.write(_channel.write, f"{_FAILS} {os.getpid()} {time.monotonic()}\n".encode())
            select.select([_channel.answers], [], [], _PATIENCE)
            os.read(_channel.answers, 1)


def watch() -> None:
    """Note from now on what this process does with checkpoints."""
    if _channel is None or "torch" not in sys.modules:
        return
    import torch

    write, since = _channel.write, _channel.since
    noted: set[str] = set()
    looked = False

    def note(kind: str) -> None:
        if kind not in noted:
            noted.add(kind)
            with contextlib.suppress(OSError):
                os.write(write, f"{kind}\n".encode())

    def saved(_file: object) -> None:
        nonlocal looked
        if not looked and _COUNTING in sys.modules:
            looked = True
            if not _keeps_units():
                note(COUNTS_WORKERS)
        note(SAVED)

    def loaded(file: object) -> None:
        place = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
        with contextlib.suppress(OSError, TypeError, ValueError):
            # Older files are data, or weights of another model.
            if LOADED not in noted and os.stat(place).st_mtime >= since:  # type: ignore[arg-type]
                note(LOADED)

    # Under both names, so that a reference to either can still be pickled.
    torch.save = torch.serialization.save = _then(torch.save, 1, saved)
    torch.load = torch.serialization.load = _then(torch.load, 0, loaded)
    note(RUNS)


def _keeps_units() -> bool:
    """Return whether the trainer accumulates this process's units: then its steps do not depend on the processes."""
    here = os.environ.get(HERE_VARIABLE)
    from transformers import TrainingArguments

    # Looked for once, at the first checkpoint with the trainer there. Nothing else knows that of a script.
    # By type(): a proxy whose object is gone raises when it is asked for its class.
    arguments = [each for each in gc.get_objects() if issubclass(type(each), TrainingArguments)]
    return bool(arguments) and all(str(each.gradient_accumulation_steps) == here for each in arguments)


def _read(note: str) -> str | Failing:
    kind, *rest = note.split()
    return Failing(int(rest[0]), float(rest[1])) if kind == _FAILS else kind


def _then(function: Callable[..., Any], place: int, tell: Callable[[object], None]) -> Callable[..., Any]:
    """Return a function that also passes its argument `f`, at this place, to `tell` when it has returned."""

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        tell(args[place] if len(args) > place else kwargs.get("f"))
        return result

    return told
