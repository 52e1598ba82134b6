"""What happens when a zygote dies, its heir, or both: real ones, killed."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys

import psutil
import pytest
import pytest_asyncio

from edt_sdk.schemas.wire.zygote import ONLY_VARIABLE, Fork, to_wire
from edt_server.supervisor.processes.forker import Forker, Request
from edt_server.supervisor.processes.orphans import orphans, reap_orphans
from edt_server.supervisor.programs.environment import zygote_environment
from edt_server.supervisor.programs.programs import SCRIPT
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio
PR_SET_CHILD_SUBREAPER = 36


def pid_of(zygote):
    return None if zygote is None else zygote.pid


class House:
    """A forker, whose processes this one adopts, and what was forked by it.

    Its zygotes import what a plain script needs: torch, with `only` None, takes two seconds of a core each time.
    """

    def __init__(self, tmp_path, *, needed=lambda: True, only=SCRIPT):
        self.tmp_path = tmp_path
        self.others = orphans(())  # children of this process from other tests, such as a database
        imported = {ONLY_VARIABLE: only} if only else {}
        self.forker = Forker(sys.executable, zygote_environment(os.environ, 1) | imported, tmp_path, needed=needed)
        self.pids = []
        self.failed = []
        (tmp_path / "says_its_parents.py").write_text("import os\nprint(os.getppid())\n")

    def ask(self):
        """Ask for a program."""
        streams = [os.open(self.tmp_path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")]
        environment = {**os.environ, "PYTHONPATH": str(self.tmp_path)}
        fork = Fork(module="says_its_parents", environ=to_wire(environment), directory="/", umask=0o022)
        self.forker.fork(Request(fork, tuple(streams), self.pids.append, self.failed.append))

    async def run(self):
        """Have it forked; it is this process's child and ends well."""
        before = len(self.pids)
        self.ask()
        await until_async(lambda: len(self.pids) > before or self.failed)
        assert not self.failed
        status = await asyncio.to_thread(os.waitpid, self.pids[-1], 0)
        assert os.waitstatus_to_exitcode(status[1]) == 0, (self.tmp_path / "err").read_text()
        assert (self.tmp_path / "out").read_text() == f"{os.getpid()}\n"

    def orphans(self, known=()):
        """Children of this process that came since, without those known."""
        return orphans({*self.others, *known})

    async def settled(self):
        """Zygote and heir, once both are there."""
        await until_async(lambda: self.forker.heir is not None and not self.forker.forking)
        return self.forker.zygote.pid, self.forker.heir.pid


@contextlib.asynccontextmanager
async def keeping(tmp_path, **options):
    house = House(tmp_path, **options)
    try:
        yield house
    finally:
        house.forker.stop()
        # What was being forked ends at its gate.
        await until_async(lambda: not reap_orphans(house.others, kill=False))


@pytest_asyncio.fixture
async def house(tmp_path, request):
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    async with keeping(tmp_path, only=getattr(request, "param", SCRIPT)) as house:
        yield house
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def imports(caplog):
    """How often a zygote has told that everything is imported."""
    return sum(record.message.startswith("zygote ready") for record in caplog.records)


@pytest.mark.parametrize("house", [None], indirect=True, ids=["with torch"])
async def test_the_heir_is_a_zygote_that_waits_and_no_orphan(house):
    await house.run()
    zygote, heir = await house.settled()
    commands = [psutil.Process(pid).cmdline() for pid in (zygote, heir)]
    assert commands == [[sys.executable, "-u", "-m", "edt_sdk.training.zygote"]] * 2
    assert os.getsid(heir) == heir
    assert len(os.listdir(f"/proc/{heir}/task")) == 1
    # Its own socket alone: not the zygote's, whose end has to be seen, nor one of anything that was forked.
    sockets = [os.readlink(f"/proc/{heir}/fd/{number}") for number in os.listdir(f"/proc/{heir}/fd")]
    assert sum(name.startswith("socket:") for name in sockets) == 1
    assert house.forker.pids == {zygote, heir}
    assert set(house.orphans()) == {zygote, heir}
    assert house.orphans(house.forker.pids) == []


async def test_when_the_zygote_is_killed_its_heir_forks_and_nothing_is_imported_anew(house, caplog):
    caplog.set_level(logging.INFO)
    await house.run()
    seen = set()
    for _ in range(2):
        zygote, heir = await house.settled()
        kill(zygote)
        await house.run()
        assert pid_of(house.forker.zygote) == heir
        seen |= {zygote, heir}
    await house.settled()
    assert len(seen) == 3
    assert imports(caplog) == 1
    assert house.orphans(house.forker.pids) == [], "the dead are reaped"


async def test_an_heir_that_is_killed_is_replaced_by_the_same_zygote(house, caplog):
    caplog.set_level(logging.INFO)
    await house.run()
    zygote, heir = await house.settled()
    kill(heir)
    await until_async(lambda: pid_of(house.forker.heir) not in (None, heir))
    assert pid_of(house.forker.zygote) == zygote
    kill(zygote)
    await house.run()
    assert imports(caplog) == 1


async def test_when_both_are_killed_another_one_starts_before_anybody_asks(house, caplog):
    caplog.set_level(logging.INFO)
    await house.run()
    both = await house.settled()
    kill(*both)
    await until_async(lambda: imports(caplog) == 2)
    assert pid_of(house.forker.zygote) not in both
    # As good as the first.
    zygote, heir = await house.settled()
    kill(zygote)
    await house.run()
    assert pid_of(house.forker.zygote) == heir
    assert imports(caplog) == 2


async def test_not_for_a_job_that_needs_no_more_processes(tmp_path, house, caplog):
    caplog.set_level(logging.INFO)
    (tmp_path / "other").mkdir()
    async with keeping(tmp_path / "other", needed=lambda: False) as idle:
        await idle.run()
        kill(*await idle.settled())
        await until_async(lambda: not idle.forker.pids)
        assert imports(caplog) == 1
        await idle.run()
        assert imports(caplog) == 2


@pytest.mark.parametrize("with_it", [False, True], ids=["zygote", "both"])
async def test_a_request_that_is_under_way_is_made_again(house, with_it):
    await house.run()
    zygote, heir = await house.settled()
    # It has the request and does not answer.
    os.kill(zygote, signal.SIGSTOP)
    house.ask()
    assert house.forker.forking
    kill(zygote, *[heir] * with_it)
    await until_async(lambda: len(house.pids) == 2 or house.failed)
    assert not house.failed
    assert (pid_of(house.forker.zygote) == heir) is not with_it
    await asyncio.to_thread(os.waitpid, house.pids[1], 0)


async def test_who_is_killed_while_it_imports_is_replaced_for_those_who_wait(house, caplog):
    caplog.set_level(logging.INFO)
    house.ask()
    first = pid_of(house.forker.zygote)
    assert imports(caplog) == 0
    kill(first)
    await until_async(lambda: house.pids or house.failed)
    assert not house.failed
    assert pid_of(house.forker.zygote) != first
    await asyncio.to_thread(os.waitpid, house.pids[0], 0)


async def test_where_something_kills_them_all_they_are_not_replaced_for_ever(house):
    await house.run()
    for _ in range(8):
        zygote, heir = await house.settled()
        kill(heir)
        await until_async(lambda heir=heir: pid_of(house.forker.heir) != heir)
    zygote, heir = pid_of(house.forker.zygote), pid_of(house.forker.heir)
    assert heir is None
    kill(zygote)
    await until_async(lambda: not house.forker.pids)
    # Who is asked for is made none the less, and that begins anew.
    await house.run()
    await house.settled()


async def test_nothing_is_left_when_it_stops_whatever_it_was_doing(house, tmp_path):
    await house.run()
    settled = await house.settled()
    (tmp_path / "second").mkdir()
    async with keeping(tmp_path / "second") as second:
        second.ask()
        # The program is there, the heir is not yet.
        await until_async(lambda: second.pids)
        os.kill(pid_of(second.forker.zygote), signal.SIGSTOP)
        stopped = pid_of(second.forker.zygote)
        house.forker.stop()
    assert house.forker.pids == second.forker.pids == frozenset()
    assert not [pid for pid in (*settled, stopped, *second.pids) if psutil.pid_exists(pid)]


async def test_both_end_when_their_supervisor_is_gone(house):
    await house.run()
    zygote, heir = (os.pidfd_open(pid) for pid in await house.settled())
    # What the kernel does with its descriptors when it dies, however it does.
    for each in (house.forker.zygote, house.forker.heir):
        each.socket.shutdown(2)
    loop = asyncio.get_running_loop()
    for descriptor in (zygote, heir):
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        await asyncio.wait_for(ended.wait(), 180)
        loop.remove_reader(descriptor)
        os.close(descriptor)
