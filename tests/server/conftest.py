"""What the tests of starting supervisors share."""

from __future__ import annotations

import os
import sys

import pytest

from edt_sdk.schemas.control import Launch
from edt_sdk.schemas.job import JobSpec
from edt_server.launcher import key_pair


@pytest.fixture
def orders(tmp_path):
    """A job of nobody's server."""
    public, secret = key_pair()
    return Launch(
        job_id=f"job-{os.getpid()}",  # it has a folder in memory, which all of this account see
        owner="ann",
        attempt=1,
        spec=JobSpec(name="n", main="train.py", max_workers=1),
        data_dir=str(tmp_path / "data"),
        runtime_dir=str(tmp_path / "run"),
        control_file=str(tmp_path / "nowhere.json"),
        public_key=public,
        secret_key=secret,
        interpreter=sys.executable,
        threads_per_slot=1,
    )
