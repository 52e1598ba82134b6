"""Why a job holds less than it asked for, in the words people read."""

from __future__ import annotations

from fractions import Fraction

import msgspec


def call(job: str) -> str:
    return f"digits-{job}"


def test_who_has_what_it_asked_for_needs_no_reason(play):
    p = play(4)
    p.arrive("a")
    assert p.core.reason("a") is None
    p.train("a", 4)
    assert p.core.reason("a") is None


def test_its_share_with_the_claim_that_beat_it(play):
    p = play(4)
    p.run("a", 5000, 4)
    p.run("b", 10000, 4)
    assert p.shares == {"a": 1, "b": 3}
    reason = p.core.reason("a", call)
    assert (reason.code, reason.held, reason.entitled, reason.asked) == ("share", 1, 1, 4)
    assert reason.text == (
        "It has its share, 1 of 4 slots, and could use 4: its claim to a 2nd, 5000 ÷ 1.5 = 3333.3, comes after "
        "digits-b's to its 3rd, 10000 ÷ 2.5 = 4000. It gets 4 when digits-b ends."
    )
    assert reason.numbers["rival"] == "b"
    assert reason.numbers["claim"] == float(Fraction(10000, 3))
    assert reason.numbers["rival_claim"] == 4000.0
    msgspec.json.encode(reason)
    other = p.core.reason("b", call)
    assert other.text == "It has its share, 3 of 4 slots, and could use 4: digits-a holds one, which it keeps."


def test_the_forecast_is_what_happens(play):
    p = play(9)
    for job, priority, most in (("a", 3000, 9), ("b", 5000, 9), ("c", 5000, 4)):
        p.run(job, priority, most)
    p.release_all()
    reason = p.core.reason("a")
    assert reason.code == "share"
    p.gone(reason.numbers["rival"])
    assert p.shares["a"] == reason.numbers["when_rival_ends"]


def test_the_rival_is_the_weakest_claim_that_won(play):
    """Were the winner's last slot any weaker, it would be the asker's."""
    p = play(12)
    for job, priority in (("a", 1000), ("b", 3000), ("c", 7000), ("d", 5000)):
        p.run(job, priority)
    p.release_all()
    reason = p.core.reason("a")
    beaten_by = reason.numbers["rival"]
    p.change("a", priority=1000 * 12)
    assert p.targets()[beaten_by] < reason.numbers["rival_entitled"]


def test_a_tie_says_how_it_was_settled(play):
    p = play(3)
    p.run("a")
    p.run("b")
    assert p.shares == {"a": 2, "b": 1}
    assert (
        "ties with and, as digits-a arrived earlier, comes after digits-a's to its 2nd" in p.core.reason("b", call).text
    )
    q = play(6)
    for job, priority in (("a", 3000), ("b", 5000), ("c", 5000)):
        q.run(job, priority)
    assert q.shares == {"a": 1, "b": 3, "c": 2}
    assert "as digits-b has the higher priority" in q.core.reason("a", call).text


def test_slots_on_the_way(play):
    p = play(4)
    p.run("a")
    p.run("b")
    reason = p.core.reason("b", call)
    assert reason.code == "starting"
    assert reason.text == "It is entitled to 2 of 4 slots and holds 0: 2 are on the way (digits-a is leaving 2)."
    assert reason.numbers["leaving"] == {"a": 2}
    p.gone("b")
    assert "its own former workers are still in 2" in p.core.reason("a").text


def test_busy(play):
    p = play(2)
    for job in "abcd":
        p.run(job)
    p.release_all()
    first, second = p.core.reason("c", call), p.core.reason("d", call)
    assert (first.code, first.held, first.entitled, first.asked) == ("busy", 0, 0, 100)
    assert first.text.startswith(
        "Each of the 2 slots has a job of its own (digits-a and digits-b), and running jobs are not"
    )
    assert first.text.endswith("It is next when one of them ends.")
    assert second.text.endswith("1 job that arrived earlier is before it when one of them ends.")
    assert (first.numbers["ahead"], second.numbers["ahead"]) == (0, 1)
    assert p.core.reason("a", call).text.endswith("digits-b holds one, which it keeps.")


def test_the_only_slot(play):
    p = play(1)
    p.run("a")
    p.run("b")
    assert p.core.reason("b", call).text.startswith("The only slot has a job (digits-a), and")


def test_every_slot_there_is(play):
    p = play(4)
    p.run("a", max_workers=8)
    reason = p.core.reason("a")
    assert (reason.code, reason.held, reason.asked) == ("capped", 4, 8)
    assert reason.text == "It holds all 4 slots of this server; it could use 8."


def test_no_slots_is_not_the_same_as_busy(play):
    p = play(0)
    p.arrive("a")
    assert p.core.reason("a").code == "never_fits"


def test_it_tells_since_when(play):
    p = play(2)
    p.run("a")
    p.run("b")  # events 1 to 4
    assert p.core.reason("a").numbers["since"] == 2.0  # it could use more than two from its training on
    p.release_all()
    assert p.core.reason("b").numbers["since"] == 3.0
