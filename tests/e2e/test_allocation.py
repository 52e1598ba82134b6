"""Who holds how many slots, read from the event list: 4, then 2/2, then 1/3, then 4."""

from __future__ import annotations

from edt_sdk import Job
from tests.e2e.harness import Jobs
from tests.waiting import until


def settled(jobs: Jobs, *trainings: Job) -> list[tuple[int, ...]]:
    """The settled allocations of these jobs in the order of the event list, repetitions folded."""
    seen: list[tuple[int, ...]] = []
    for row in jobs.client.timeline().rows:
        held = tuple(row["slots"].get(job.id, 0) for job in trainings)
        if row["settled"] and any(held) and (not seen or seen[-1] != held):
            seen.append(held)
    return seen


def test_two_jobs_share_four_slots_by_priority(four_slots: Jobs) -> None:
    first = four_slots.submit("forever.py", name="first")
    until(lambda: first.refresh().view.slots == 4, "four slots for the only job")

    second = four_slots.submit("forever.py", name="second")
    until(lambda: settled(four_slots, first, second)[-1] == (2, 2), "an equal share")
    until(lambda: four_slots.worlds(first)[-1:] == [2], "the first job training on two workers")
    until(lambda: four_slots.worlds(second)[-1:] == [2], "the second job training on two workers")

    second.update(priority=10000)
    until(lambda: settled(four_slots, first, second)[-1] == (1, 3), "the share of twice the priority")
    until(lambda: four_slots.worlds(second)[-1:] == [3], "the second job training on three workers")

    first.stop()
    until(lambda: settled(four_slots, first, second)[-1] == (0, 4), "everything for the survivor")
    until(lambda: four_slots.worlds(second)[-1:] == [4], "the survivor training on four workers")

    # Between these the list may show how the shares came about slot by slot, but the settled order is this one.
    order = [held for held in settled(four_slots, first, second) if held in {(4, 0), (2, 2), (1, 3), (0, 4)}]
    assert order == [(4, 0), (2, 2), (1, 3), (0, 4)]
    assert first.refresh().state == "KILLED"

    second.stop()
    until(lambda: second.refresh().state == "KILLED", "the second job to end")
    assert all(slot["job"] is None for slot in four_slots.client.cluster()["slots"])


def test_a_job_beyond_the_slots_waits_with_a_reason(one_slot: Jobs) -> None:
    holder = one_slot.submit("forever.py", name="holder")
    until(lambda: holder.refresh().view.slots == 1, "the only slot")
    waiting = one_slot.submit("forever.py", name="waiting")
    reason = until(lambda: waiting.refresh().view.reason, "a reason")
    assert waiting.state == "PENDING"
    assert (reason.held, reason.asked) == (0, 1)
    assert "holder" in reason.text

    holder.stop()
    until(lambda: waiting.refresh().state == "RUNNING", "the waiting job to start")
    waiting.stop()
    until(lambda: waiting.refresh().state == "KILLED", "the waiting job to end")
