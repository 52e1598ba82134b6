"""The bound on attempts: exact at its edges, and always reached without progress."""

from hypothesis import given
from hypothesis import strategies as st

from edt_server.supervisor.state_machines.attempts import (
    DRIVER_LIMIT,
    HANG_LIMIT,
    OUTSIDE_LIMIT,
    OWN_LIMIT,
    SLOT_LIMIT,
    Attempts,
    DeathCause,
)

KINDS = st.sampled_from(DeathCause)
LIMITS = (OWN_LIMIT, HANG_LIMIT, OUTSIDE_LIMIT)


def test_before_anything_is_committed_the_jobs_own_code_may_not_fail():
    assert Attempts().member_ended(DeathCause.OWN, 1) == 1
    assert Attempts().outsider_ended(DeathCause.OWN, 0, alone=True) == 1
    assert Attempts().outsider_ended(DeathCause.OWN, 0, alone=False) == 0, "others train"
    assert Attempts(committed=1).member_ended(DeathCause.OWN, 1) == 0
    assert Attempts(ever=True).member_ended(DeathCause.OWN, 1) == 0


def test_the_last_attempt_says_how_many_there_were():
    own, hang, outside = Attempts(committed=1), Attempts(), Attempts()
    assert [own.member_ended(DeathCause.OWN, n) for n in range(OWN_LIMIT)] == [0] * (OWN_LIMIT - 1) + [OWN_LIMIT]
    answers = [hang.member_ended(DeathCause.HANG, n) for n in range(HANG_LIMIT)]
    assert answers == [0] * (HANG_LIMIT - 1) + [HANG_LIMIT]
    answers = [outside.member_ended(DeathCause.OUTSIDE, n) for n in range(OUTSIDE_LIMIT + 1)]
    assert answers == [0] * OUTSIDE_LIMIT + [OUTSIDE_LIMIT + 1]


def test_what_cannot_succeed_is_tried_once():
    assert Attempts(committed=9).member_ended(DeathCause.OWN, 1, final=True)
    assert Attempts(committed=9).outsider_ended(DeathCause.OWN, 1, alone=False, final=True)


def test_a_slot_is_given_up_until_a_worker_of_it_is_a_member():
    attempts = Attempts(committed=1)
    for _ in range(SLOT_LIMIT):
        assert attempts.given_up == set()
        attempts.outsider_ended(DeathCause.OUTSIDE, 4, alone=False)
    assert attempts.given_up == {4}
    attempts.became_member(4)
    assert attempts.given_up == set()


def test_a_new_training_begins_to_count_anew_but_remembers_that_updates_were_committed():
    attempts = Attempts()
    attempts.progress(5)
    attempts.begin()
    assert attempts.committed == 0
    assert attempts.member_ended(DeathCause.OWN, 1) == 0


@given(st.lists(st.tuples(KINDS, st.integers(0, 5)), max_size=60))
def test_several_deaths_in_one_generation_count_once(deaths):
    once, often = Attempts(committed=1), Attempts(committed=1)
    generations = sorted(deaths, key=lambda death: death[1])
    seen = set()
    for kind, generation in generations:
        answer = often.member_ended(kind, generation)
        if (kind, generation) not in seen:
            seen.add((kind, generation))
            assert once.member_ended(kind, generation) == answer


@given(st.lists(st.tuples(KINDS, st.integers(0, 3)), min_size=sum(LIMITS), max_size=40), st.booleans())
def test_without_progress_it_comes_to_an_end(deaths, committed):
    attempts = Attempts(committed=int(committed))
    assert any(attempts.member_ended(kind, number) for number, (kind, _) in enumerate(deaths))


@given(st.lists(KINDS, max_size=60), st.integers(1, min(LIMITS) - 1))
def test_with_progress_in_between_it_never_does(deaths, every):
    attempts = Attempts(committed=1)
    for number, kind in enumerate(deaths):
        if number % every == 0:
            attempts.progress(number + 2)
        assert attempts.member_ended(kind, number) == 0


@given(st.lists(st.integers(0, 4), max_size=30))
def test_the_driver_may_die_once_between_updates(updates):
    attempts = Attempts()
    best, deaths = 0, 0
    for update in updates:
        attempts.progress(update)
        if update > best:
            best, deaths = update, 0
        deaths += 1
        assert bool(attempts.driver_ended()) == (deaths >= DRIVER_LIMIT)
