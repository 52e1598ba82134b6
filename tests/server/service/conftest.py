"""A service's settings, and the package of a job that sleeps."""

from __future__ import annotations

import pytest

from edt_server.settings import Settings
from edt_server.system.runtime import runtime_dir
from tests.packages import SLEEPER, packed


@pytest.fixture
def settings(tmp_path):
    data_dir = tmp_path / "data"
    place = runtime_dir(tmp_path / "run", data_dir)
    yield Settings(data_dir=data_dir, runtime_dir=place, local_slots=2, threads_per_slot=1, warm_workers=0)
    if place.exists():
        place.rmdir()  # empty: no job and no server left anything


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "package.tar.gz"
    path.write_bytes(packed({"train.py": SLEEPER}))
    return path
