"""How many replicas a deployment needs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from edt_sdk.schemas.serving.deployments import DeploymentSettings
from edt_sdk.schemas.serving.edge_file import Counters
from edt_server.deployments import Load

SETTINGS = DeploymentSettings(replicas=(1, 4), release_after=10.0, idle_after=30.0)
LOOK = 0.25


class Edge:
    """An edge that counts what is offered to it: `rate` requests a second, each of which takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now, self.answered, self.queued = seconds, 0.0, 0.0, 0.0

    def look(self, rate: float, replicas: int) -> Counters:
        self.now += LOOK
        self.queued += rate * LOOK
        done = min(self.queued, replicas * LOOK / self.seconds)
        self.queued -= done
        self.answered += done
        return Counters(
            requests={200: int(self.answered)},
            rows=int(self.answered),
            busy=self.answered * self.seconds,
            queued=int(self.queued),
            waited=self.queued / rate if rate else 0.0,
            replicas=replicas,
        )


def play(load: Load, edge: Edge, rate: float, seconds: float, chosen: DeploymentSettings = SETTINGS) -> list[int]:
    """Let the load follow: the replicas are there at the next look."""
    found = []
    for _ in range(int(seconds / LOOK)):
        found.append(load.hear(edge.look(rate, load.wanted), chosen, edge.now))
    return found


def test_three_times_what_one_can_do_gets_as_many_as_it_needs_within_two_seconds():
    load, edge = Load(1), Edge(seconds=0.1)
    play(load, edge, 2.0, 5.0)
    assert load.wanted == 1
    wanted = play(load, edge, 27.0, 2.0)
    assert wanted[-1] == 4
    assert play(load, edge, 27.0, 20.0)[-1] == 4


def test_fewer_are_needed_only_when_no_second_of_the_last_needed_more():
    load, edge = Load(1), Edge(seconds=0.1)
    play(load, edge, 27.0, 5.0)
    after = play(load, edge, 2.0, 8.0)
    assert set(after) == {4}
    assert play(load, edge, 2.0, 20.0)[-1] == 1


def test_the_last_one_stays_until_nobody_has_called_for_a_while():
    chosen = DeploymentSettings(replicas=(0, 2), release_after=5.0, idle_after=30.0)
    load, edge = Load(1), Edge(seconds=0.01)
    play(load, edge, 1.0, 5.0, chosen)
    assert set(play(load, edge, 0.0, 29.0, chosen)) == {1}
    assert play(load, edge, 0.0, 5.0, chosen)[-1] == 0
    assert play(load, edge, 1.0, 2.0, chosen)[-1] == 1


def test_one_without_a_request_lets_a_waiting_one_have_its_last_slot():
    chosen = replace(SETTINGS, replicas=(0, 4))
    load, edge = Load(1), Edge(seconds=0.1)
    play(load, edge, 2.0, 5.0, chosen)
    found = [load.hear(edge.look(0.0, load.wanted), chosen, edge.now, others_wait=True) for _ in range(8)]
    assert found[0] == 1, "it has just answered"
    assert found[-1] == 0
    assert play(load, edge, 2.0, 0.5, chosen)[-1] == 1, "a request brings it back"
    # One that keeps a replica, and one that is asked, give nothing up.
    for least, rate in ((1, 0.0), (0, 2.0)):
        chosen, load, edge = replace(SETTINGS, replicas=(least, 4)), Load(1), Edge(seconds=0.1)
        play(load, edge, 2.0, 5.0, chosen)
        assert {load.hear(edge.look(rate, load.wanted), chosen, edge.now, others_wait=True) for _ in range(20)} == {1}


def test_an_edge_that_began_anew_loses_no_replica():
    load, edge = Load(1), Edge(seconds=0.1)
    play(load, edge, 15.0, 5.0)
    before = load.wanted
    assert before > 1
    assert play(load, Edge(seconds=0.1), 15.0, LOOK)[-1] == before


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.25, 5)), max_size=10), st.integers(0, 3), st.integers(0, 5))
def test_it_stays_within_its_bounds(phases, least, more):
    chosen = DeploymentSettings(replicas=(least, max(1, least + more)), release_after=2.0, idle_after=3.0)
    load, edge = Load(max(1, least)), Edge(seconds=0.05)
    for rate, seconds in phases:
        for wanted in play(load, edge, rate, seconds, chosen):
            assert least <= wanted <= chosen.replicas[1]
