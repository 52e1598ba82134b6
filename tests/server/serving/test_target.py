"""A target in a loop of the test's own, with real connections."""

import asyncio
import time

import pytest

from edt_sdk.schemas.serving.edge_file import EdgeDeployment, Target
from edt_server.serving.dispatch import Pending, Reply
from edt_server.serving.target import LiveTarget
from tests.waiting import until_async


@pytest.mark.asyncio
async def test_a_batch_for_a_replica_that_is_just_being_closed_is_no_death(tmp_path, start):
    wanted = Target(job="job", revision=1, version="digits/3", socket=str(tmp_path / "s"))
    target = LiveTarget(EdgeDeployment(name="digits"), wanted)
    await target.listen()
    first = start(wanted, 0, again=False)
    await until_async(lambda: target.replicas == 1, "the replica")
    (connection,) = target._dispatch.replicas
    connection.close()
    # The target does not know of it yet: the loop has not called `connection_lost`.
    assert target.replicas == 1
    now = time.monotonic()
    request = Pending(b"[1]", "simple", "", None, now, now + 60.0)
    answer = asyncio.create_task(target.ask(request, asyncio.Event().wait))
    await until_async(lambda: target.counters().queued == 1, "the request in the queue again")
    assert (request.deaths, first.batches) == (0, [])
    second = start(wanted, 1)
    result = await answer
    assert isinstance(result, Reply)
    assert (bytes(result.body), result.worker) == (b"[1]", 1)
    target.retire()
    assert target.close()
    await asyncio.to_thread(second.close)
