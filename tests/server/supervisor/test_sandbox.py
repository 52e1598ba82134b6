"""The sandbox of a job: programs that its zygote forks into it, and what their supervisor finds afterwards."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from edt_sdk.schemas.wire.control import Isolation
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.zygote import ONLY_VARIABLE
from edt_server.supervisor.processes.children import Children, Program
from edt_server.supervisor.processes.forker import Forker
from edt_server.supervisor.processes.orphans import adopt_orphans
from edt_server.supervisor.processes.sandbox import JobSandbox
from edt_server.supervisor.programs.environment import zygote_environment
from edt_server.supervisor.programs.programs import SCRIPT, zygote_environment_of
from edt_server.system.processes import pids_here
from tests.sandboxes import needs_bubblewrap
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


SANDBOXED = Isolation(kind="sandbox")


class House:
    """A job's programs in its sandbox, each the source of a module."""

    def __init__(self, orders, isolation=SANDBOXED, memory_dir=""):
        self.orders = msgspec.structs.replace(orders, isolation=isolation)
        self.paths = JobPaths(Path(orders.data_dir), orders.owner, orders.job_id)
        for folder in (self.paths.submitted, self.paths.streams_dir, Path(orders.runtime_dir)):
            folder.mkdir(parents=True)
        self.paths.launch_file.write_text("a key")
        self.sandbox = JobSandbox(self.orders, memory_dir)
        environment = zygote_environment(os.environ, 1) | {ONLY_VARIABLE: SCRIPT}
        self.forker = Forker(sys.executable, environment, self.paths.streams_dir, sandbox=self.sandbox)
        self.ended = {}
        self.pids = {}
        self.unreaped = {}
        self.children = Children(self.forker, self.on_exit, self.before_reap, self.sandbox)

    async def before_reap(self, key):
        if key in self.unreaped:
            await self.unreaped[key].wait()

    def on_exit(self, key, code, signals):
        self.ended[key] = code

    async def start(self, key, source, failed=pytest.fail):
        (self.paths.submitted / f"program_{key}.py").write_text(source)
        program = Program(
            module=f"program_{key}",
            directory=self.paths.submitted,
            environment={**os.environ, "PYTHONPATH": str(self.paths.submitted)},
            streams=self.paths.streams_dir / f"p{key}",
        )
        self.children.start(key, program, lambda pid: self.pids.__setitem__(key, pid), failed)
        await until_async(lambda: key in self.pids)
        return self.pids[key]

    async def said(self, key, text):
        await until_async(lambda: text in (self.paths.streams_dir / f"p{key}.stdout").read_text(), text)


@pytest_asyncio.fixture
async def house(orders):
    needs_bubblewrap()
    adopt_orphans()
    house = House(orders)
    yield house
    house.children.kill_all()
    house.sandbox.close()


async def test_exits_are_told_and_signals_arrive_as_without_a_sandbox(house):
    pid = await house.start(1, "import os, sys; print(os.getpid(), os.getppid()); sys.exit(3)")
    await until_async(lambda: house.ended == {1: 3})
    own, parent = (house.paths.streams_dir / "p1.stdout").read_text().split()
    assert int(own) != pid
    assert parent == "0"
    pid = await house.start(2, "import time; print('on', flush=True); time.sleep(600)")
    await house.said(2, "on")
    assert house.children.leader(os.getsid(pid)) == 2
    house.children.end(2, 0.0)
    await until_async(lambda: house.ended.get(2) == -signal.SIGTERM)


async def test_pids_of_its_processes_are_known_here(house):
    pid = await house.start(1, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    await house.said(1, "\n")
    own = int((house.paths.streams_dir / "p1.stdout").read_text())
    assert pids_here([own, 999_999], pid) == {own: pid}
    assert pids_here([5, 6], os.getpid()) == {5: 5, 6: 6}


async def test_orphans_in_it_are_ended(house):
    source = "import os, time\nif os.fork() == 0:\n    os.setsid(); print('away', flush=True); time.sleep(600)\n"
    await house.start(1, source)
    await house.said(1, "away")
    await until_async(lambda: house.ended == {1: 0})
    first = house.sandbox.pids[-1]
    assert children_of(first)
    await house.children.end_orphans()
    assert not children_of(first)


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def test_when_it_ends_the_next_program_gets_a_new_one(house):
    await house.start(1, "import time; print('on', flush=True); time.sleep(600)")
    await house.said(1, "on")
    os.kill(house.sandbox.pids[-1], signal.SIGKILL)
    await until_async(lambda: house.ended == {1: -signal.SIGKILL})
    await house.start(2, "print('new')")
    await until_async(lambda: house.ended.get(2) == 0)


async def test_a_new_one_does_not_wait_for_a_program_that_is_not_reaped_yet(house, caplog):
    sleeps = "import time; print('on', flush=True); time.sleep(600)"
    for key in (1, 2):
        await house.start(key, sleeps)
        await house.said(key, "on")
    may_be_reaped = house.unreaped[2] = asyncio.Event()
    os.kill(house.sandbox.pids[-1], signal.SIGKILL)
    await until_async(lambda: house.ended == {1: -signal.SIGKILL})
    await house.start(3, "print('new')")
    await until_async(lambda: house.ended.get(3) == 0)
    may_be_reaped.set()
    await until_async(lambda: house.ended.get(2) == -signal.SIGKILL)
    assert "does not end" not in caplog.text


async def test_its_temporary_files_are_its_own_whatever_was_left_at_their_place(house, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("bob's")
    house.paths.temporary.symlink_to(victim)
    await house.start(1, "import os; print('file' in os.listdir('/tmp'), open('/tmp/new', 'w').close())")
    await until_async(lambda: house.ended == {1: 0})
    assert (house.paths.streams_dir / "p1.stdout").read_text().startswith("False")
    assert [path.name for path in victim.iterdir()] == ["file"]
    house.children.kill_all()


async def test_the_jobs_code_cannot_replace_what_its_supervisor_writes_to(house):
    ours = {house.paths.launch_file: "", house.paths.streams_dir: "p1"}
    source = "import os, sys\n"
    for path in ours:
        source += f"try: os.rename({str(path)!r}, '/tmp/x')\nexcept OSError: print('refused')\n"
    source += f"try: open({str(house.paths.launch_file)!r})\nexcept OSError: print('hidden')\n"
    await house.start(1, source)
    await until_async(lambda: house.ended == {1: 0})
    assert (house.paths.streams_dir / "p1.stdout").read_text() == "refused\nrefused\nhidden\n"
    assert house.paths.launch_file.read_text() == "a key"


async def test_an_older_version_in_the_jobs_python_is_refused(house):
    failed = asyncio.Queue()
    await house.start(1, "pass")
    await until_async(lambda: house.ended == {1: 0})
    house.forker.zygote.ready = msgspec.structs.replace(house.forker.zygote.ready, places=())
    (house.paths.submitted / "program_2.py").write_text("pass")
    program = Program(
        module="program_2", directory=house.paths.submitted, environment={}, streams=house.paths.streams_dir / "p2"
    )
    house.children.start(2, program, lambda _: pytest.fail("started without a sandbox"), failed.put_nowait)
    assert "has an older jupyter-edt, which cannot" in await failed.get()


async def test_a_process_that_has_ended_tells_no_pids_and_stops_nobody(house):
    pid = await house.start(1, "pass")
    await until_async(lambda: house.ended == {1: 0})
    assert pids_here([5], pid) == {}


async def test_no_code_of_a_job_runs_in_its_zygote(house, tmp_path, monkeypatch):
    (tmp_path / "edt_sdk.py").write_text("raise SystemExit('imported from the folder of a job')")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('imported by a variable of a job')")
    monkeypatch.chdir(tmp_path)
    env = {"PYTHONPATH": str(tmp_path), "LD_PRELOAD": str(tmp_path / "evil.so")}
    spec = msgspec.structs.replace(house.orders.spec, env=env)
    environment = zygote_environment_of(msgspec.structs.replace(house.orders, spec=spec))
    assert environment.get("PYTHONPATH") != str(tmp_path)
    assert "LD_PRELOAD" not in environment
    house.forker._environment = environment | {ONLY_VARIABLE: SCRIPT}
    await house.start(1, "print('here')")
    await until_async(lambda: house.ended == {1: 0})
