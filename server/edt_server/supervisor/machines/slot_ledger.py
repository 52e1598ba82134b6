"""Which slots the job holds, from the server's levels and its own releases. Pure.

A slot is held from the first allocation that names it until its release is reported, and released exactly once each
time. After a release, an allocation that still names the slot may have been on its way before the server knew: only one
that arrives behind the acknowledgement of the release grants it anew (`control.py` sends an Ack before whatever follows
from the report).
"""

from __future__ import annotations

from collections.abc import Collection

from edt_sdk.schemas.wire.control import Slot


class SlotLedger:
    """The slots of one job. Slots are named by their id."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._allocation: dict[int, Slot] = {}
        self._held: dict[int, Slot] = {}
        self._released: dict[int, int] = {}
        self._acknowledged = 0

    def allocate(self, version: int, slots: Collection[Slot]) -> bool:
        """Take in an allocation; False when it is older than the newest one."""
        if self._version is not None and version < self._version:
            return False
        self._version = version
        self._allocation = {slot.id: slot for slot in slots}
        for slot in slots:
            if self._released.get(slot.id, 0) <= self._acknowledged:
                self._released.pop(slot.id, None)
                self._held.setdefault(slot.id, slot)
        return True

    def acknowledge(self, number: int) -> None:
        """The server knows the reports up to `number`, no more and no less."""
        self._acknowledged = number

    def release(self, slot: int, number: int) -> None:
        """The slot's release is report `number`; KeyError when it is not held."""
        del self._held[slot]
        self._released[slot] = number

    def allowed(self, slot: int) -> bool:
        """True when a worker may be in this slot now."""
        return slot in self._held and slot in self._allocation

    @property
    def known(self) -> bool:
        """True when the server has said which slots the job may use, none included."""
        return self._version is not None

    @property
    def granted(self) -> tuple[Slot, ...]:
        """Held and still allowed, by id."""
        return tuple(self._held[slot] for slot in sorted(self._held) if slot in self._allocation)

    @property
    def revoked(self) -> tuple[int, ...]:
        """Held, but the newest allocation does not name them any more, by id."""
        return tuple(slot for slot in sorted(self._held) if slot not in self._allocation)

    @property
    def held(self) -> tuple[int, ...]:
        """Granted and revoked, by id."""
        return tuple(sorted(self._held))

    @property
    def holding(self) -> tuple[int, ...]:
        """What the job holds as far as the server can know: `held`, and releases it has not acknowledged."""
        unheard = {slot for slot, number in self._released.items() if number > self._acknowledged}
        return tuple(sorted(unheard | set(self._held)))
