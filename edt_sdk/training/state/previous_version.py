"""Read pickles of version 0.1, up to commit d7f2f61, that name classes by the module they were in.

That version pickled its own classes into checkpoints, memory mirrors and payloads, and a member of that version still
sends such pickles to a member of this one. Nothing is written that way any more, so the table only ever shrinks.
Remove this module, and `member/previous_zygote.py`, in version 0.4, which no longer resumes jobs of 0.1.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

_HOMES = {
    "edt_sdk.schemas.link": "edt_sdk.schemas.wire.link",
    "edt_sdk.training.foreign_memory": "edt_sdk.training.state.foreign_memory",
    "edt_sdk.training.header": "edt_sdk.training.exchange.header",
    "edt_sdk.training.lines": "edt_sdk.training.records.lines",
    "edt_sdk.training.order": "edt_sdk.training.sampling.order",
    "edt_sdk.training.payload": "edt_sdk.training.user.payload",
    "edt_sdk.training.recorder": "edt_sdk.training.records.recorder",
    "edt_sdk.training.standing": "edt_sdk.training.member.training_state",
    "edt_sdk.training.totals": "edt_sdk.training.update.totals",
    "edt_sdk.training.transfer": "edt_sdk.training.state.transfer",
    "edt_sdk.training.update": "edt_sdk.training.update.update",
    "edt_sdk.training.validation_tally": "edt_sdk.training.validation.tally",
}
# Classes of these modules that have another name now.
_NAMES = {"Place": "MemoryLocation", "Where": "StateRecord"}


class Unpickler(pickle.Unpickler):
    """Unpickles, and finds the classes of version 0.1 in their modules of today."""

    def find_class(self, module: str, name: str) -> Any:
        """Import a class or function by the module it lies in now."""
        if module in _HOMES:
            module, name = _HOMES[module], _NAMES.get(name, name)
        return super().find_class(module, name)


def loads(data: bytes) -> Any:
    """Unpickle bytes that version 0.1 may have written."""
    return Unpickler(io.BytesIO(data)).load()
