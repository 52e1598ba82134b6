"""Notice whether a script writes checkpoints and loads them, since a change of its size starts it again.

A process of the script notes the first time of each kind into a pipe of its agent. What it saves and loads is seen at
`torch.save` and `torch.load`, which Lightning, accelerate, the Hugging Face Trainer and torch's distributed checkpoints
use too. The agent forwards the notes, and the supervisor draws the conclusions (decision 043).
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

# The kinds of notes: the script runs and is watched, wrote a checkpoint, loaded one that is newer than its agent, and
# has a trainer that computes its number of steps from the number of workers.
RUNS, SAVED, LOADED, COUNTS_WORKERS = "runs", "saved", "loaded", "counts_workers"
_COUNTING = "transformers.trainer"

_channel: tuple[int, float] | None = None


class Notes:
    """Reads the notes of all processes that are forked after this object was made."""

    def __init__(self) -> None:
        global _channel
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        # A script must never wait for its agent.
        os.set_blocking(write, False)
        # File systems keep whole seconds, some of them.
        _channel = write, float(int(time.time()))

    def new(self) -> list[str]:
        """Return the notes since the last call, each once."""
        with contextlib.suppress(BlockingIOError):
            return list(dict.fromkeys(os.read(self._read, 1 << 16).decode().split()))
        return []


def watch() -> None:
    """Note from now on what this process does with checkpoints."""
    if _channel is None or "torch" not in sys.modules:
        return
    import torch

    write, since = _channel
    noted: set[str] = set()

    def note(kind: str) -> None:
        if kind not in noted:
            noted.add(kind)
            with contextlib.suppress(OSError):
                os.write(write, f"{kind}\n".encode())

    def saved(_file: object) -> None:
        if _COUNTING in sys.modules:
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


def _then(function: Callable[..., Any], place: int, tell: Callable[[object], None]) -> Callable[..., Any]:
    """Return a function that also passes its argument `f`, at this place, to `tell` when it has returned."""

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        tell(args[place] if len(args) > place else kwargs.get("f"))
        return result

    return told
