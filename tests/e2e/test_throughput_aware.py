"""A throughput-aware instance group: workers' measured speeds decide who gets one slot more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Job
from edt_sdk.testing import LocalServer
from tests.e2e.harness import Jobs
from tests.waiting import until


@pytest.fixture(scope="module")
def aware(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server with four slots."""
    with LocalServer(tmp_path_factory.mktemp("aware"), traits={"EdtApp.threads_per_slot": 1}) as server:
        yield Jobs(server)


def measured(job: Job) -> dict[int, float]:
    """The newest table of speeds that the job's story tells of: slots → updates a second."""
    told = [event.data["speeds"] for event in job.story() if event.kind == "speed_measured"]
    return {int(size): speed for size, speed in told[-1].items()} if told else {}


def held(job: Job) -> int:
    return job.refresh().view.slots


@pytest.mark.long  # server/service/test_speeds.py, server/core/test_rule.py
def test_a_job_that_slows_down_with_more_workers_leaves_them_to_one_that_does_not(aware: Jobs, tmp_path: Path) -> None:
    group = aware.client.create_instance_group("fast lane", throughput_aware=True)
    assert group.throughput_aware
    crowded = aware.submit("crowded.py", str(tmp_path), instance_group="fast lane", max_workers=1)
    until(lambda: 1 in measured(crowded), "its speed on one slot")
    crowded.update(max_workers=4)
    until(lambda: max(measured(crowded)) > 1, "its speed on more slots")
    table = measured(crowded)
    assert table[max(table)] < table[1], "it is slower on more slots"
    until(lambda: held(crowded) == 1, "the slots that slow it down given back")
    assert "its speed was measured" in repr(crowded.story())

    other = aware.submit("forever.py", instance_group="fast lane", max_workers=4)
    until(lambda: held(other) == 3, "three slots for the job that they speed up")
    assert held(crowded) == 1
    reason = crowded.refresh().view.reason
    assert reason is not None
    assert reason.code == "slower"

    aware.client.update_instance_group("fast lane", throughput_aware=False)
    until(lambda: (held(crowded), held(other)) == (2, 2), "equal shares where speed does not count")
    for job in (crowded, other):
        job.stop()
