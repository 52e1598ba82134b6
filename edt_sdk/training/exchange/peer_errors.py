"""Tells the loss of another member from an error of the user's code: both are RuntimeErrors in torch.

An error belongs to the group if the innermost Python frame is in `group.py`, where every wait for bytes from other
members is; user code is never called from there.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

_GROUP = Path(__file__).resolve().with_name("group.py")


class Superseded(Exception):
    """A newer generation is announced: the one that is being built will never be complete."""


class PeerLost(Exception):
    """Another member is gone, as this worker knows from something else than an error."""


def is_lost_peer(error: Exception) -> bool:
    """Whether `error` came out of a transfer between members."""
    if isinstance(error, PeerLost):
        return True
    innermost: TracebackType | None = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is not None and Path(innermost.tb_frame.f_code.co_filename).resolve() == _GROUP
