"""Add to the reason of a waiting job what is known about hosts that are on their way. Pure.

The core knows slots and no machines, so its reason says only who has the slots. Providers of hosts tell the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edt_sdk.schemas.job import Reason

# A host more helps where slots are what is missing. It helps neither against a limit of the plan nor a job that would
# have to restart, and where slots are "starting" they are there.
_HELPED = frozenset({"busy", "share", "capped", "order", "unit"})


@dataclass(frozen=True, slots=True)
class ComingHosts:
    """What one provider tells about hosts for a resource group.

    Attributes:
        text: part of a sentence, as `Scaling.coming` returns it. "" for none.
        expected: when the next host should come, seconds since the epoch. None when unknown.
        room: slots that the provider could still add, hosts on their way included.
    """

    text: str = ""
    expected: float | None = None
    room: int = 0


def with_hosts(reason: Reason | None, coming: Sequence[ComingHosts]) -> Reason | None:
    """Return the reason of a job with a sentence about hosts for its resource group, and with them in its forecast.

    It is the same reason where hosts would not help, and where nothing is known about any. A job that needs more slots
    at once than exist, and not more than there could be, is no longer said to fit never: its code is then "busy".
    """
    told = [each for each in coming if each.text]
    if reason is None or not told:
        return reason
    code, text, numbers = reason.code, reason.text, dict(reason.numbers)
    if code == "never_fits":
        slots, needed = numbers.get("slots", 0), numbers.get("needed", 0)
        # With `most` below `slots` the plan is the limit, whatever comes.
        if numbers.get("most", 0) < slots or needed > slots + sum(each.room for each in coming):
            return reason
        at_once = f"{needed} slot{'' if needed == 1 else 's'} at once"
        code, text = "busy", f"It needs {at_once}, and its resource group has {slots or 'none yet'}."
    elif code not in _HELPED:
        return reason
    expected = min((each.expected for each in told if each.expected is not None), default=None)
    if expected is not None:
        numbers["forecast"] = _sooner(numbers.get("forecast"), expected)
    sentences = (f"{each.text[:1].upper()}{each.text[1:]}." for each in told)
    return msgspec.structs.replace(reason, code=code, text=" ".join((text, *sentences)), numbers=numbers)


def _sooner(forecast: dict[str, Any] | None, expected: float) -> dict[str, Any]:
    """Return the forecast with a host that comes at `expected`. The latest time stays: the host may fail to come."""
    earliest, latest = (expected, None) if forecast is None else (forecast["earliest"], forecast["latest"])
    return {"earliest": min(earliest, expected), "latest": latest}
