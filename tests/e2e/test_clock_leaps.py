"""The clock of a real server is set by a year, ahead and back, while jobs run and across restarts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from edt_sdk import Job
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests import debian
from tests.chaos.scenario import ZOO
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.waiting import until

YEAR = 365 * 86_400
HOUR = 3600.0
EPOCHS = 6
ARGS = ("--epochs", str(EPOCHS), "--samples", "60", "--shards", "4")
LEAPS = (YEAR, -YEAR)


class FakeTime:
    """Debian's libfaketime for one process: its wall clock is off by what a file says, its other clocks are right."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "faketime"
        self.set(0)
        library = debian.found(lambda: next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None), "faketime")
        self.environ = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, seconds: int) -> None:
        """Set the clock off by so much."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._file)


@pytest.mark.long
def test_nothing_is_lost_deleted_or_absurd(tmp_path: Path) -> None:
    time_of_day = FakeTime(tmp_path)
    server = LocalServer(
        tmp_path / "server",
        slots=1,
        traits={"EdtApp.threads_per_slot": 1, "EdtApp.retention_days": 30.0},
        environ=time_of_day.environ,
    )
    with server:
        jobs = Jobs(server)
        ended = jobs.submit("cnn.py", *ARGS, max_workers=1).wait(300, progress=False)
        gates = Gates(tmp_path / "gates", EPOCHS)
        running = jobs.submit("cnn.py", *ARGS, "--gates", str(gates.folder), "--pause", "0", max_workers=1)
        options = {"main": "once.py", "args": ["1"], "framework": "PyTorch", "progress": False}
        waits = jobs.client.submit(ZOO, **options, name="waits", pending_timeout=3600.0)
        left = iter(range(1, EPOCHS))
        for leap in LEAPS:
            time_of_day.set(leap)
            trains_on(jobs, running, gates, next(left))
            sane(jobs, running, {ended.id, running.id, waits.id})
        # A wait counts the time between two servers, so a job that may wait for an hour only would be given up.
        waits.stop()
        for leap in LEAPS:
            server.kill()
            time_of_day.set(leap)
            jobs.client = server.start().client()
            trains_on(jobs, running, gates, next(left))
            sane(jobs, running, {ended.id, running.id, waits.id})
        assert (server.data_dir / "control" / "retention.clock").exists()
        gates.open_all()
        running = jobs.client.job(running.id).wait(300, progress=False)
        assert running.view.state is JobState.FINISHED
        assert jobs.parameters_hash(running) == jobs.parameters_hash(ended)
        assert running.view.started <= running.view.state_since == running.view.ended


def trains_on(jobs: Jobs, running: Job, gates: Gates, epoch: int) -> None:
    """Let the training through to this epoch: the server hears of it."""
    gates.open_until(lambda: (gates.folder / f"at-{epoch}").exists(), f"epoch {epoch}")

    def heard() -> bool:
        progress = jobs.client.job(running.id).view.progress
        return progress is not None and progress.epoch >= epoch

    until(heard, f"the progress of epoch {epoch}")


def sane(jobs: Jobs, running: Job, all_of_them: set[str]) -> None:
    """AssertionError for what is lost, held twice, or absurd."""
    client = jobs.client
    views = [job.view for job in client.jobs()]
    assert {view.id for view in views} == all_of_them
    assert [slot["job"] for slot in client.cluster()["slots"]] == [running.id]
    for view in views:
        assert view.created <= (view.started or view.created) <= view.state_since, view
    forecast = client.forecast()
    assert forecast.start_high is None or 0 <= forecast.start_high < HOUR, forecast
    rows = client.timeline().rows
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    for earlier, later in pairwise(rows):
        # The time between two servers may be a year, and nothing else.
        assert later["time"] - earlier["time"] < HOUR or later["cause"] == "slots_changed", later
