"""The runtime folder: private, near enough for sockets, held by one server, and removed by one that ends."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from edt_sdk.schemas.errors import EdtError, ServerUnreachable
from edt_server.system.runtime import leave_runtime_dir, private_dir, runtime_dir, server_lock


def test_nothing_of_it_is_left_when_nothing_is_in_it(tmp_path):
    place = tmp_path / "edt"
    place.mkdir()
    (place / "warm.log").touch()
    leave_runtime_dir(place)
    assert not place.exists()
    leave_runtime_dir(place)


def test_sockets_of_jobs_that_go_on_and_what_spares_said_stay(tmp_path):
    place = tmp_path / "edt"
    (place / "job-1").mkdir(parents=True)
    (place / "warm.log").write_text("Traceback")
    leave_runtime_dir(place)
    assert sorted(entry.name for entry in place.iterdir()) == ["job-1", "warm.log"]


def test_folders_of_somebody_else_are_not_used(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(EdtError):
        private_dir(tmp_path / "link")
    (tmp_path / "open").mkdir(mode=0o777)
    assert private_dir(tmp_path / "open").stat().st_mode & 0o777 == 0o700


def test_a_runtime_folder_is_short_enough_for_a_socket(tmp_path):
    deep = tmp_path / ("x" * 120)
    place = runtime_dir(deep, tmp_path / "data")
    try:
        assert not place.is_relative_to(deep)
        assert len(os.fsencode(place)) < 60
        assert place != runtime_dir(deep, tmp_path / "other")
    finally:
        place.rmdir()
        runtime_dir(deep, tmp_path / "other").rmdir()


def test_also_where_the_temporary_folder_is_as_deep(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    place = runtime_dir(deep, tmp_path / "data")
    assert place.parent == Path("/tmp")
    place.rmdir()


def test_the_lock_is_free_again_when_its_holder_lets_go(tmp_path):
    (tmp_path / "keeps the folder").touch()
    with server_lock(tmp_path / "lock"), pytest.raises(ServerUnreachable), server_lock(tmp_path / "lock"):
        raise AssertionError("two servers hold the lock")
    with server_lock(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == str(os.getpid())
    assert not (tmp_path / "lock").exists()
