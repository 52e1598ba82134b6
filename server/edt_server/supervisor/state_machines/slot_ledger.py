"""Record which slots the job holds, from the server's allocations and its own releases. Pure.

A slot is held from the first allocation that names it until its release is reported, and each holding is released
exactly once. After a release, an allocation that still names the slot may have been sent before the server knew. Only
an allocation that arrives after the acknowledgement of the release grants the slot again (the server sends an Ack
before whatever follows from the report, decision 003).
"""

from __future__ import annotations

from collections.abc import Collection

from edt_sdk.schemas.wire.control import Slot


class SlotLedger:
    """The slots of a job, by id."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._allocation: dict[int, Slot] = {}
        self._held: dict[int, Slot] = {}
        self._released: dict[int, int] = {}
        self._acknowledged = 0

    def allocate(self, version: int, slots: Collection[Slot]) -> bool:
        """Record an allocation. Return False when it is older than the newest one."""
        # Allocations are levels, not edges: the newest is sufficient, and an older one that arrives late must not undo
        # it (decision 003).
        if self._version is not None and version < self._version:
            return False
        self._version = version
        self._allocation = {slot.id: slot for slot in slots}
        for slot in slots:
            # Sent before the server knew of the release? Then it does not grant the slot again.
            if self._released.get(slot.id, 0) <= self._acknowledged:
                self._released.pop(slot.id, None)
                self._held.setdefault(slot.id, slot)
        return True

    def acknowledge(self, number: int) -> None:
        """Record that the server knows the reports up to `number`, no more and no less."""
        self._acknowledged = number

    def release(self, slot: int, number: int) -> None:
        """Record that report `number` releases the slot. KeyError when it is not held."""
        del self._held[slot]
        self._released[slot] = number

    def allowed(self, slot: int) -> bool:
        """Return whether a worker may be in this slot now."""
        return slot in self._held and slot in self._allocation

    @property
    def known(self) -> bool:
        """True when the server has sent the slots that the job may use, even if there are none."""
        return self._version is not None

    @property
    def granted(self) -> tuple[Slot, ...]:
        """The slots that are held and still allocated, by id."""
        return tuple(self._held[slot] for slot in sorted(self._held) if slot in self._allocation)

    @property
    def revoked(self) -> tuple[int, ...]:
        """The slots that are held but not in the newest allocation, by id."""
        return tuple(slot for slot in sorted(self._held) if slot not in self._allocation)

    @property
    def held(self) -> tuple[int, ...]:
        """The granted and the revoked slots, by id."""
        return tuple(sorted(self._held))

    @property
    def holding(self) -> tuple[int, ...]:
        """The slots that the job holds as far as the server can know: held or released without acknowledgement."""
        unheard = {slot for slot, number in self._released.items() if number > self._acknowledged}
        return tuple(sorted(unheard | set(self._held)))
