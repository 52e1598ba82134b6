"""Starting supervisors, and noticing their end."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.channel.launcher import launch, wait_gone
from edt_server.system.detached import inherited
from edt_server.system.processes import identify, is_alive, parent_of

pytestmark = pytest.mark.asyncio


def environment_of(pid):
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_a_supervisor_is_detached_private_and_leaves_no_zombie(orders, tmp_path, monkeypatch):
    monkeypatch.setenv("JPY_API_TOKEN", "secret")
    identity = launch(orders, inherited(os.environ))
    try:
        paths = JobPaths(tmp_path / "data", "ann", orders.job_id)
        assert stat.S_IMODE(paths.job_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
        assert stat.S_IMODE(paths.launch_file.stat().st_mode) == 0o600
        assert os.getsid(identity.pid) == identity.pid
        assert b"secret" not in environment_of(identity.pid)
        assert is_alive(identity)
    finally:
        os.kill(identity.pid, signal.SIGKILL)
    await asyncio.wait_for(wait_gone(identity), 180)
    with pytest.raises(ProcessLookupError):
        parent_of(identity.pid)
    await asyncio.wait_for(wait_gone(identity), 180)


async def test_one_that_was_started_by_somebody_else_is_waited_for_too():
    script = "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid)"
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    pid = int((await parent.communicate())[0])
    identity = identify(pid)
    waiting = asyncio.create_task(wait_gone(identity))
    await asyncio.sleep(0)
    assert not waiting.done()
    os.kill(pid, signal.SIGKILL)
    await asyncio.wait_for(waiting, 180)
    assert not is_alive(identity)


async def test_an_interpreter_that_is_not_there_is_refused_before_anything_is_written(orders, tmp_path):
    with pytest.raises(Unprocessable, match="does not exist or cannot be run"):
        launch(msgspec.structs.replace(orders, interpreter="/no/such/python"), {})
    assert not (tmp_path / "data").exists()
