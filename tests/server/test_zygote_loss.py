"""Loss of the processes that a job's workers are forked from, on a real supervisor: nobody in the job notices."""

import contextlib
import os
import re
import signal

import psutil
import pytest

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire.control import GenerationFormed, JobEnded, SlotReturned, StopJob, TrainingStarted, WorkerLost
from tests.server.by_hand import JOB, script, serving

pytestmark = pytest.mark.asyncio


def zygotes(server):
    """Pids of the children of the job's supervisor that look like a zygote and live."""
    found = set()
    for child in psutil.Process(server.identity.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie too
            if "edt_sdk.training.zygote" in child.cmdline():
                found.add(child.pid)
    return found


async def two(server, *, but=frozenset()):
    """Pids of zygote and heir, none of them one of `but`."""

    def find():
        # Only what the supervisor has taken note of; a worker that was just forked looks like a zygote as well.
        heirs = re.findall(r"heir of the zygote forked, pid=(\d+)", server.paths.supervisor_log.read_text())
        found = zygotes(server)
        return found if len(found) == 2 and not found & but and heirs and int(heirs[-1]) in found else None

    return await server.until(find, "a zygote and its heir")


def kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


async def test_a_job_loses_zygotes_and_heirs_and_grows_all_the_same(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(script(delay=0.01, epochs=40))
        await server.report(GenerationFormed, number=1, slots=(0,))
        first = await two(server)
        zygote = next(pid for pid in first if f"zygote ready, pid={pid}" in server.paths.supervisor_log.read_text())
        kill({zygote})
        server.allocate(0, 1)
        await server.report(GenerationFormed, slots=(0, 1))
        second = await two(server, but={zygote})
        assert first - {zygote} < second, "the heir stays"
        kill(second)
        await two(server, but=second)
        server.allocate(0)
        await server.report(SlotReturned, slot=1)
        server.allocate(0, 1)
        await server.report(GenerationFormed, number=4, slots=(0, 1))
        last = await two(server)
        server.control.send(JOB, StopJob(why="enough"))
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended.state is JobState.KILLED
        commits = server.commits()
        assert [commit["update"] for commit in commits] == list(range(len(commits)))
        assert not [report for report in server.reports if isinstance(report, WorkerLost)]
        server.assert_nothing_left()
        assert not [pid for pid in last if psutil.pid_exists(pid)]


async def test_a_killed_supervisor_leaves_neither_zygote_nor_heir(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(script(delay=0.02, epochs=40))
        await server.report(TrainingStarted)
        both = await two(server)
        os.kill(server.identity.pid, signal.SIGKILL)
        await server.until(lambda: not any(map(_runs, both)), "the end of zygote and heir")


def _runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
