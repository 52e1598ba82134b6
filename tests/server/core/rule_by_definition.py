"""The rule of `edt_server.core.rule` once more, by its definition: recursive, with fractions, nothing kept. Slow."""

from __future__ import annotations

from fractions import Fraction


class Definition:
    """Targets of claims over groups, worked out from nothing. Units of 1 and policies as in the plan."""

    def __init__(self, groups, slots, claims, turns=None):
        """`turns`: (group, user) of a strict leaf → its turn."""
        self.slots = slots
        self.turns = turns or {}
        self.groups = {group.name: group for group in groups}
        self.kids = {"": []} | {group.name: [] for group in groups}
        for group in groups:
            self.kids[group.parent].append(group.name)
        self.place = {group.name: number for number, group in enumerate(groups)}
        self.claims = [claim for claim in claims if claim.cap > 0]
        self.own = {"": slots}
        self._own_below("")
        self.running = self._admitted()

    # --- owning -------------------------------------------------------------------------------------------------------

    def _raw(self, name):
        return max(self.groups[name].own, sum(self._raw(kid) for kid in self.kids[name]))

    def _own_below(self, name):
        wanted = [(max(1, self._raw(kid)), 0, self._raw(kid), 0, self.place[kid]) for kid in self.kids[name]]
        for kid, own in zip(self.kids[name], top(self.own[name], wanted), strict=True):
            self.own[kid] = own
            self._own_below(kid)

    # --- what nodes need ----------------------------------------------------------------------------------------------

    def nodes(self, name):
        """(children of a node, whether these are jobs); a user is ("group", "user")."""
        if isinstance(name, tuple):
            return [], [c for c in self.claims if c.group == name[0] and c.user == name[1]]
        if self.kids[name]:
            return self.kids[name], []
        mine = [c for c in self.claims if c.group == name]
        if self.groups.get(name) is not None and self.groups[name].weights_of_users is not None:
            return [(name, user) for user in sorted({c.user for c in mine})], []
        return [], mine

    def policy(self, name):
        return self.groups[name[0] if isinstance(name, tuple) else name].policy

    def reserve_most_base(self, name, floors, demands):
        """(reserve, most, base, whether the floors fit) of a node; floors and demands: sets of orders that count."""
        kids, jobs = self.nodes(name)
        below = [self.reserve_most_base(kid, floors, demands) for kid in kids]
        bases = sum(b[2] for b in below) + self.floor_of(name, jobs, floors)
        demand = sum(b[1] for b in below) + sum(c.cap for c in jobs if c.order in demands)
        fits = all(b[3] for b in below)
        if name == "":
            return 0, 0, bases, fits and bases <= self.slots
        reserves = sum(b[0] for b in below)
        own, lend, borrow = 0, None, None
        if not isinstance(name, tuple):
            own, lend, borrow = self.own[name], self.groups[name].lend, self.groups[name].borrow
        else:
            borrow = self.groups[name[0]].user_slots
        kept = 0 if lend is None else own - lend
        owned = max(reserves, min(own, demand))
        reserve = max(owned, min(own, kept))
        most = max(reserve, demand if borrow is None else min(demand, owned + borrow))
        return reserve, most, max(reserve, bases), fits and bases <= most

    def floor_of(self, name, jobs, floors):
        if not jobs or self.policy(name) == "fairshare":
            return sum(min(c.floor, c.cap) for c in jobs if c.order in floors)
        first = next((c for c in self.strictly(name, jobs) if min(c.floor, c.cap) <= self.slots), None)
        return min(first.floor, first.cap) if first is not None and ("strict", name) in floors else 0

    def strictly(self, name, jobs):
        return sorted(jobs, key=lambda c: ((-c.weight if self.policy(name) == "priority" else 0), c.order))

    def leaves(self, name=""):
        kids, jobs = self.nodes(name)
        if jobs:
            yield name, jobs
        for kid in kids:
            yield from self.leaves(kid)

    def _admitted(self):
        """Floors that count: orders of jobs, and ("strict", leaf)."""
        queue, everyone = [], {c.order for c in self.claims}
        for name, jobs in self.leaves():
            if self.policy(name) == "fairshare":
                queue += [(c.turn, (1, c.order), c.order) for c in jobs]
            else:
                group, user = name if isinstance(name, tuple) else (name, "")
                queue.append((self.turns.get((group, user), 0), (0, self.place[group], user), ("strict", name)))
        marks = set()
        for *_, mark in sorted(queue, key=lambda row: row[:2]):
            if self.reserve_most_base("", marks | {mark}, everyone)[3]:
                marks.add(mark)
        return marks

    # --- dividing -----------------------------------------------------------------------------------------------------

    def targets(self):
        strict = {c.order for name, jobs in self.leaves() if self.policy(name) != "fairshare" for c in jobs}
        demands = {mark for mark in self.running if not isinstance(mark, tuple)} | strict
        found = {c.job: 0 for c in self.claims}
        self._divide("", self.slots, demands, found)
        return found

    def _divide(self, name, budget, demands, found):
        kids, jobs = self.nodes(name)
        if kids:
            rows = []
            for number, kid in enumerate(kids):
                reserve, most, base, _ = self.reserve_most_base(kid, self.running, demands)
                rows.append((self.share(kid), base, most, reserve, number))
            for kid, slots in zip(kids, top(budget, rows), strict=True):
                self._divide(kid, slots, demands, found)
        elif jobs and self.policy(name) == "fairshare":
            jobs = [c for c in jobs if c.order in demands]
            shares = top(budget, [(c.weight, min(c.floor, c.cap), c.cap, 0, c.order) for c in jobs])
            found.update({c.job: share for c, share in zip(jobs, shares, strict=True)})
        elif jobs:
            for c in self.strictly(name, jobs):
                found[c.job] = min(budget, c.cap) if min(budget, c.cap) >= c.floor else 0
                budget -= found[c.job]

    def share(self, name):
        if isinstance(name, tuple):
            shares = self.groups[name[0]].weights_of_users
            return shares.get(name[1], shares.get("*", 1))
        return self.groups[name].share


def top(slots, rows):
    """Slots of each (weight, floor, cap, owned, order): list every entry, sort, take the first."""
    entries = [
        (0, Fraction(0), 0, order, held, n)
        if held < floor
        else (1, -Fraction(2 * weight, 2 * (held - owned) + 1), -weight, order, held, n)
        for n, (weight, floor, cap, owned, order) in enumerate(rows)
        for held in range(min(cap, slots))
    ]
    won = [entry[-1] for entry in sorted(entries)[:slots]]
    return [won.count(n) for n in range(len(rows))]
