"""The disk of a real server is full while a job trains and others wait: people make room, and everything goes on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from edt_sdk import EdtError, Job
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.server.store.trouble import fill, small_disk
from tests.waiting import until

ROOM = 64 << 20
EPOCHS = 6
ARGS = ("--epochs", str(EPOCHS), "--samples", "60", "--shards", "4")
MOST_LINES = 20
# Looks in a row in which the commit log of a training does not grow: some seconds, and several renewals of the lease.
STILL = 30


@pytest.mark.long
def test_a_training_waits_for_room_and_a_full_disk_takes_no_verb_away(tmp_path: Path) -> None:
    data_dir = tmp_path / "server" / "edt"
    data_dir.mkdir(parents=True)
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.checkpoint_interval": 0.5}
    with small_disk(data_dir, ROOM) as mounted:
        if not mounted:
            pytest.skip("a small disk of its own can only be mounted as root, with the right to (CAP_SYS_ADMIN)")
        with LocalServer(tmp_path / "server", slots=1, traits=traits) as server:
            trains_through(Jobs(server), data_dir / "ballast", tmp_path / "gates")


def trains_through(jobs: Jobs, ballast: Path, gated: Path) -> None:
    quiet = jobs.submit("cnn.py", *ARGS, max_workers=1).wait(300, progress=False)
    right = jobs.parameters_hash(quiet)
    gates = Gates(gated, EPOCHS)
    running = jobs.submit("cnn.py", *ARGS, "--gates", str(gated), "--pause", "0", max_workers=1)
    waits, doomed = (jobs.submit("cnn.py", *ARGS, max_workers=1) for _ in range(2))
    until(lambda: (gated / "at-1").exists(), "the training's second epoch")
    log = jobs.server.log
    before = len(log.read_text().splitlines())

    fill(ballast)
    gates.open_all()
    looks = Looks(jobs, running, ballast)
    until(lambda: looks.still >= STILL, "a training that stands still")
    assert not (gated / f"at-{EPOCHS - 1}").exists(), "the disk was full too late"
    with pytest.raises(EdtError, match="no room left"):
        jobs.submit("cnn.py", *ARGS)
    doomed.stop()
    until(lambda: jobs.client.job(doomed.id).view.state is JobState.KILLED, "the end of the stopped job")
    doomed.delete()
    quiet.delete()
    assert {job.id for job in jobs.client.jobs()} == {running.id, waits.id}
    looks.look()
    assert jobs.client.job(running.id).view.state is JobState.RUNNING

    ballast.unlink()
    assert running.wait(300, progress=False).view.state is JobState.FINISHED
    assert jobs.parameters_hash(running) == right
    assert "There is room on the disk again" in str(running.logs(stream="all"))
    assert [commit["update"] for commit in jobs.commits(running)] == list(range(EPOCHS * 4))
    assert waits.wait(300, progress=False).view.state is JobState.FINISHED
    assert jobs.parameters_hash(waits) == right
    said = log.read_text().splitlines()[before:]
    print(f"{len(said)} lines in the server's log")
    assert len(said) <= MOST_LINES, "\n".join(said)


class Looks:
    """Looks at everything again and again, on a disk that is kept full."""

    def __init__(self, jobs: Jobs, running: Job, ballast: Path) -> None:
        self._jobs = jobs
        self._running = running
        self._ballast = ballast
        self._committed = -1
        self._still = 0

    @property
    def still(self) -> int:
        """For how many looks in a row the training has committed nothing. Looks once more."""
        self.look()
        committed = len(self._jobs.commits(self._running))
        self._still = self._still + 1 if committed == self._committed else 0
        self._committed = committed
        return self._still

    def look(self) -> None:
        # Again and again: what the server and the job free by themselves is taken by others.
        fill(self._ballast)
        client = self._jobs.client
        assert client.jobs()
        assert client.cluster()["slots"]
        job = client.job(self._running.id)
        assert job.metrics().train
        with contextlib.suppress(EdtError):
            job.logs()
