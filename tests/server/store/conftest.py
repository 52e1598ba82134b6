"""Rows to store, and a PostgreSQL to store them in."""

from __future__ import annotations

import pytest

from edt_sdk.schemas.job import JobProgress, JobSettings, JobSpec, JobState
from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.store import JobRow
from tests.server.store.cluster import Cluster, Missing


def make_job(job_id: str = "job-1", **changes) -> JobRow:
    """A job with every field set, but for what `changes` says."""
    fields = {
        "id": job_id,
        "owner": "ana",
        "spec": JobSpec(
            name="Ziffern – digits",
            main="train.py",
            max_workers=4,
            code_dir="digits",
            args=("--epochs", "8", "ünï"),
            env={"A": "b c"},
            seed=2**62,
            threads_per_slot=2,
            python_version="3.11",
        ),
        "state": JobState.RUNNING,
        "state_since": 1_700_000_000.123456,
        "created": 1_700_000_000.0,
        "started": 1_700_000_001.5,
        "ended": None,
        "attempt": 2,
        "message": "All is well.",
        "interpreter": "/opt/python/bin/python",
        "threads_per_slot": 2,
        "supervisor": ProcessIdentity(
            host="h", boot_id="b", pid_namespace="4026531836", pid=4711, start_ticks=123456789
        ),
        "public_key": "x" * 40,
        "shards": 8,
        "last_report": 17,
        "progress": JobProgress(update=12, total_updates=184, epoch=1, epochs=8, loss=0.25, accuracy=0.9),
        "settings": JobSettings(priority=10000, max_workers=3, instance_group="default"),
        "project": None,
        "definition": None,
        "metric": None,
    }
    return JobRow(**(fields | changes))


@pytest.fixture
def job_row():
    return make_job


@pytest.fixture(scope="session")
def cluster():
    """PostgreSQL, running; where it cannot, the skip says why."""
    pytest.importorskip("psycopg", reason="the driver is missing: pip install 'jupyter-edt[postgresql]'")
    try:
        made = Cluster()
    except Missing as missing:
        pytest.skip(str(missing))
    yield made
    made.stop()
