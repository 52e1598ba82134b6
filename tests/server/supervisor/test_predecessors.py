"""Nothing of a new attempt begins before the last process of the old one is gone."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_server.supervisor.processes.predecessors import Overdue, Predecessors, holders


@contextlib.contextmanager
def predecessors(path, patience=60.0):
    lock = Predecessors(path, patience)
    try:
        yield lock
    finally:
        lock.close()


@contextlib.contextmanager
def holding(path, source="input()"):
    """A process of an earlier attempt whose supervisor is gone."""

    with predecessors(path) as lock:
        assert asyncio.run(lock.gone())
        process = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, pass_fds=[lock.descriptor])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "alive.lock"


def test_the_first_attempt_waits_for_nobody(path):
    async def run():
        with predecessors(path) as lock:
            assert await lock.gone()
            assert holders(path) == {}

    asyncio.run(run())


def test_it_waits_until_the_last_holder_has_ended_by_itself(path):
    async def run(process):
        with predecessors(path) as lock:
            assert list(holders(path)) == [process.pid]
            waiting = asyncio.create_task(lock.gone())
            done, _ = await asyncio.wait([waiting], timeout=0.3)
            assert not done
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert await waiting
            assert process.wait() == 0

    with holding(path) as process:
        asyncio.run(run(process))


@pytest.mark.parametrize("how", ["no patience", "hurried"])
def test_one_that_does_not_end_is_killed(path, how):
    async def run(process):
        with predecessors(path, 0.0 if how == "no patience" else 60.0) as lock:
            if how == "hurried":
                lock.hurry()
            assert await lock.gone()
            assert process.wait() == -signal.SIGKILL

    with holding(path) as process:
        asyncio.run(run(process))


def test_one_that_is_stopped_is_killed(path, monkeypatch):
    monkeypatch.setattr("edt_server.supervisor.processes.predecessors.STOPPED_PATIENCE", 0.1)

    async def run(process):
        with predecessors(path) as lock:
            assert await lock.gone()
            assert process.wait() == -signal.SIGKILL

    with holding(path) as process:
        os.kill(process.pid, signal.SIGSTOP)
        asyncio.run(run(process))


def test_a_wait_that_is_given_up_kills_nobody(path):
    async def run(process):
        with predecessors(path) as lock:
            waiting = asyncio.create_task(lock.gone())
            await asyncio.sleep(0)
            lock.give_up()
            assert not await waiting
            assert process.poll() is None

    with holding(path) as process:
        asyncio.run(run(process))


def test_the_lock_is_held_against_a_later_attempt(path):
    async def run():
        with predecessors(path) as first, predecessors(path) as second:
            assert await first.gone()
            waiting = asyncio.create_task(second.gone())
            done, _ = await asyncio.wait([waiting], timeout=0.2)
            assert not done
            second.give_up()
            assert not await waiting

    asyncio.run(run())


@given(st.lists(st.sampled_from("RST"), min_size=1, max_size=40))
def test_nobody_is_killed_before_its_time(states):
    """One look a second at one process, which has 30 s, and 5 s of them in a row stopped."""
    overdue = Overdue(30.0, 0.0)
    stopped = 0
    for second, state in enumerate(states):
        stopped = stopped + 1 if state == "T" else 0
        assert overdue.of({7: state}, float(second)) == ([7] if second >= 30 or stopped > 5 else [])
