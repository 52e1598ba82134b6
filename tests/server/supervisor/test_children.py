"""Real processes, started, ended and reaped."""

import asyncio
import os
import stat
import sys

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_server.supervisor.children import Children, Program

pytestmark = pytest.mark.asyncio


class Family:
    def __init__(self, tmp_path):
        self.tmp_path = tmp_path
        self.ended = {}
        self.changed = asyncio.Event()
        self.zombies = []
        self.children = Children(self.on_exit, self.before_reap)

    async def before_reap(self, key):
        self.zombies.append(os.getsid(self.pids[key]))

    def on_exit(self, key, code, signals):
        self.ended[key] = (code, signals)
        self.changed.set()

    def program(self, source, **changes):
        fields = {
            "arguments": (sys.executable, "-u", "-c", source),
            "directory": self.tmp_path,
            "environment": dict(os.environ),
            "streams": self.tmp_path / "streams" / "p",
        }
        return Program(**fields | changes)

    pids = {}

    def start(self, key, source):
        self.pids[key] = self.children.start(key, self.program(source))
        return self.pids[key]

    async def exit_of(self, key):
        async with asyncio.timeout(30):
            while key not in self.ended:
                self.changed.clear()
                await self.changed.wait()
        return self.ended[key]

    async def said(self, text, stream="stdout"):
        path = self.tmp_path / "streams" / f"p.{stream}"
        async with asyncio.timeout(30):
            while text not in path.read_text():
                await asyncio.sleep(0.01)
        return path.read_text()


@pytest.fixture
def family(tmp_path):
    family = Family(tmp_path)
    yield family
    family.children.kill_all()


async def test_output_goes_to_private_files_and_the_exit_code_is_told(family, tmp_path):
    pid = family.start(1, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert family.children.leader(pid) == 1
    assert await family.exit_of(1) == (3, ())
    assert (tmp_path / "streams/p.stdout").read_text() == "out\n"
    assert (tmp_path / "streams/p.stderr").read_text() == "err\n"
    assert stat.S_IMODE((tmp_path / "streams/p.stdout").stat().st_mode) == 0o600
    assert family.children.leader(pid) is None
    assert family.zombies == [pid], "its number must stay taken until everything it said was read"


async def test_streams_are_appended_to(family):
    family.start(1, "print('first')")
    await family.exit_of(1)
    family.start(2, "print('second')")
    await family.exit_of(2)
    assert await family.said("second") == "first\nsecond\n"


async def test_end_is_a_term_signal(family):
    family.start(1, "import time; print('on'); time.sleep(600)")
    await family.said("on")
    family.children.end(1, 0.0)
    assert await family.exit_of(1) == (-15, (15,))


async def test_who_ignores_it_is_killed(family):
    family.start(1, "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(600)")
    await family.said("on")
    family.children.end(1, 0.0)
    assert await family.exit_of(1) == (-9, (15, 9))


async def test_a_stopped_process_ends_too(family):
    pid = family.start(1, "import time; print('on'); time.sleep(600)")
    await family.said("on")
    os.kill(pid, 19)
    family.children.end(1, 0.0)
    assert await family.exit_of(1) == (-15, (15,))


async def test_patience_lets_it_end_by_itself_and_a_nearer_deadline_counts(family):
    family.start(1, "import sys; print('on'); sys.exit(0)")
    family.children.end(1, 600.0)
    assert await family.exit_of(1) == (0, ())
    family.start(2, "import time; time.sleep(600)")
    family.children.end(2, 600.0)
    family.children.end(2, 0.0)
    family.children.end(2, 600.0)
    assert (await family.exit_of(2))[1] == (15,)


async def test_the_rest_of_its_group_goes_with_it(family):
    family.start(
        1,
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid); os._exit(0)",
    )
    await family.exit_of(1)
    pid = int(await family.said("\n"))
    async with asyncio.timeout(20):
        while _runs(pid):
            await asyncio.sleep(0.01)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"arguments": ("/no/such/python", "-c", "")}, "/no/such/python cannot be run"),
        ({"directory": "missing"}, "working directory"),
    ],
)
async def test_what_cannot_be_started_says_why(family, tmp_path, changes, text):
    if "directory" in changes:
        changes = {"directory": tmp_path / "missing"}
    with pytest.raises(Unprocessable, match=text):
        family.children.start(1, family.program("", **changes))
    assert family.children.pids == frozenset()


async def test_no_descriptor_of_ours_is_inherited(family):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    family.start(1, "import os; print(sorted(os.listdir('/proc/self/fd'), key=int))")
    await family.exit_of(1)
    os.close(read)
    os.close(write)
    # 0, 1, 2 and the one that lists the folder.
    assert await family.said("]") == "['0', '1', '2', '3']\n"
