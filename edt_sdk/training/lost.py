"""Tells the loss of another member from an error of the user's code: both are RuntimeErrors in torch.

An error belongs to the group if the innermost Python frame is in one of the functions that wait for bytes from other
members; user code is never called from there.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

# File → functions that wait; None for all of it.
_WAITING: dict[str, frozenset[str] | None] = {
    "group.py": None,
    "exchange.py": None,
    "update.py": frozenset({"summary", "_receive_others"}),
    "state.py": frozenset({"_send_memory", "_receive_memory"}),
}
_HERE = Path(__file__).resolve().parent


class PeerLost(Exception):
    """Another member of the generation is gone, so this one cannot go on. It is never the cause of a failure."""


def is_lost_peer(error: RuntimeError) -> bool:
    """Whether `error` came out of a transfer between members."""
    innermost: TracebackType | None = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return False
    code = innermost.tb_frame.f_code
    path = Path(code.co_filename).resolve()
    if path.parent != _HERE or path.name not in _WAITING:
        return False
    functions = _WAITING[path.name]
    return functions is None or code.co_name in functions
