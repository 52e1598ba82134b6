"""Real processes, forked by a real zygote, ended and reaped."""

import asyncio
import ctypes
import os
import signal
import stat
import sys

import pytest
import pytest_asyncio

from edt_server.supervisor.processes.children import Children, Program
from edt_server.supervisor.processes.forker import Forker
from edt_server.supervisor.programs.environment import zygote_environment
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio(loop_scope="module")
PR_SET_CHILD_SUBREAPER = 36


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def forker(tmp_path_factory):
    """One zygote for all tests; this process adopts what it forks, as a supervisor does."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    forker = Forker(sys.executable, zygote_environment(os.environ, 1), tmp_path_factory.mktemp("zygote"))
    yield forker
    forker.stop()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Family:
    def __init__(self, tmp_path, forker):
        self.tmp_path = tmp_path
        self.ended = {}
        self.failed = {}
        self.pids = {}
        self.zombies = []
        self.children = Children(forker, self.on_exit, self.before_reap)

    async def before_reap(self, key):
        self.zombies.append(os.getsid(self.pids[key]))

    def on_exit(self, key, code, signals):
        self.ended[key] = (code, signals)

    def program(self, source, **changes):
        module = f"program_{len(list(self.tmp_path.glob('program_*.py')))}"
        (self.tmp_path / f"{module}.py").write_text(source)
        fields = {
            "module": module,
            "directory": self.tmp_path,
            "environment": {**os.environ, "PYTHONPATH": str(self.tmp_path)},
            "streams": self.tmp_path / "streams" / "p",
        }
        return Program(**fields | changes)

    def ask(self, key, source, **changes):
        def started(pid):
            self.pids[key] = pid

        def failed(why):
            self.failed[key] = why

        self.children.start(key, self.program(source, **changes), started, failed)

    async def start(self, key, source, **changes):
        self.ask(key, source, **changes)
        await until_async(lambda: key in self.pids)
        return self.pids[key]

    async def exit_of(self, key):
        await until_async(lambda: key in self.ended)
        return self.ended[key]

    async def said(self, text, stream="stdout"):
        path = self.tmp_path / "streams" / f"p.{stream}"
        await until_async(lambda: text in path.read_text(), repr(text))
        return path.read_text()


@pytest_asyncio.fixture(loop_scope="module")
async def family(tmp_path, forker):
    family = Family(tmp_path, forker)
    yield family
    for key in set(family.pids) - set(family.ended):
        family.children.end(key, 0.0)
    await until_async(lambda: set(family.pids) <= set(family.ended))


async def test_output_goes_to_private_files_and_the_exit_code_is_told(family, tmp_path):
    pid = await family.start(1, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert family.children.leader(pid) == 1
    assert await family.exit_of(1) == (3, ())
    assert (tmp_path / "streams/p.stdout").read_text() == "out\n"
    assert (tmp_path / "streams/p.stderr").read_text() == "err\n"
    assert stat.S_IMODE((tmp_path / "streams/p.stdout").stat().st_mode) == 0o600
    assert family.children.leader(pid) is None
    assert family.zombies == [pid], "its number must stay taken until everything it said was read"


async def test_streams_are_appended_to(family):
    await family.start(1, "print('first')")
    await family.exit_of(1)
    await family.start(2, "print('second')")
    await family.exit_of(2)
    assert await family.said("second") == "first\nsecond\n"


async def test_end_is_a_term_signal(family):
    await family.start(1, "import time; print('on'); time.sleep(600)")
    await family.said("on")
    family.children.end(1, 0.0)
    assert await family.exit_of(1) == (-15, (15,))


async def test_who_ignores_it_is_killed(family):
    await family.start(1, "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(600)")
    await family.said("on")
    family.children.end(1, 0.0)
    assert await family.exit_of(1) == (-9, (15, 9))


async def test_a_stopped_process_ends_too(family):
    pid = await family.start(1, "import time; print('on'); time.sleep(600)")
    await family.said("on")
    os.kill(pid, 19)
    family.children.end(1, 0.0)
    assert await family.exit_of(1) == (-15, (15,))


async def test_patience_lets_it_end_by_itself_and_a_nearer_deadline_counts(family):
    await family.start(1, "import sys; print('on'); sys.exit(0)")
    family.children.end(1, 600.0)
    assert await family.exit_of(1) == (0, ())
    await family.start(2, "import time; time.sleep(600)")
    family.children.end(2, 600.0)
    family.children.end(2, 0.0)
    family.children.end(2, 600.0)
    assert (await family.exit_of(2))[1] == (15,)


async def test_the_rest_of_its_group_goes_with_it(family):
    await family.start(
        1,
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid); os._exit(0)",
    )
    await family.exit_of(1)
    pid = int(await family.said("\n"))
    async with asyncio.timeout(180):
        while _runs(pid):
            await asyncio.sleep(0.01)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


async def test_a_working_directory_that_is_missing_is_told(family, tmp_path):
    family.ask(1, "", directory=tmp_path / "missing")
    assert "working directory" in family.failed[1]
    assert family.children.pids == frozenset()


async def test_a_python_that_cannot_be_run_is_told(tmp_path):
    family = Family(tmp_path, Forker("/no/such/python", {}, tmp_path / "streams"))
    family.ask(1, "")
    assert family.failed[1].startswith("/no/such/python cannot be run")
    assert family.children.pids == frozenset()


async def test_a_zygote_that_cannot_import_says_what_it_said_and_is_tried_again_at_the_next_request(tmp_path):
    # A Python without site-packages has no edt_sdk.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    family = Family(tmp_path, Forker(str(bare), {}, tmp_path / "streams"))
    for key in (1, 2):
        family.ask(key, "")
        await until_async(lambda key=key: key in family.failed)
        first, *last = family.failed[key].splitlines()
        assert first == (
            f"The job's Python could not start: {bare} has no edt_sdk. Install jupyter-edt in that environment."
        )
        assert "No module named 'edt_sdk" in last[-1]
    assert "No module named" in (tmp_path / "streams" / "zygote.stderr").read_text()
    family.children.kill_all()


async def test_what_waits_for_the_zygote_can_be_called_off(family, forker):
    # The second waits for the first to be forked.
    family.ask(1, "import time; time.sleep(600)")
    family.ask(2, "raise AssertionError('never run')")
    family.children.end(2, 5.0)
    assert await family.exit_of(2) == (-15, (15,))
    assert 2 not in family.pids


async def test_what_is_ended_while_it_is_forked_ends_when_it_exists(family, forker):
    await family.start(1, "import time; time.sleep(600)")
    family.ask(2, "import time; time.sleep(600)")
    assert forker.forking
    family.children.end(2, 0.0)
    assert await family.exit_of(2) == (-15, (15,))
    assert 2 in family.pids


async def test_a_zygote_that_is_killed_is_replaced(family, forker):
    pid = await family.start(1, "import time; print('on'); time.sleep(600)")
    await family.said("on")
    zygote = forker.zygote.pid
    os.kill(zygote, signal.SIGKILL)
    await family.start(2, "print('second')")
    assert await family.exit_of(2) == (0, ())
    assert forker.zygote
    assert zygote not in forker.pids
    assert family.children.pids == {pid}, "what the first one had forked goes on"


LEAVES_A_CHILD = """
import os, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    print(os.getpid())
    os.write(write, b".")
    time.sleep(600)
os.read(read, 1)
"""


async def test_orphans_are_reaped_but_neither_zygote_nor_heir_nor_what_is_being_forked(family, forker, orphans):
    await family.start(1, "import time; time.sleep(600)")
    family.ask(2, "import sys; sys.exit(4)")
    family.children.reap_orphans()
    assert await family.exit_of(2) == (4, ())
    family.children.end(1, 0.0)
    await family.exit_of(1)
    # Left behind, in a session of its own.
    await family.start(3, LEAVES_A_CHILD)
    await family.exit_of(3)
    left = int(await family.said("\n"))
    assert left in orphans(forker.pids)
    async with asyncio.timeout(180):
        while orphans(forker.pids):
            family.children.reap_orphans()
            await asyncio.sleep(0.01)
    assert len(forker.pids) == 2
    assert all(_runs(pid) for pid in forker.pids)


async def test_what_is_to_be_inherited_is_held_until_the_process_ends(family, tmp_path):
    read, write = os.pipe()
    await family.start(1, "import time; time.sleep(600)", inherit=(write,))
    os.close(write)
    os.set_blocking(read, False)
    with pytest.raises(BlockingIOError):
        os.read(read, 1)
    family.children.end(1, 0.0)
    await family.exit_of(1)
    assert os.read(read, 1) == b""
    os.close(read)


async def test_no_descriptor_of_ours_is_inherited(family):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    await family.start(1, "import os; print(sorted(os.listdir('/proc/self/fd'), key=int))")
    await family.exit_of(1)
    os.close(read)
    os.close(write)
    # 0, 1, 2 and the one that lists the folder.
    assert await family.said("]") == "['0', '1', '2', '3']\n"
