"""The place of a process in a job whose framework is not elastic: its slots, its rank, and the number of processes."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.wire.control import Slot


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task of one process, given to it when it starts.

    Attributes:
        run: number of starts of the job's processes, this one included. It counts from 1.
        rank: its rank, from 0.
        world: processes of the job.
        slots: slots that it holds, all on one host where that was possible. The first one names the process.
        master: address of the host of rank 0, which is the supervisor's, where the ranks are on several hosts. "" for
            loopback.
        port: port at that address, kept free for the process of rank 0. It is 0 until it is known.
    """

    run: int
    rank: int
    world: int
    slots: tuple[Slot, ...]
    port: int = 0
    master: str = ""
