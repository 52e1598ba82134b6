"""Distinguish the loss of another member from an error of the user's code: torch raises RuntimeError for both.

An error belongs to the group if its innermost Python frame is in `group.py`. All waits for bytes of other members are
in that file, and it never calls user code. The waits of a sharded model are those of torch's own file with collectives.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType

_WAITING = (str(Path(__file__).resolve().with_name("group.py")), "/torch/distributed/distributed_c10d.py")
_PLACE = re.compile(r"\[\S+:\d+\] ")


class Superseded(Exception):
    """Signals that a newer generation is announced: the one under construction will never be complete."""


class PeerLost(Exception):
    """Signals that another member is gone, for reports other than a transfer error."""


def is_lost_peer(error: Exception) -> bool:
    """Return whether `error` came from a transfer between members."""
    if isinstance(error, PeerLost):
        return True
    # torch raises a plain RuntimeError for both cases, and its text differs between backends and versions. The frame
    # does not.
    innermost: TracebackType | None = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is not None and str(Path(innermost.tb_frame.f_code.co_filename).resolve()).endswith(_WAITING)


def said(error: Exception) -> str:
    """Return what a lost peer's error says, without gloo's place in its own source and its guess at the cause."""
    text = _PLACE.sub("", str(error)).partition(" This is typically")[0]
    return text.strip().rstrip(".") or "a member has left"
