"""A Jupyter Server whose service cannot start; two over one store are in tests/e2e/test_two_servers.py."""

from __future__ import annotations

import pytest

from tests.waiting import until_async


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


async def test_the_log_says_at_the_end_that_trainings_go_on(edt, submit, caplog):
    edt.log.addHandler(caplog.handler)
    try:
        await submit()
        assert edt.service.working == 1
        await edt.stop_extension()
    finally:
        edt.log.removeHandler(caplog.handler)
    assert "1 training goes on without this server. Start it again to see or stop them." in caplog.text
    await edt._try_to_start()  # the fixture ends the job
    await until_async(lambda: edt._service, "the next start")
