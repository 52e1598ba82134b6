"""One node's division, kept up to date: two lazy heaps, of the strongest claims to come and the weakest that won.

After a change slots move one by one from the weakest claim that won to the strongest that did not, until there is no
such pair; what is left is what `webster.divide` gives from nothing, as the order of all claims is total. O(log n) for
each slot that moves. Entries that are out of date stay in the heaps until they come up.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace

from edt_server.core.webster import Claim

_BITS = 64  # exact for up to 2³⁰ slots: see webster.precision
_ORDER = 48
_LAST_ORDER = (1 << _ORDER) - 1
_TIES = _ORDER + 40  # weights below 2⁴⁰
_WEIGHT = _ORDER


class _Item:
    __slots__ = ("cap", "floor", "held", "last", "name", "next", "order", "owned", "scaled", "speedup", "tie", "weight")

    def __init__(self, name: str, claim: Claim, held: int) -> None:
        self.name = name
        self.order = claim.order
        self.weight = claim.weight
        self.scaled = claim.weight << _BITS
        self.owned = claim.owned
        self.floor = min(claim.floor, claim.cap)
        self.cap = claim.cap
        self.speedup = claim.speedup
        self.tie = claim.weight << _WEIGHT | (_LAST_ORDER - claim.order)
        self.held = held
        self.next = 0  # its claim to one more slot, 0 for none
        self.last = 0  # its claim to the last slot it has, 0 where that is a floor's

    def key(self, held: int) -> int:
        """A number that is higher for the stronger claim, unique among all claims of the division."""
        if self.speedup is not None:
            return (self.weight * self.speedup.gain(held)) << _TIES | self.tie
        return self.scaled // (2 * (held - self.owned) + 1) << _TIES | self.tie


class Division:
    """Slots divided among claims with units of 1, whose floors all fit.

    Args:
        shares: (name, claim, what it holds now, 0 when it is new).
    """

    def __init__(self, shares: Iterable[tuple[str, Claim, int]]) -> None:
        self._items: dict[str, _Item] = {}
        self._by_order: dict[int, _Item] = {}
        self._held = 0
        self._next: list[int] = []  # negative: the strongest first
        self._last: list[int] = []
        self._before: dict[str, int] = {}
        self._slots = -1
        self._touched = True
        for name, claim, held in shares:
            item = _Item(name, claim, held)
            self._items[name] = item
            self._by_order[claim.order] = item
            self._held += held
            self._fit(item)
        self._compact()

    def put(self, name: str, claim: Claim) -> None:
        """A claim is there, or is another one now."""
        old = self._items.get(name)
        if old is None or old.order != claim.order or old.weight != claim.weight:
            item = _Item(name, claim, old.held if old is not None else 0)
            self._items[name] = item
            if old is not None and old.order != item.order:
                del self._by_order[old.order]
            self._by_order[item.order] = item
            self._fit(item)
            self._push(item)
            return
        floor = claim.floor if claim.floor < claim.cap else claim.cap
        if claim.speedup is old.speedup and claim.owned == old.owned and floor == old.floor and claim.cap == old.cap:
            return
        old.speedup, old.owned, old.floor, old.cap = claim.speedup, claim.owned, floor, claim.cap
        self._fit(old)
        self._push(old)

    def bound(self, name: str, floor: int, cap: int, owned: int) -> None:
        """The claim of that name has another floor ≤ cap now, or owns another number. Cheap where nothing follows."""
        item = self._items[name]
        if owned == item.owned and (item.held < cap) == (item.next != 0) and (item.held > floor) == (item.last != 0):
            if floor <= item.held <= cap:
                item.floor, item.cap = floor, cap
                return
        elif owned == item.owned and floor == item.floor and cap == item.cap:
            return
        item.floor, item.cap, item.owned = floor, cap, owned
        self._fit(item)
        self._push(item)

    def remove(self, name: str) -> None:
        """A claim is gone, with what it held."""
        item = self._items.pop(name)
        del self._by_order[item.order]
        self._touched = True
        self._held -= item.held
        self._before.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def held(self, name: str) -> int:
        """What the claim of that name holds."""
        return self._items[name].held

    def settle(self, slots: int) -> dict[str, int]:
        """Move slots until so many are divided; what every claim that holds another number than before now holds."""
        if slots == self._slots and not self._touched:
            return {}
        self._slots, self._touched = slots, False
        if len(self._next) + len(self._last) > 6 * len(self._items) + 64:
            self._compact()
        before = self._before
        while self._held > slots:
            self._take(self._weakest())
        while self._held < slots:
            item = self._strongest()
            if item is None:
                break
            self._give(item)
        up = self._strongest()
        while up is not None:
            down = self._weakest()
            # Equal ones are of one claim, whose measured gains may be equal from slot to slot.
            if down is None or up.next <= down.last:
                break
            self._take(down)
            self._give(up)
            up = self._strongest()
        self._before = {}
        items = self._items
        return {name: items[name].held for name, held in before.items() if items[name].held != held}

    def _fit(self, item: _Item) -> None:
        """Bring what it holds between floor and cap."""
        held = item.held
        if held < item.floor:
            held = item.floor
        if held > item.cap:
            held = item.cap
        if held != item.held:
            self._before.setdefault(item.name, item.held)
            self._held += held - item.held
            item.held = held
        item.next = item.key(held) if held < item.cap else 0
        item.last = item.key(held - 1) if held > item.floor else 0

    def _push(self, item: _Item) -> None:
        self._touched = True
        if item.next:
            heappush(self._next, -item.next)
        if item.last:
            heappush(self._last, item.last)

    def _compact(self) -> None:
        self._next = [-item.next for item in self._items.values() if item.next]
        self._last = [item.last for item in self._items.values() if item.last]
        heapify(self._next)
        heapify(self._last)

    def _strongest(self) -> _Item | None:
        heap, by_order = self._next, self._by_order
        while heap:
            key = -heap[0]
            item = by_order.get(_LAST_ORDER - (key & _LAST_ORDER))
            if item is not None and item.next == key:
                return item
            heappop(heap)
        return None

    def _weakest(self) -> _Item | None:
        heap, by_order = self._last, self._by_order
        while heap:
            key = heap[0]
            item = by_order.get(_LAST_ORDER - (key & _LAST_ORDER))
            if item is not None and item.last == key:
                return item
            heappop(heap)
        return None

    def _take(self, item: _Item | None) -> None:
        assert item is not None, "the floors are more than the slots"
        held = item.held
        if item.name not in self._before:
            self._before[item.name] = held
        item.held = held = held - 1
        self._held -= 1
        item.next = key = item.last
        heappush(self._next, -key)
        if held > item.floor:
            # As `key`, in line: nearly all time goes into these two.
            if item.speedup is None:
                key = item.scaled // (2 * (held - item.owned) - 1) << _TIES | item.tie
            else:
                key = item.key(held - 1)
            item.last = key
            heapreplace(self._last, key)
        else:
            item.last = 0
            heappop(self._last)

    def _give(self, item: _Item) -> None:
        held = item.held
        if item.name not in self._before:
            self._before[item.name] = held
        item.held = held = held + 1
        self._held += 1
        item.last = key = item.next
        heappush(self._last, key)
        if held < item.cap:
            if item.speedup is None:
                key = item.scaled // (2 * (held - item.owned) + 1) << _TIES | item.tie
            else:
                key = item.key(held)
            item.next = key
            heapreplace(self._next, -key)
        else:
            item.next = 0
            heappop(self._next)
