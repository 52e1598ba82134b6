"""Which replica answers what, decided by hand and in random histories: each request has exactly one end."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edt_sdk.schemas.serving.replica_channel import Answer
from edt_server.serving import dispatch
from edt_server.serving.dispatch import POISON_SECONDS, Dispatch, Give, Pending, Refusal, Reply, RequestEnd

PATIENCE, DEADLINE, WAIT = 10.0, 30.0, 0.002


def make(now=0.0, **more):
    made = Dispatch(now)
    made.batch_wait, made.max_queue, made.patience = WAIT, 1000, PATIENCE
    for name, value in more.items():
        setattr(made, name, value)
    return made


def request(now=0.0, body=b"x"):
    return Pending(body, "simple", "", None, now, now + DEADLINE)


def reply(number):
    return Reply(Answer(number, 200, "application/json", None, 0), memoryview(b""), 0, 0.0)


def given(instructions):
    return [(each.replica, each.requests) for each in instructions if isinstance(each, Give)]


def statuses(instructions):
    return [
        each.result.status for each in instructions if isinstance(each, RequestEnd) and isinstance(each.result, Refusal)
    ]


def answer(of, replica, requests, now, *, leaving=False):
    return of.answered(replica, {each.number: reply(each.number) for each in requests}, leaving, now)


def test_an_idle_replica_gets_a_request_at_once_and_the_next_batch_is_what_has_come_meanwhile():
    of, asked = make(), [request() for _ in range(4)]
    assert of.joined("r", 2, 0.0) == []
    assert given(of.arrive(asked[0], 1.0)) == [("r", (asked[0],))]
    assert [of.arrive(each, 2.0) for each in asked[1:]] == [[], [], []]
    first, *rest = answer(of, "r", asked[:1], 3.0)
    assert isinstance(first.result, Reply)
    assert given(rest) == [("r", tuple(asked[1:3]))]
    assert (of.queued, of.working, of.oldest) == (1, 1, 0.0)


def test_a_free_replica_waits_for_a_fuller_batch_only_while_many_arrive():
    of, asked = make(), [request() for _ in range(8)]
    of.joined("r", 3, 0.0)
    assert given(of.arrive(asked[0], 0.0))
    for each in asked[1:5]:
        of.arrive(each, 0.001)
    of.joined("s", 3, 0.001)  # takes three at once, as many as it can
    assert of.queued == 1
    # Five have come within two milliseconds, more than it takes at once: it waits for the others, but not longer.
    assert given(answer(of, "r", asked[:1], 0.0015)) == []
    assert of.hold == 0.0015 + WAIT
    assert given(of.tick(0.002)) == []
    assert given(of.tick(of.hold)) == [("r", (asked[4],))]
    assert of.hold is None
    # Nothing has come for a while: no waiting.
    assert given(answer(of, "s", asked[1:4], 1.0)) == []
    assert given(of.arrive(asked[5], 2.0)) == [("s", (asked[5],))]


def test_a_batch_that_becomes_full_in_time_does_not_wait_to_the_end():
    of, asked = make(), [request() for _ in range(5)]
    for each in asked[:3]:
        of.arrive(each, 0.0)
    of.joined("r", 2, 0.0)
    assert given(answer(of, "r", asked[:2], 0.0)) == []
    assert of.hold is not None
    assert given(of.arrive(asked[3], 0.001)) == [("r", (asked[2], asked[3]))]
    assert of.hold is None


def test_nothing_is_held_for_a_request_whose_caller_has_gone():
    of, asked = make(), [request() for _ in range(3)]
    for each in asked:
        of.arrive(each, 0.0)
    of.joined("r", 2, 0.0)
    answer(of, "r", asked[:2], 0.0)
    assert of.hold is not None
    of.gone(asked[2])
    of.tick(0.001)
    assert of.hold is None


def test_a_batch_fits_into_a_frame(monkeypatch):
    monkeypatch.setattr(dispatch, "LARGEST_BATCH", 5)
    of, asked = make(), [request(body=b"xx") for _ in range(4)]
    for each in asked:
        of.arrive(each, 0.0)
    assert given(of.joined("r", 9, 1.0)) == [("r", tuple(asked[:3]))]


def test_requests_of_a_dead_replica_come_first_and_a_second_death_is_their_end():
    of, bad, good, late = make(), request(body=b"bad"), request(body=b"good"), request()
    of.joined("r", 1, 0.0)
    of.arrive(bad, 0.0)
    of.arrive(late, 0.0)
    assert of.lost("r", 1.0) == []
    assert given(of.joined("s", 1, 1.0)) == [("s", (bad,))]
    ends = of.lost("s", 2.0)
    assert statuses(ends) == [500]
    assert "killed two replicas" in ends[0].result.error
    # The same body is refused for ten minutes, another one is not.
    assert statuses(of.arrive(request(3.0, b"bad"), 3.0)) == [500]
    assert of.arrive(good, 3.0) == []
    of.tick(2.0 + POISON_SECONDS)
    assert of.arrive(request(2.0 + POISON_SECONDS, b"bad"), 2.0 + POISON_SECONDS) == []


def test_one_of_a_batch_kills_and_the_others_are_answered():
    of, asked, later = make(), [request(body=f"{each}".encode()) for each in range(3)], request(body=b"later")
    for each in asked:
        of.arrive(each, 0.0)
    assert given(of.joined("r", 8, 0.0)) == [("r", tuple(asked))]
    of.arrive(later, 0.0)
    of.lost("r", 1.0)
    assert given(of.joined("s", 8, 1.0)) == [("s", (asked[0],))]
    assert given(answer(of, "s", asked[:1], 1.0)) == [("s", (asked[1],))]
    assert statuses(of.lost("s", 2.0)) == [500]
    assert given(of.joined("t", 8, 2.0)) == [("t", (asked[2],))]
    assert given(answer(of, "t", asked[2:], 2.0)) == [("t", (later,))]


def test_a_leaving_replica_gets_nothing_more():
    of, one, two = make(), request(), request()
    of.joined("r", 1, 0.0)
    of.arrive(one, 0.0)
    of.arrive(two, 0.0)
    assert given(answer(of, "r", [one], 1.0, leaving=True)) == []
    assert of.replicas == ()
    assert of.lost("r", 1.0) == []
    assert given(of.joined("s", 1, 1.0)) == [("s", (two,))]


def test_what_a_replica_has_not_read_is_not_what_it_died_of_unless_that_goes_on():
    of, asked = make(), request()
    of.arrive(asked, 0.0)
    for number in range(dispatch.MOST_UNREAD):
        assert given(of.joined(number, 1, 1.0)) == [(number, (asked,))]
        assert of.lost(number, 1.0, unread=True) == []
    assert asked.deaths == 0
    assert given(of.joined("r", 1, 2.0))
    assert of.lost("r", 2.0, unread=True) == []
    assert given(of.joined("s", 1, 3.0))
    assert statuses(of.lost("s", 3.0, unread=True)) == [500]


def test_a_request_is_given_up_at_its_deadline_wherever_it_is():
    of, taken, waits = make(), request(), request()
    of.joined("r", 1, 0.0)
    of.arrive(taken, 0.0)
    of.arrive(waits, 0.0)
    assert of.tick(DEADLINE - 0.01) == []
    assert statuses(of.tick(DEADLINE)) == [504, 504]
    assert of.queued == 0
    # The late answer has no taker, and the replica is free again.
    assert answer(of, "r", [taken], DEADLINE + 1) == []
    assert given(of.arrive(request(DEADLINE + 2), DEADLINE + 2))


def test_without_a_replica_a_request_waits_as_long_as_patience_and_hears_the_reason():
    of = make(reason="4 of 4 slots are held by digits.")
    of.arrive(request(1.0), 1.0)
    assert of.tick(PATIENCE + 0.9) == []
    (end,) = of.tick(PATIENCE + 1.0)
    assert (end.result.status, end.result.error) == (503, "4 of 4 slots are held by digits.")


def test_patience_begins_anew_when_the_last_replica_dies():
    of, asked = make(), [request(), request()]
    of.joined("r", 1, 0.0)
    for each in asked:
        of.arrive(each, 0.0)
    of.lost("r", 15.0)
    assert of.tick(15.0 + PATIENCE - 0.01) == []
    assert statuses(of.tick(15.0 + PATIENCE)) == [503, 503]


def test_a_full_queue_refuses():
    of = make(max_queue=2)
    assert of.arrive(request(), 0.0) == of.arrive(request(), 0.0) == []
    (end,) = of.arrive(request(), 0.0)
    assert (end.result.status, end.result.headers) == (429, {"Retry-After": "1"})


def test_a_retired_target_passes_on_what_waits_and_ends_what_it_has():
    of, other, asked = make(), make(), [request() for _ in range(3)]
    of.joined("r", 1, 0.0)
    for each in asked:
        of.arrive(each, 0.0)
    assert of.retire() == [RequestEnd(asked[1], None), RequestEnd(asked[2], None)]
    later = request()
    assert of.arrive(later, 1.0) == [RequestEnd(later, None)]
    assert of.lost("r", 1.0) == [RequestEnd(asked[0], None)]
    assert other.arrive(asked[0], 2.0) == []
    other.joined("s", 1, 2.0)
    # Its second death, counted over both targets.
    assert statuses(other.lost("s", 3.0)) == [500]


@pytest.mark.parametrize(("replies", "leaving"), [([], False), ([7], False), ([1, 7], False), ([7], True)])
def test_answers_that_are_none_are_refused_and_nothing_is_lost_by_that(replies, leaving):
    of, asked = make(), request()
    of.joined("r", 1, 0.0)
    with pytest.raises(ValueError, match="other requests"):
        of.answered("r", {}, leaving, 0.0)
    of.arrive(asked, 0.0)
    with pytest.raises(ValueError, match="other requests"):
        of.answered("r", {number: reply(number) for number in replies}, leaving, 1.0)
    assert of.lost("r", 1.0) == []
    assert given(of.joined("s", 1, 2.0)) == [("s", (asked,))]


class Histories(RuleBasedStateMachine):
    """Random histories beside a queue as it should be."""

    @initialize(patience=st.sampled_from([0.0, 0.5, 10.0]), wait=st.sampled_from([0.0, 0.01]), most=st.integers(1, 9))
    def begin(self, patience, wait, most):
        self.now = 0.0
        self.of = make(patience=patience, batch_wait=wait, max_queue=most)
        self.queue, self.batches, self.most = [], {}, {}
        self.asked, self.ended, self.readers, self.unread = [], set(), {}, {}
        self.retired, self.names = False, 0

    def do(self, instructions):
        for each in instructions:
            if isinstance(each, RequestEnd):
                assert each.request not in self.ended
                self.ended.add(each.request)
                self.queue = [other for other in self.queue if other is not each.request]
                # Only a retired target moves requests.
                assert each.result is not None or self.retired
            else:
                assert self.batches[each.replica] == []
                size = len(each.requests)
                assert 1 <= size <= self.most[each.replica]
                # In the order of arrival, those of dead replicas first.
                assert list(each.requests) == self.queue[:size]
                del self.queue[:size]
                self.batches[each.replica] = list(each.requests)
                for asked in each.requests:
                    assert asked not in self.ended
                    self.readers[asked] = self.readers.get(asked, 0) + 1
                    assert self.readers[asked] <= 2

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.005, 0.2, 1.0, 7.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.do(self.of.tick(self.now))

    @rule(body=st.sampled_from([b"a", b"b", b"c"]), deadline=st.sampled_from([0.5, 5.0, 30.0]))
    def arrive(self, body, deadline):
        asked = Pending(body, "v2", "", None, self.now, self.now + deadline)
        self.asked.append(asked)
        self.queue.append(asked)
        self.do(self.of.arrive(asked, self.now))

    @precondition(lambda self: not self.retired and len(self.batches) < 4)
    @rule(most=st.integers(1, 4))
    def join(self, most):
        self.names += 1
        self.batches[self.names], self.most[self.names] = [], most
        self.do(self.of.joined(self.names, most, self.now))

    @precondition(lambda self: any(self.batches.values()))
    @rule(leaving=st.booleans(), data=st.data())
    def answer(self, leaving, data):
        replica = data.draw(st.sampled_from([each for each, batch in self.batches.items() if batch]))
        batch, self.batches[replica] = self.batches[replica], []
        if leaving:
            del self.batches[replica]
        self.do(self.of.answered(replica, {each.number: reply(each.number) for each in batch}, leaving, self.now))
        assert all(each in self.ended for each in batch)

    @precondition(lambda self: self.batches)
    @rule(unread=st.booleans(), data=st.data())
    def disappear(self, unread, data):
        replica = data.draw(st.sampled_from(sorted(self.batches)))
        back = [each for each in self.batches.pop(replica) if each not in self.ended]
        for each in back:
            if unread and self.unread.get(each, 0) < dispatch.MOST_UNREAD:
                self.unread[each] = self.unread.get(each, 0) + 1
                self.readers[each] -= 1
        self.queue[:0] = [each for each in back if self.readers[each] < 2]
        self.do(self.of.lost(replica, self.now, unread=unread))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def caller_goes(self, data):
        asked = data.draw(st.sampled_from(self.asked))
        self.do(self.of.gone(asked))
        assert asked in self.ended

    @precondition(lambda self: not self.retired)
    @rule()
    def retire(self):
        self.retired = True
        self.do(self.of.retire())

    @invariant()
    def what_waits_is_known_and_waits_for_a_reason(self):
        assert set(self.of.requests()) == set(self.asked) - self.ended
        assert self.of.queued == len(self.queue)
        free = [each for each, batch in self.batches.items() if not batch]
        if self.queue and free:
            assert self.of.hold is not None
            assert self.now < self.of.hold
        assert self.of.replicas == tuple(self.batches)
        assert self.of.working == len(self.batches) - len(free)

    def teardown(self):
        self.now += 1000.0
        self.do(self.of.tick(self.now))
        assert self.ended == set(self.asked)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
