"""One process of a job whose framework is not elastic: which slots it holds, and its place among the others."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.wire.control import Slot


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is told when it starts.

    Attributes:
        run: how often the job's processes were started, this time included; from 1.
        rank: from 0.
        world: processes of the job.
        slots: what it holds, all on one host where that was possible; the first one names the process.
        port: of this host's, kept free for the process of rank 0; 0 until it is known.
    """

    run: int
    rank: int
    world: int
    slots: tuple[Slot, ...]
    port: int = 0
