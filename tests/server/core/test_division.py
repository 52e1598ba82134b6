"""A division that is kept up to date is the division from nothing, whatever changed on the way."""

from __future__ import annotations

import random

import pytest

from edt_server.core.division import Division
from edt_server.core.divisor_rule import WeightedClaim as Claim
from edt_server.core.divisor_rule import divide
from edt_server.core.speedup import EACH_LIKE_THE_FIRST, speedup

KINDS = {  # of claims that are divided together
    "shares": (None,),
    "speeds": tuple(map(speedup, ((), ((1, 1.0), (2, 1.9), (4, 3.5)), ((1, 3.0), (4, 6.0), (8, 5.0)), ((2, 5.0),)))),
    "strict": (EACH_LIKE_THE_FIRST,),
}
WEIGHTS = (1, 2, 3, 1000, 5000, 5000, 10000, 10**9)


def claim(rng, order, tables):
    floor = rng.choice((0, 1, 1, 3))
    owned = rng.randint(0, floor)
    table = rng.choice(tables)
    if table is not None:
        owned = 0  # groups own, jobs have a speed
    return Claim(rng.choice(WEIGHTS), floor, floor + rng.choice((0, 1, 5, 40, 300)), order, owned=owned, speedup=table)


def rebound(rng, old):
    floor = rng.choice((0, 1, 2, 6))
    owned = 0 if old.speedup is not None else rng.randint(0, floor)
    cap = floor + rng.choice((0, 2, 8, 300))
    return Claim(old.weight, floor, cap, old.order, owned=owned, speedup=old.speedup)


def expected(slots, claims):
    return dict(zip(claims, divide(slots, list(claims.values())), strict=True))


@pytest.mark.parametrize("tables", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_every_settle_gives_what_a_division_from_nothing_gives(seed, tables):
    rng = random.Random(seed)
    most = rng.choice((2, 6, 30))
    claims = {f"c{order}": claim(rng, order, tables) for order in range(rng.randint(0, most))}
    division = Division([(name, each, rng.randint(0, 9)) for name, each in claims.items()])
    told = {}
    for number in range(100, 700):
        for _ in range(rng.choice((0, 1, 1, 1, 4))):
            name = rng.choice(list(claims)) if claims else ""
            kind = rng.random()
            if not name or (kind < 0.3 and len(claims) < most):
                claims[f"c{number}"] = claim(rng, number, tables)
                division.put(f"c{number}", claims[f"c{number}"])
            elif kind < 0.5:
                division.remove(name)
                del claims[name]
            elif kind < 0.75:
                claims[name] = claim(rng, claims[name].order, tables)
                division.put(name, claims[name])
            else:
                claims[name] = new = rebound(rng, claims[name])
                division.bound(name, new.floor, new.cap, new.owned)
            number += 1000
        floors = sum(each.floor for each in claims.values())
        slots = floors + rng.choice((0, 1, 17, 18, 19, 300, 5000))
        changed = division.settle(slots)
        assert {name: division.held(name) for name in claims} == expected(slots, claims)
        told = {name: held for name, held in told.items() if name in claims} | changed
        assert all(held == division.held(name) for name, held in told.items()), "nobody was told of a change"


def test_only_what_changed_is_told():
    division = Division([(str(n), Claim(5000, 1, 100, n), 0) for n in range(4)])
    assert division.settle(8) == {str(n): 2 for n in range(4)}
    assert division.settle(8) == {}
    assert division.settle(9) == {"0": 3}
    division.put("heavy", Claim(10000, 1, 3, 4))
    assert division.settle(9) == {"heavy": 3, "0": 2, "2": 1, "3": 1}
    division.remove("heavy")
    assert division.settle(9) == {"0": 3, "2": 2, "3": 2}


def test_a_change_of_weight_and_back_leaves_no_claim_twice():
    division = Division([("a", Claim(5000, 1, 100, 0), 0), ("b", Claim(5000, 1, 100, 1), 0)])
    for _ in range(50):
        division.put("a", Claim(1000, 1, 100, 0))
        division.settle(8)
        division.put("a", Claim(5000, 1, 100, 0))
        division.settle(8)
        assert (division.held("a"), division.held("b")) == (4, 4)


def test_floors_beyond_the_slots_are_a_mistake_of_the_caller():
    division = Division([("a", Claim(5000, 3, 3, 0), 0)])
    with pytest.raises(AssertionError, match="floors are more than the slots"):
        division.settle(2)
