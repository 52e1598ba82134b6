"""Two Jupyter Servers over one data folder: one runs the jobs, the other says so, and takes over when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from jupyter_core.paths import jupyter_runtime_dir

from edt_server.runtime import runtime_dir
from edt_server.service import Service
from edt_server.settings import Settings


@pytest.fixture
def other(jp_serverapp, jp_asyncio_loop, tmp_path):
    """A service that has the folder already."""
    data_dir = tmp_path / "edt"
    place = runtime_dir(Path(jupyter_runtime_dir()), data_dir)
    service = Service(Settings(data_dir=data_dir, runtime_dir=place, local_slots=2))
    jp_asyncio_loop.run_until_complete(service.start())
    return service


async def test_the_second_says_so_and_takes_over(other, call, until, leftovers):
    for method, path in (("GET", "/"), ("GET", "/jobs"), ("POST", "/jobs"), ("GET", "/jobs/x/logs")):
        answer = await call(method, path, body=b"" if method == "POST" else None)
        assert (answer.status, answer.json["code"]) == (503, "server_unreachable"), path
        assert "pid" in answer.json["message"]
    assert leftovers() == []
    await other.stop()

    async def answers():
        return (await call("GET", "/")).status == 200

    await until(answers, "the take-over")


class TestADamagedStore:
    async def test_the_server_runs_and_says_what_is_wrong(self, jp_serverapp, tmp_path, request):
        (tmp_path / "edt").mkdir()
        store = tmp_path / "edt" / "edt.sqlite"
        store.write_bytes(b"this is no database" * 500)
        await jp_serverapp.extension_manager.start_all_extensions()
        (app,) = jp_serverapp.extension_manager.extension_apps["edt_jupyter"]
        with pytest.raises(Exception, match="damaged"):
            _ = app.service
        assert store.read_bytes() == b"this is no database" * 500
        await app.stop_extension()
