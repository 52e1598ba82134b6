"""Which slots each process of a plain job holds. Pure.

`PyTorch` is one process with all slots, `distPyTorch` one for each `slots_per_unit` of them. A process sees the devices
of one host only, so slots of one host stay together as far as they go; ranks follow hosts and slots in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire.control import Slot


def places(framework: Framework, slots: Sequence[Slot], unit: int) -> list[tuple[Slot, ...]]:
    """The slots of each process, by rank.

    Args:
        framework: PYTORCH or DIST.
        slots: all of the job; for DIST a multiple of `unit`.
        unit: slots of one process of DIST.
    """
    by_host = [tuple(those) for _, those in groupby(sorted(slots, key=_place), key=lambda slot: slot.host)]
    if framework is Framework.PYTORCH:
        return [tuple(slot for those in sorted(by_host, key=len, reverse=True) for slot in those)]
    whole: list[tuple[Slot, ...]] = []
    rest: list[Slot] = []
    for those in by_host:
        full = len(those) // unit * unit
        whole += [those[at : at + unit] for at in range(0, full, unit)]
        rest += those[full:]
    return whole + [tuple(rest[at : at + unit]) for at in range(0, len(rest), unit)]


def _place(slot: Slot) -> tuple[str, int]:
    return slot.host, slot.id
