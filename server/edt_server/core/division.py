"""Update the division of a node incrementally: the claims on either side of the cut, in order.

Claims to single slots are totally ordered and the strongest win, so a number of slots is a place in their order: the
cut. That order is stored only as far as it is needed, as two sorted lists that end at the cut: for each claim the last
slot that it holds, the next slot that it would get, and the slots between where the cut has been. A slot that moves
goes from the end of the first list to the end of the second, without a search where the cut has been before. A changed
claim is placed at the cut at once, however much it holds. The result equals `divisor_rule.divide` from scratch.
Entries of changed claims stay in the lists until the cut reaches them: removing them would need a search.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from edt_server.core.divisor_rule import WeightedClaim

_BITS = 64  # exact for up to 2³⁰ slots: see divisor_rule.precision
_SERIAL, _ORDER, _WEIGHT = 30, 48, 40  # an entry: worth, then these bits of weight, order and serial number
_TIES = _SERIAL + _ORDER + _WEIGHT
_LAST_TIE = (1 << _TIES) - 1
_LAST_ORDER = (1 << _ORDER) - 1
_LAST_SERIAL = (1 << _SERIAL) - 1


class _Item:
    """A claim and what it holds.

    The lists contain its claims to the slots from `low` up to and without `high`, counted from 0. `low` is less than
    `held` except at its floor, and `high` is more except at its cap.
    """

    __slots__ = (
        "cap",
        "floor",
        "held",
        "high",
        "low",
        "name",
        "order",
        "owned",
        "scaled",
        "serial",
        "speedup",
        "tie",
        "weight",
    )

    def __init__(self, name: str, claim: WeightedClaim, held: int) -> None:
        self.name = name
        self.held = self.low = self.high = held
        self.serial = -1
        self.tie = 0
        self.become(claim)

    def become(self, claim: WeightedClaim) -> None:
        """Take over another claim. Its entries stay those of the former one until `number` is called."""
        self.order = claim.order
        self.weight = claim.weight
        self.scaled = claim.weight << _BITS
        self.speedup = claim.speedup
        self.owned = claim.owned
        self.cap = claim.cap
        self.floor = claim.floor if claim.floor < claim.cap else claim.cap

    def number(self, serial: int) -> None:
        """Invalidate its entries by a new serial number."""
        self.serial = serial
        self.tie = (self.weight << _ORDER | (_LAST_ORDER - self.order)) << _SERIAL | serial

    def entry(self, slot: int) -> int:
        """Return its claim to that slot, higher for the stronger, never equal to another claim's."""
        if self.speedup is not None:
            return (self.weight * self.speedup.gain(slot)) << _TIES | self.tie
        return self.scaled // (2 * (slot - self.owned) + 1) << _TIES | self.tie

    def above(self, cut: int) -> int:
        """Return the slots it holds when it wins those for which its claim is above the cut."""
        if self.speedup is not None:
            slots = range(self.floor, self.cap)
            return self.floor + bisect_left(slots, -cut, key=lambda slot: -self.entry(slot))
        worth = (cut >> _TIES) + (cut & _LAST_TIE > self.tie)  # the least worth that wins
        # scaled ÷ (2k + 1), rounded down, is that much as long as 2k + 1 ≤ scaled ÷ worth
        held = self.owned + (self.scaled // worth + 1) // 2 if worth else self.cap
        return self.floor if held < self.floor else self.cap if held > self.cap else held


class Division:
    """A division of slots among claims with units of 1, whose floors all fit.

    Args:
        shares: (name, claim, what it holds now, 0 for a new claim).
    """

    def __init__(self, shares: Iterable[tuple[str, WeightedClaim, int]]) -> None:
        self._items: dict[str, _Item] = {}
        # Lists, not heaps: most slots move back and forth over the same entries at the cut, and a move is then one pop
        # and one append. Two heaps took half of all time (decision 013).
        self._lost: list[int] = []  # entries of claims to slots that they do not hold, the strongest last
        self._won: list[int] = []  # entries of claims to slots that they hold, negated: the weakest last
        self._by_serial: dict[int, _Item] = {}  # serial → item, without outdated serials
        self._serials = 0
        self._held = 0
        self._before: dict[str, int] = {}  # what items held at the last settle, where that changed
        self._slots = -1
        self._touched = True
        for name, claim, held in shares:
            item = self._items[name] = _Item(name, claim, held)
            self._held += held
            self._hold(item, min(max(held, item.floor), item.cap))
        self._write_down()

    def put(self, name: str, claim: WeightedClaim) -> None:
        """Add or replace a claim."""
        item = self._items.get(name)
        if item is None:
            item = self._items[name] = _Item(name, claim, 0)
        elif claim.weight == item.weight and claim.order == item.order and claim.speedup is item.speedup:
            self.bound(name, min(claim.floor, claim.cap), claim.cap, claim.owned)
            return
        else:
            item.become(claim)
        self._place(item)

    def bound(self, name: str, floor: int, cap: int, owned: int) -> None:
        """Set another floor ≤ cap, or number of owned slots, for a claim. Cheap where nothing follows from it."""
        item = self._items[name]
        same = owned == item.owned
        item.floor, item.cap, item.owned = floor, cap, owned
        low, held, high = item.low, item.held, item.high
        if same and floor <= low and high <= cap and (low < held or held == floor) and (held < high or held == cap):
            return  # its entries are complete
        self._place(item)

    def remove(self, name: str) -> None:
        """Remove a claim with what it held."""
        item = self._items.pop(name)
        del self._by_serial[item.serial]
        self._touched = True
        self._held -= item.held
        self._before.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def held(self, name: str) -> int:
        """Return what the claim of that name holds."""
        return self._items[name].held

    def settle(self, slots: int) -> dict[str, int]:
        """Move the cut until so many slots are divided, and return what every changed claim holds now."""
        if slots == self._slots and not self._touched:
            return {}
        self._slots, self._touched = slots, False
        if self._held > slots:
            self._take(self._held - slots)
        elif self._held < slots:
            self._give(slots - self._held)
        # Outdated entries and serial numbers pile up with every change. At this length a rewrite is cheap per change.
        if len(self._lost) + len(self._won) > 6 * len(self._items) + 64 or self._serials > _LAST_SERIAL // 2:
            self._write_down()
        before, self._before = self._before, {}
        items = self._items
        return {name: items[name].held for name, held in before.items() if items[name].held != held}

    def _hold(self, item: _Item, held: int) -> None:
        if held != item.held:
            self._before.setdefault(item.name, item.held)
            self._held += held - item.held
            item.held = held

    def _number(self, item: _Item) -> None:
        item.number(self._serials)
        self._by_serial[item.serial] = item
        self._serials += 1

    def _place(self, item: _Item) -> None:
        """Write an item's entries again, with what it wins at the present cut."""
        self._touched = True
        # Its old entries stay in both lists without an owner, because removing them would need a search.
        self._by_serial.pop(item.serial, None)
        self._number(item)
        lost, won = self._lost, self._won
        if lost:
            held = item.above(lost[-1])
        else:  # no claim lacks anything: this one can have what is left, too
            held = item.above(-won[-1]) if won else item.floor
            held = max(held, min(item.cap, self._slots - self._held + item.held))
        self._hold(item, held)
        item.low = item.high = held
        if held > item.floor:
            item.low -= 1
            insort(won, -item.entry(item.low))
        if held < item.cap:
            item.high += 1
            insort(lost, item.entry(held))

    def _write_down(self) -> None:
        """Rewrite all entries, as few as needed. Items on the wrong side of the cut are placed."""
        self._by_serial.clear()
        self._serials = 0
        won: list[int] = []
        lost: list[int] = []
        for item in self._items.values():
            self._number(item)
            item.low = item.high = held = item.held
            if held > item.floor:
                item.low -= 1
                won.append(item.entry(item.low))
            if held < item.cap:
                item.high += 1
                lost.append(item.entry(held))
        line = sorted(lost + won)  # a list keeps its length, whatever is on the wrong side
        self._lost = line[: len(lost)]
        self._won = [-entry for entry in reversed(line[len(lost) :])]
        if won and lost and min(won) < max(lost):
            cut = self._lost[-1]
            for entry in [entry for entry in won if entry <= cut] + [entry for entry in lost if entry > cut]:
                found = self._by_serial.get(entry & _LAST_SERIAL)
                if found is not None:
                    self._place(found)

    def _take(self, slots: int) -> None:
        lost, won, by_serial, before = self._lost, self._won, self._by_serial, self._before
        self._held -= slots
        while slots:
            assert won, "the floors are more than the slots"
            entry = -won.pop()
            item = by_serial.get(entry & _LAST_SERIAL)
            if item is None:
                continue
            lost.append(entry)
            held = item.held
            if item.name not in before:
                before[item.name] = held
            item.held = held = held - 1
            if held == item.low and held > item.floor:
                item.low = held - 1
                insort(won, -item.entry(held - 1))
            slots -= 1

    def _give(self, slots: int) -> None:
        lost, won, by_serial, before = self._lost, self._won, self._by_serial, self._before
        self._held += slots
        while slots and lost:
            entry = lost.pop()
            item = by_serial.get(entry & _LAST_SERIAL)
            if item is None:
                continue
            won.append(-entry)
            held = item.held
            if item.name not in before:
                before[item.name] = held
            item.held = held = held + 1
            if held == item.high and held < item.cap:
                item.high = held + 1
                insort(lost, item.entry(held))
            slots -= 1
        self._held -= slots  # slots that no claim can use
