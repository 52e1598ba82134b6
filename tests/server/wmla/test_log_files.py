"""Which file is which of WMLA's logs, and the end of a long one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.wmla import log_files


@pytest.fixture
def paths(tmp_path):
    found = JobPaths(tmp_path, "ann", "mnist-abc234")
    found.streams_dir.mkdir(parents=True)
    elog = found.driver_log_dir("host")
    elog.mkdir(parents=True)
    (elog / "stdout").write_text("Train,\n")
    for name in ("driver.stdout", "driver.stderr", "worker-0.stdout", "worker-0.stderr", "worker-2.stdout"):
        (found.streams_dir / name).write_text(f"{name} 1\n{name} 2\n")
    return found


def test_the_log_of_an_elastic_job_is_elogs_alone(paths):
    """Notebooks read it as a table: one foreign line, and columns are gone."""
    for kind in ("", "outlog"):
        assert log_files.training_log(paths, elastic_engine=True, kind=kind, final=True) == "Train,\n"
    both = log_files.training_log(paths, elastic_engine=True, kind="outerrlog", final=True)
    assert both == "Train,\ndriver.stderr 1\ndriver.stderr 2\n"
    assert "Train" not in log_files.training_log(paths, elastic_engine=True, kind="errlog", final=True)


def test_the_log_of_a_plain_script_is_what_it_wrote(paths):
    for each in paths.streams_dir.glob("driver.*"):
        each.unlink()
    out = log_files.training_log(paths, elastic_engine=False, kind="outlog", final=True)
    assert sorted(line for line in out.splitlines() if "worker" in line) == [
        *("worker-0.stdout 1", "worker-0.stdout 2", "worker-2.stdout 1", "worker-2.stdout 2")
    ]
    err = log_files.training_log(paths, elastic_engine=False, kind="errlog", final=True)
    assert err == "worker-0.stderr 1\nworker-0.stderr 2\n"


def test_executors_count_from_one_over_all_there_were(paths):
    assert log_files.workers_seen(paths) == [0, 2]
    assert [log_files.nth_executor(paths, number) for number in (0, 1, 2, 3)] == [None, 0, 2, None]
    assert log_files.worker_log(paths, 2, "stdout", 1) == "worker-2.stdout 2\n"
    assert log_files.worker_log(paths, 2, "stderr") == ""
    assert log_files.has_driver(paths)
    assert log_files.driver_log(paths, "stderr", 0) == ""


def test_another_log_is_refused_with_those_there_are(paths):
    with pytest.raises(InvalidRequest, match="launcherlog, stdout, stderr"):
        log_files.driver_log(paths, "../../secrets")
    with pytest.raises(InvalidRequest, match="outlog, errlog or outerrlog"):
        log_files.training_log(paths, elastic_engine=True, kind="all", final=True)


@given(lines=st.lists(st.text("ab\n", max_size=5), max_size=12), count=st.integers(0, 15), chunk=st.integers(1, 9))
def test_the_last_lines_are_those_of_the_whole(tmp_path_factory, lines, count, chunk):
    path = tmp_path_factory.getbasetemp() / "some.log"
    text = "\n".join(lines)
    path.write_text(text)
    before, log_files._CHUNK = log_files._CHUNK, chunk
    try:
        found = log_files._whole(path, path.parent, count)
    finally:
        log_files._CHUNK = before
    whole = text.splitlines(keepends=True)
    assert found == "".join(whole[len(whole) - count :] if count and count < len(whole) else whole if count else [])
