"""A slot that comes free has a worker at once, which nobody had seen before."""

from __future__ import annotations

import json

import psutil
import pytest

from edt_sdk import Job
from edt_server.supervisor.processes.memory_left import memory_now
from tests.e2e.harness import Jobs
from tests.waiting import until

MEMORY = memory_now()
pytestmark = pytest.mark.skipif(
    MEMORY is None or not MEMORY.fits(2 << 30), reason="no worker is kept ready where little memory is left"
)


def processes(jobs: Jobs, job: Job) -> set[int]:
    """Pids of all worker processes of a job, seen from outside."""
    found = set()
    for process in psutil.process_iter(["pid"]):
        try:
            if "edt_sdk.training.worker" in process.cmdline():
                context = process.environ().get("EDT_JOB", "").rstrip("\0")
                if context and json.loads(context)["job_id"] == job.id:
                    found.add(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_slot_that_comes_free_has_a_worker_that_was_ready_for_it(four_slots: Jobs) -> None:
    first = four_slots.submit("forever.py", name="first")
    until(lambda: four_slots.worlds(first)[-1:] == [4], "four workers")
    second = four_slots.submit("forever.py", name="second")
    until(lambda: four_slots.worlds(second)[-1:] == [2], "two workers each")
    # It prepares when nobody else wants a core: when it is done, and the next one begins, nobody knows.
    until(lambda: len(processes(four_slots, second)) >= 3, "one more that waits")

    members = {worker["pid"] for worker in second.workers()}
    waiting = processes(four_slots, second) - members
    assert len(members) == 2
    assert sum(slot["job"] == second.id for slot in four_slots.client.cluster()["slots"]) == 2
    streams = four_slots.private(second) / "streams"
    assert len(list(streams.glob("worker-*.stderr"))) == 2, "no log tells of them"

    first.stop()
    until(lambda: four_slots.worlds(second)[-1:] == [4], "all four slots")
    assert members | waiting <= {worker["pid"] for worker in second.workers()}
    assert [worker["rank"] for worker in second.workers()] == [0, 1, 2, 3]
    assert len(list(streams.glob("worker-*.stderr"))) == 4
    second.stop()
    until(lambda: not processes(four_slots, second), "the end of all of them")
    assert [commit["update"] for commit in four_slots.commits(second)] == list(range(len(four_slots.commits(second))))


def test_those_that_still_wait_end_with_their_job(four_slots: Jobs) -> None:
    first = four_slots.submit("forever.py", name="first", max_workers=3)
    second = four_slots.submit("forever.py", name="second", max_workers=3)
    until(lambda: four_slots.worlds(first)[-1:] == [2] and four_slots.worlds(second)[-1:] == [2], "two each")
    until(lambda: len(processes(four_slots, second)) == 3, "one more that waits")
    second.suspend()
    until(lambda: not processes(four_slots, second), "none while it is suspended")
    until(lambda: four_slots.worlds(first)[-1:] == [3], "three workers")
    until(lambda: len(processes(four_slots, first)) == 3, "no more than it asks for")
    second.stop()
    first.stop()
    until(lambda: not processes(four_slots, first), "the end of all of them")
    # A process that is about to end has no command line any more.
    until(lambda: not list((four_slots.private(second) / "streams").glob(".standby-*")), "nothing is left of them")
