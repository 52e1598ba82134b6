"""The supervisor's end of the control channel, over real sockets: a report arrives once, whichever server leads."""

import asyncio
import contextlib
import json
import os

import pytest
import pytest_asyncio

from edt_sdk.schemas.job import JobProgress, JobSpec
from edt_sdk.schemas.wire.control import (
    PROTOCOL,
    Ack,
    DriverStarted,
    Launch,
    Numbered,
    SlotReturned,
    StopJob,
    SupervisorHello,
    Welcome,
)
from edt_server.messaging import key_pair
from edt_server.supervisor.journal import Journal
from edt_server.supervisor.reporter import Reporter
from edt_server.system.processes import identify
from edt_server.system.steady_clock import SteadyClock
from tests.server.control_channel import Service
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def service(tmp_path):
    service = Service(tmp_path / "control")
    await service.control.start()
    yield service
    await service.control.stop()


class Supervisor:
    """A reporter without a supervisor."""

    def __init__(self, service, folder, job="a"):
        public, secret = key_pair()
        service.control.admit(job, public)
        self.public = public
        self.journal = Journal(folder / "journal.jsonl")
        self.heard = []
        orders = Launch(
            job_id=job,
            owner="ann",
            attempt=1,
            spec=JobSpec(name="n", main="m.py", max_workers=1),
            data_dir=str(folder),
            runtime_dir=str(folder),
            control_file=str(service.control.control_file),
            public_key=public,
            secret_key=secret,
            interpreter="python",
            threads_per_slot=1,
        )
        self.reporter = Reporter(
            orders,
            identify(os.getpid()),
            self.journal,
            SteadyClock(),
            holding=lambda: (3,),
            on_message=self.heard.append,
        )
        self.task = asyncio.create_task(self.reporter.run())

    async def stop(self):
        if self.task.done():
            return
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        self.journal.close()


@pytest_asyncio.fixture
async def supervisor(service, tmp_path):
    supervisor = Supervisor(service, tmp_path)
    yield supervisor
    await supervisor.stop()


async def delivered(supervisor):
    await asyncio.wait_for(supervisor.reporter.delivered(), 180)


async def test_reports_are_delivered_in_order_and_acknowledged(service, supervisor):
    for number in (1, 2, 3):
        supervisor.reporter.report(number, SlotReturned(slot=number, worker=None, exit_code=None))
    await delivered(supervisor)
    assert [report.number for report in service.of(Numbered)] == [1, 2, 3]
    greeting = service.of(SupervisorHello)[0]
    assert (greeting.protocol, greeting.attempt, greeting.holding) == (PROTOCOL, 1, (3,))
    assert Ack(number=3) in supervisor.heard


async def test_what_a_failing_server_did_not_acknowledge_is_repeated(service, supervisor):
    await until_async(lambda: service.connected)
    service.fail_on = {1}
    supervisor.reporter.report(1, DriverStarted(pid=1))
    supervisor.reporter.report(2, DriverStarted(pid=2))
    await delivered(supervisor)
    assert [report.number for report in service.of(Numbered)] == [1, 2]


async def test_the_next_server_is_found_and_gets_what_the_last_one_did_not(service, supervisor):
    supervisor.reporter.report(1, DriverStarted(pid=1))
    await delivered(supervisor)
    first = json.loads(service.control.control_file.read_text())
    await service.control.stop()
    supervisor.reporter.report(2, DriverStarted(pid=2))
    supervisor.reporter.progress(JobProgress(update=5))
    supervisor.reporter.progress(JobProgress(update=6))
    service.control, service.answer = service.server(), Welcome(protocol=PROTOCOL, acknowledged=1)
    await service.control.start()
    service.control.admit("a", supervisor.public)
    await delivered(supervisor)
    second = json.loads(service.control.control_file.read_text())
    assert first["public_key"] == second["public_key"]
    assert [report.number for report in service.of(Numbered)] == [1, 2]
    await until_async(lambda: service.of(JobProgress))
    assert [progress.update for progress in service.of(JobProgress)] == [6]


async def test_of_quick_progress_the_last_is_always_sent_and_before_the_next_report(service, supervisor):
    # Reports of before the welcome are sent ahead of progress: here both sides know each other.
    supervisor.reporter.report(1, DriverStarted(pid=1))
    await delivered(supervisor)
    for update in range(50):
        supervisor.reporter.progress(JobProgress(update=update))
    supervisor.reporter.report(2, DriverStarted(pid=2))
    await delivered(supervisor)
    heard = [message for _, message in service.heard if isinstance(message, JobProgress | Numbered)]
    assert [message.number for message in (heard[0], heard[-1])] == [1, 2]
    updates = [message.update for message in heard[1:-1]]
    assert updates[-1] == 49
    assert len(updates) <= 2


async def test_messages_of_the_server_arrive(service, supervisor):
    await until_async(lambda: service.connected)
    assert service.control.send("a", StopJob(why="enough"))
    await until_async(lambda: StopJob(why="enough") in supervisor.heard)


async def test_a_supervisor_that_went_away_is_noticed(service, supervisor):
    await until_async(lambda: service.connected)
    await supervisor.stop()
    await until_async(lambda: not service.control.send("a", StopJob(why="x")))
