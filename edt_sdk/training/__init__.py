"""Own the elastic engine: whatever the number of workers, a training ends with the same bits.

The modules here are its programs: `worker.py`, `driver.py`, `script.py`, and `zygote.py`, which forks the others.

Never: scheduling or HTTP.

Read first: `member/loop.py`, then `update/update.py` and `exchange/`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["driver", "worker", "zygote"]


def __getattr__(name: str) -> ModuleType:
    if name == "call":
        # The main script that version 0.1 has stored for each `train()` call from a notebook imports it from here.
        return import_module("edt_sdk.training.calls.call")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
