"""Orders of one job that come while others of it are carried out on a host with files of its own."""

from __future__ import annotations

import asyncio
import hashlib
import os

import msgspec
import pytest
import pytest_asyncio

from edt_sdk.schemas.registered import Registered
from edt_sdk.schemas.wire import agent as wire
from edt_server.agent.below import ProcessesBelow
from edt_server.agent.jobs import JobsHere
from edt_server.fleet.attempts import PlacedAttempts
from edt_server.fleet.connection import HostConnection
from edt_server.fleet.registry import HostRecord
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


@pytest_asyncio.fixture
async def host(tmp_path, orders):
    """The jobs of a host, and the order to prepare one of them as a member: one file, of two parts."""
    agent = wire.AgentOrders(
        host="a", data_dir=str(tmp_path / "host"), runtime_dir=str(tmp_path / "r"), public_key="p", secret_key="s"
    )
    (tmp_path / "r").mkdir()
    below = ProcessesBelow("a", lambda job, attempt, code: None)
    jobs = JobsHere(agent, Uplink(), below, lambda: "127.0.0.1")
    path = f"results/ann/batchworkdir/{orders.job_id}/_submitted_code/train.py"
    file = wire.JobFile(path=path, size=len(DATA), mode=0o600, digest=hashlib.sha256(DATA).hexdigest())
    yield jobs, wire.Prepare(launch=msgspec.structs.replace(orders, host="b"), supervises=False, files=(file,))
    below.templates.stop()


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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"refused": "The data set is too large."}, "too large"),
        (
            {"dataset": Registered(model="", dataset="ds-1")},
            "The data set digits is not on the host a: there is no /no",
        ),
    ],
)
async def test_an_order_that_cannot_be_carried_out_is_refused_with_a_sentence(host, changes, says):
    jobs, order = host
    spec, data = order.launch.spec, changes.pop("dataset", None)
    spec = msgspec.structs.replace(spec, dataset="digits", data_path="digits", registered=data)
    launch = msgspec.structs.replace(order.launch, spec=spec, data_fs="/no")
    order = msgspec.structs.replace(order, launch=launch, **changes)
    await jobs.prepare(order)
    assert says in (await jobs.of(launch.job_id, 1)).refused, "for a supervisor that wants an outpost here"
    await jobs.prepare(
        msgspec.structs.replace(order, supervises=True, launch=msgspec.structs.replace(launch, attempt=2))
    )
    (failed,) = [each for each in jobs._uplink.sent if isinstance(each, wire.SupervisorStarted)]
    assert (failed.identity, says in failed.why) == (None, True)
    await jobs.forget(launch.job_id, "ann")


async def test_the_servers_copy_of_a_data_set_is_sent_up_to_a_size(tmp_path, orders):
    kept = tmp_path / "data" / "catalogue" / "ann" / "ds-1" / "data"
    (kept / "a").mkdir(parents=True)
    (kept / "a" / "train.bin").write_bytes(DATA)
    (kept / "test.bin").write_bytes(b"test")
    spec = msgspec.structs.replace(orders.spec, dataset="digits")
    given = msgspec.structs.replace(orders, spec=spec, dataset_dir=str(kept), host="b")
    tasks, sent = [], []
    hosts = {name: HostConnection(HostRecord(name=name, public_key="p", up=True), since=0.0) for name in "ab"}
    hosts["a"].peer = b"peer"

    async def prepared(limit):
        attempts = PlacedAttempts(
            hosts,
            lambda host, message, *data: sent.append((message, *data)),
            lambda work, name: tasks.append(asyncio.create_task(work)),
            lambda hosts: None,
            limit,
        )
        hosts["a"].prepared.clear()
        attempts.adopt(given)
        attempts.may_span(given.job_id, ["a"])
        await tasks.pop()
        return attempts, sent.pop()[0]

    attempts, order = await prepared(len(DATA) + 4)
    there = f"jobs/{given.job_id}/dataset"
    assert {file.path: file.size for file in order.files} == {f"{there}/a/train.bin": len(DATA), f"{there}/test.bin": 4}
    want = wire.Want(job=given.job_id, path=f"{there}/a/train.bin", offset=wire.PART)
    attempts.hear(hosts["a"], b"peer", want, b"")
    await tasks.pop()
    assert sent.pop() == (wire.Chunk(job=want.job, path=want.path, offset=want.offset), DATA[wire.PART :])
    _, refused = await prepared(len(DATA))
    assert refused.files == ()
    assert f"data set digits has {len(DATA) + 4:,} bytes" in refused.refused
    assert "--data DIR" in refused.refused
    (kept / os.fsdecode(b"\xff")).write_bytes(b"")
    _, refused = await prepared(1 << 30)
    assert "its name is not in UTF-8" in refused.refused
