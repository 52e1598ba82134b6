"""A service with a data folder, and the files that go into its catalogue."""

from __future__ import annotations

import pytest
import pytest_asyncio

from edt_server.service import open_service
from edt_server.settings import Settings
from edt_server.system.runtime import runtime_dir
from tests.waiting import until_async

LIMIT = 60.0


@pytest.fixture
def data_fs(tmp_path):
    root = tmp_path / "shared"
    (root / "mnist" / "train").mkdir(parents=True)
    (root / "mnist" / "train" / "a.csv").write_text("1,2\n")
    (root / "mnist" / "notes.txt").write_text("digits\n")
    (root / "single.csv").write_text("3\n")
    return root


@pytest.fixture
def settings(tmp_path, data_fs):
    data_dir = tmp_path / "data"
    place = runtime_dir(tmp_path / "run", data_dir)
    yield Settings(
        data_dir=data_dir,
        runtime_dir=place,
        local_slots=2,
        threads_per_slot=1,
        warm_workers=0,
        data_fs=str(data_fs),
        max_package_bytes=1 << 20,
        max_package_files=50,
    )
    if place.exists():
        place.rmdir()  # empty: no job left anything


@pytest_asyncio.fixture
async def service(settings):
    async with open_service(settings) as service:
        try:
            yield service
        finally:
            await service.stop_all("ann")
            await until_async(lambda: not service.busy, "the end of the jobs")
            for view in await service.jobs("ann"):
                await service._supervision.gone(view.id, LIMIT)
