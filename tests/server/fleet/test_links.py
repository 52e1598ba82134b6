"""Which hosts do not reach each other, and which of them a job does without."""

from __future__ import annotations

import time

import pytest

from edt_sdk.schemas.wire import agent as wire
from edt_server.fleet.links import AGAIN, Links
from tests.server.fleet.machines import joined
from tests.waiting import until_async

ALL = ("a", "b", "c", "d")
APART = 5.0


def told(*pairs: str) -> dict[str, set[str]]:
    """What hosts tell: "ab" is that a could not reach b."""
    return {host: {pair[1] for pair in pairs if pair[0] == host} for host in ALL}


def cut(*pairs: str) -> Links:
    """Links on which these pairs have failed for long."""
    links = Links(APART)
    links.look(told(*pairs), 0.0)
    links.look(told(*pairs), APART)
    return links


def test_a_pair_counts_once_it_has_failed_for_a_while_in_one_direction():
    links = Links(APART)
    links.look(told("ab"), 0.0)
    links.look(told("ab"), APART - 0.1)
    assert not links.pairs
    links.look(told("ab"), APART)
    assert links.pairs == {frozenset("ab")}
    assert links.sentence("b") == "Hosts b and a do not reach each other. No job has slots of both."
    assert links.sentence("c") == ""


def test_one_that_works_in_between_begins_again():
    links = Links(APART)
    links.look(told("ab"), 0.0)
    links.look(told(), APART / 2)
    links.look(told("ab"), APART)
    assert not links.pairs


def test_a_host_that_is_not_heard_is_lost_and_not_cut_off_from_another():
    links = Links(APART)
    heard = {"a": {"b"}}
    links.look(heard, 0.0)
    links.look(heard, APART)
    links.look({**heard, "b": set()}, APART + 1)
    assert not links.pairs, "and it has the time to be reached again when it is back"


def test_a_link_that_works_again_counts_after_a_while():
    links = cut("ab")
    links.look(told(), APART + AGAIN - 0.1)
    assert links.pairs
    links.look(told(), APART + AGAIN)
    assert not links.pairs


@pytest.mark.parametrize(
    ("pairs", "home", "slots", "before", "out"),
    [
        ([], "a", "aab", "", ""),
        (["ab"], "a", "abbb", "", "b"),  # never its own home, however many slots it has elsewhere
        (["ba"], "a", "ab", "", "b"),
        (["ab"], "a", "a", "", "b"),  # nor later
        (["ab"], "b", "ab", "", "a"),
        (["bc"], "a", "abcc", "", "b"),  # with fewer slots
        (["bc"], "a", "abc", "", "b"),
        (["bc"], "a", "acc", "b", "b"),  # as before, although it has none there any more
        (["bc"], "a", "ac", "", ""),
        (["bc", "bd"], "a", "abbbcd", "", "b"),  # which fewer of the others reach
        (["bc", "bd", "cd"], "a", "abbccd", "", "bd"),
        (["ab", "bc"], "a", "abc", "", "b"),  # without b nothing is left between the others
        (["ab"], "a", "bb", "", ""),  # it moves to b
        (["ab"], "", "ab", "", ""),
    ],
)
def test_whom_a_job_does_without(pairs, home, slots, before, out):
    found, why = cut(*pairs).left_out(home, list(slots), set(before))
    assert "".join(found) == out
    assert why.count("do not reach each other") == len(out)


def test_it_names_both_hosts():
    assert cut("bc").left_out("a", list("abcc"), ())[1] == (
        "Hosts c and b do not reach each other, so it has no slot of b."
    )


@pytest.mark.asyncio
async def test_hosts_tell_whom_they_do_not_reach_and_everybody_is_told(server, clock, placed):
    a, b = await joined(server), await joined(server, "b")
    server.fleet.attempts.adopt(placed)
    assert a.beat() == [wire.Heard()], "the only host of its jobs"
    server.fleet.attempts.may_span(placed.job_id, ["b"])
    assert a.beat() == [wire.Heard(probe=("b",))]
    await server.fleet.follow()
    began, really_began = clock.now, time.monotonic()

    def told():
        clock.now = began + 2 * (time.monotonic() - really_began)
        b.beat()
        a.say(wire.HostBeat(load=0.5, memory_free=1, disk_free=2, unreached=("b",)))
        return server.fleet.parted

    await until_async(told)
    assert server.view("a").why == "Hosts a and b do not reach each other. No job has slots of both."
    assert server.fleet.apart(placed.job_id, ["a", "b"], ()) == (
        ("b",),
        "Hosts a and b do not reach each other, so it has no slot of b.",
    )
    assert server.fleet.apart("another", ["a", "b"], ()) == ((), ""), "it has no supervisor yet"
