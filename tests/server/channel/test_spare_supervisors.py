"""Spare supervisors: real ones, with real zygotes."""

import asyncio
import os
import signal
import sys

import msgspec
import psutil
import pytest
import pytest_asyncio

from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.channel import spare_supervisors as module
from edt_server.channel.launcher import launch, wait_gone
from edt_server.channel.spare_supervisors import SpareSupervisors, start_spare
from edt_server.supervisor.template import Kind
from edt_server.system.detached import inherited
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio
KIND = Kind(sys.executable, 1)


@pytest_asyncio.fixture
async def warm(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "REFILL_DELAY", 0.0)
    warm = SpareSupervisors(1, tmp_path, sys.executable, 1, inherited(os.environ))
    yield warm
    await warm.stop()


async def ready(spare):
    await until_async(lambda: spare.fits(spare.kind) and spare.files is not None)


async def has_zygote(process):
    zygote = "edt_sdk.training.zygote"
    return await until_async(lambda: [child for child in process.children() if zygote in child.cmdline()])


async def test_a_spare_becomes_the_supervisor_of_a_job_and_then_needs_no_server(orders, tmp_path, monkeypatch):
    monkeypatch.setenv("JPY_API_TOKEN", "secret")
    spare = start_spare(KIND, tmp_path, inherited(os.environ))
    process = psutil.Process(spare.process.pid)
    await ready(spare)
    (zygote,) = await has_zygote(process)
    assert os.getsid(process.pid) == process.pid
    assert "JPY_API_TOKEN" not in process.environ()
    identity = launch(orders, {}, spare)
    try:
        assert identity.pid == process.pid
        paths = JobPaths(tmp_path / "data", "ann", orders.job_id)
        # Our end of its stdin is closed now, as it would be with our death.
        await until_async(lambda: paths.journal.exists() or paths.streams_dir.exists())
        streams = [os.readlink(f"/proc/{identity.pid}/fd/{number}") for number in (0, 1, 2)]
        assert streams == ["/dev/null", str(paths.supervisor_log), str(paths.supervisor_log)]
        assert process.cwd() == str(paths.job_dir)
        assert process.children() == [zygote]
        assert process.is_running()
    finally:
        os.kill(identity.pid, signal.SIGKILL)
    await asyncio.wait_for(wait_gone(identity), 180)
    # Without its supervisor a zygote is of no use.
    await until_async(lambda: not zygote.is_running() or zygote.status() == psutil.STATUS_ZOMBIE)
    assert not spare.fits(KIND)


async def test_a_spare_ends_with_its_server_whatever_it_is_doing(tmp_path):
    importing, waiting = (
        start_spare(KIND, tmp_path, inherited(os.environ)),
        start_spare(KIND, tmp_path, inherited(os.environ)),
    )
    await ready(waiting)
    for spare in (importing, waiting):
        process = psutil.Process(spare.process.pid)
        zygotes = await has_zygote(process) if spare is waiting else process.children()
        spare.connection.close()
        assert await asyncio.to_thread(spare.process.wait, 20) == 0
        await until_async(lambda zygotes=zygotes: not any(zygote.is_running() for zygote in zygotes))


async def test_a_spare_that_has_ended_is_replaced_by_a_cold_start(orders, tmp_path):
    spare = start_spare(KIND, tmp_path, inherited(os.environ))
    await ready(spare)
    spare.process.kill()
    await asyncio.to_thread(spare.process.wait)
    identity = launch(orders, {}, spare)
    try:
        assert identity.pid != spare.process.pid
    finally:
        os.kill(identity.pid, signal.SIGKILL)
    await asyncio.wait_for(wait_gone(identity), 180)


async def test_a_spare_whose_python_cannot_import_ends_and_says_why(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    spare = start_spare(Kind(str(bare), 1), tmp_path, inherited(os.environ))
    await asyncio.to_thread(spare.process.wait, 20)
    assert not spare.fits(spare.kind)
    spare.end()
    assert "No module named 'edt_sdk" in (tmp_path / "warm.log").read_text()


async def test_a_pool_begins_when_it_is_woken_and_fills_again(warm, orders):
    assert warm.spares == []
    warm.wake()
    warm.wake()
    await until_async(lambda: warm.spares)
    (first,) = warm.spares
    await ready(first)
    taken = warm.take(orders)
    assert taken is first
    try:
        (second,) = await until_async(lambda: warm.spares)
        assert second is not first
        await warm.stop()
        assert second.process.poll() is not None
        warm.wake()
        assert warm.spares == []
        assert first.process.poll() is None, "what was taken is no spare any more"
    finally:
        await asyncio.to_thread(taken.end)


async def test_what_no_spare_fits_starts_cold_and_the_pool_follows(warm, orders):
    warm.wake()
    await until_async(lambda: warm.spares)
    (one,) = warm.spares
    own_environment = msgspec.structs.replace(orders.spec, env={"OMP_NUM_THREADS": "3"})
    assert warm.take(msgspec.structs.replace(orders, spec=own_environment)) is None
    assert warm.spares == [one]
    assert warm.take(msgspec.structs.replace(orders, threads_per_slot=2)) is None
    await until_async(lambda: [spare.kind.threads for spare in warm.spares] == [2])
    assert one.process.poll() is not None


async def test_a_spare_that_has_imported_what_is_not_installed_any_more_is_not_used(warm, orders, tmp_path):
    warm.wake()
    await until_async(lambda: warm.spares)
    (spare,) = warm.spares
    await ready(spare)
    installed = tmp_path / "module.py"
    installed.write_text("old")
    spare.files[str(installed)] = (installed.stat().st_mtime_ns, installed.stat().st_size)
    assert spare.fits(KIND)
    installed.write_text("newer")
    assert warm.take(orders) is None
    await until_async(lambda: spare not in warm.spares and warm.spares)


async def test_a_python_fits_under_all_its_names_in_its_environment_and_nowhere_else(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python3").symlink_to(sys.executable)
        (tmp_path / folder / "python").symlink_to("python3")
    one, short, two = (Kind(str(tmp_path / name), 1) for name in ("one/python3", "one/python", "two/python3"))
    assert one.same(short)
    assert not one.same(two)
    assert not one.same(Kind(one.interpreter, 2))


async def test_without_any_nothing_is_started(tmp_path, orders):
    warm = SpareSupervisors(0, tmp_path, sys.executable, 1, {})
    warm.wake()
    assert warm.take(orders) is None
    await asyncio.sleep(0)
    assert warm.spares == []
    await warm.stop()
    assert os.listdir(tmp_path) == []
