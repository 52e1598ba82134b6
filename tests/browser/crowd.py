"""A past full of jobs, written into a job store before a server starts on it."""

from __future__ import annotations

import getpass
from pathlib import Path

from edt_sdk.schemas.job import JobProgress, JobSettings, JobSpec, JobState
from edt_server.store import JobRow, Store

BEGAN = 1_790_000_000.0


def add_crowd(data_dir: Path, many: int) -> list[str]:
    """Add so many ended jobs of this account; their names, oldest first. Every tenth failed."""
    data_dir.mkdir(parents=True, exist_ok=True)
    store = Store.open(f"sqlite:///{data_dir / 'edt.sqlite'}")
    names = [f"past-{number:04}" for number in range(many)]
    with store.write() as writer:
        for number, name in enumerate(names):
            failed = number % 10 == 9
            begun = BEGAN + 60 * number
            writer.add_job(
                JobRow(
                    id=f"{name}-{number:06x}",
                    owner=getpass.getuser(),
                    spec=JobSpec(name=name, main="train.py", max_workers=2, instance_group="default"),
                    state=JobState.FAILED if failed else JobState.FINISHED,
                    state_since=begun + 50,
                    created=begun,
                    started=begun + 1,
                    ended=begun + 50,
                    attempt=1,
                    message="The main script ended with code 1." if failed else "",
                    interpreter="/usr/bin/python3",
                    threads_per_slot=1,
                    supervisor=None,
                    public_key="",
                    shards=8,
                    last_report=1,
                    progress=JobProgress(update=40 if failed else 50, total_updates=50, epochs=5, epoch=4, loss=0.2),
                    settings=JobSettings(priority=5000, max_workers=2, instance_group="default"),
                )
            )
    store.close()
    return names
