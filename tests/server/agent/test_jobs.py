"""Orders of one job that come while others of it are carried out on a host with files of its own."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec
import pytest

from edt_sdk.schemas.wire import agent as wire
from edt_server.agent.below import ProcessesBelow
from edt_server.agent.jobs import JobsHere
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio
DATA = b"x" * (wire.PART + 1)


class Uplink:
    """A connection that keeps what is sent."""

    def __init__(self):
        self.connected = asyncio.Event()
        self.connected.set()
        self.sent = []

    def send(self, message, data=b""):
        self.sent.append(message)
        return True

    def wanted(self):
        return [each.offset for each in self.sent if isinstance(each, wire.Want)]


@pytest.fixture
def host(tmp_path, orders):
    """The jobs of a host, and the order to prepare one of them as a member: one file, of two parts."""
    agent = wire.AgentOrders(
        host="a", data_dir=str(tmp_path / "host"), runtime_dir=str(tmp_path / "r"), public_key="p", secret_key="s"
    )
    (tmp_path / "r").mkdir()
    jobs = JobsHere(agent, Uplink(), ProcessesBelow("a", lambda job, attempt, code: None), lambda: "127.0.0.1")
    path = f"results/ann/batchworkdir/{orders.job_id}/_submitted_code/train.py"
    file = wire.JobFile(path=path, size=len(DATA), mode=0o600, digest=hashlib.sha256(DATA).hexdigest())
    return jobs, wire.Prepare(launch=msgspec.structs.replace(orders, host="b"), supervises=False, files=(file,))


async def give(jobs, order, offset, data=None):
    """Answer the next request, which has to come first."""
    before = len(jobs._uplink.wanted()) - 1
    await until_async(lambda: offset in jobs._uplink.wanted()[before:], "the request for a part")
    chunk = wire.Chunk(job=order.launch.job_id, path=order.files[0].path, offset=offset)
    jobs.given(chunk, DATA[offset : offset + wire.PART] if data is None else data)


async def test_a_job_that_is_forgotten_while_its_files_come_leaves_none(host, tmp_path):
    jobs, order = host
    job = order.launch.job_id
    preparing = asyncio.create_task(jobs.prepare(order))
    await until_async(lambda: jobs._uplink.wanted() == [0], "the request for the first part")
    forgetting = asyncio.create_task(jobs.forget(job, "ann"))
    await asyncio.sleep(0)
    await give(jobs, order, 0)
    await asyncio.gather(preparing, forgetting)
    assert jobs._uplink.wanted() == [0], "the second part is not asked for"
    left = [path for path in (tmp_path / "host").rglob("*") if job in str(path)]
    assert left == []
    again = asyncio.create_task(jobs.prepare(order))
    await until_async(lambda: jobs._uplink.wanted() == [0, 0], "the request of the next order")
    await give(jobs, order, 0)
    await give(jobs, order, wire.PART)
    await again
    assert (await jobs.of(job, 1)).ready.is_set()
    await jobs.forget(job, "ann")


async def test_a_second_order_for_an_attempt_is_carried_out_when_the_first_fails(host, tmp_path):
    jobs, order = host
    first = asyncio.create_task(jobs.prepare(order))
    await until_async(lambda: jobs._uplink.wanted() == [0], "the request for the first part")
    second = asyncio.create_task(jobs.prepare(msgspec.structs.replace(order)))
    await asyncio.sleep(0)
    await give(jobs, order, 0)
    await until_async(lambda: jobs._uplink.wanted() == [0, 0], "the request of the second order")
    await give(jobs, order, 0)
    await give(jobs, order, wire.PART, b"y")  # what the first order would have been tried again for
    await until_async(lambda: jobs._uplink.wanted() == [0, 0, wire.PART, 0], "the next try")
    await give(jobs, order, 0)
    await give(jobs, order, wire.PART)
    await asyncio.gather(first, second)
    here = await jobs.of(order.launch.job_id, 1)
    assert (tmp_path / "host" / order.files[0].path).read_bytes() == DATA
    assert here.ready.is_set()
    await jobs.forget(order.launch.job_id, "ann")
