"""The package of a job that was submitted before packages were kept: made of its code folder, once, by whoever asks."""

from __future__ import annotations

import shutil
import tarfile
import threading

import pytest

from edt_sdk.schemas.errors import NotFound
from edt_sdk.schemas.job import JobSettings, JobSpec, JobState
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.files.job_files import PACKAGE
from edt_server.jobs.stored_package import stored
from edt_server.store import JobRow

MANY = 60


@pytest.fixture
def paths(tmp_path):
    made = JobPaths(tmp_path, "ann", "digits-1")
    made.submitted.mkdir(parents=True)
    for number in range(MANY):
        (made.submitted / f"part-{number:02}.py").write_bytes(b"print('hello')\n" * 500)
    return made


def row():
    return JobRow(
        id="digits-1", owner="ann", spec=JobSpec(name="digits", main="part-00.py", max_workers=1),
        state=JobState.FINISHED, state_since=1.0, created=1.0, started=None, ended=None, attempt=0, message="",
        interpreter="python", threads_per_slot=1, supervisor=None, public_key="", shards=None, last_report=0,
        progress=None, settings=JobSettings(priority=5000, max_workers=1, instance_group="default"),
    )  # fmt: skip


def test_many_that_ask_at_once_get_a_whole_package_each(paths):
    """A form looks at a job while somebody clones it: nobody finds the half of what another one writes."""
    begin, found, wrong = threading.Barrier(8), [], []

    def ask():
        begin.wait()
        try:
            found.append(len(stored(paths, row()).files()))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, found) == ([], [MANY] * 8)
    assert [path.name for path in paths.job_dir.iterdir()] == [PACKAGE]
    with tarfile.open(paths.job_dir / PACKAGE) as archive:
        assert len(archive.getnames()) == MANY


def test_of_a_job_without_its_code_there_is_none_and_nothing_is_left(paths):
    shutil.rmtree(paths.submitted)
    with pytest.raises(NotFound):
        stored(paths, row())
    assert not (paths.job_dir / PACKAGE).exists()
