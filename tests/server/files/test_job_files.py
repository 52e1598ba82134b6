"""What an earlier server left behind never stops the start of the next one."""

from __future__ import annotations

import logging
import os

import pytest

from edt_server.files import job_files


def test_old_uploads_go_whatever_they_are_and_new_ones_stay(tmp_path, caplog, monkeypatch) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    (uploads / "new").touch()
    (uploads / "old").touch()
    (uploads / "link").symlink_to(tmp_path / "missing")
    (uploads / "upload-1").mkdir()
    (uploads / "upload-1" / "part").touch()
    os.mkfifo(uploads / "fifo")
    (uploads / "kept").touch()
    for name in ("old", "link", "upload-1", "fifo", "kept"):
        os.utime(uploads / name, (1, 1), follow_symlinks=False)
    unlink = type(uploads).unlink

    def refuse(path, missing_ok=False):
        if path.name == "kept":
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok)

    monkeypatch.setattr(type(uploads), "unlink", refuse)
    with caplog.at_level(logging.WARNING):
        job_files.clear_uploads(uploads)
    assert sorted(path.name for path in uploads.iterdir()) == ["kept", "new"]
    assert "kept" in caplog.text


def test_what_is_kept_is_what_was_found_and_never_behind_a_link(tmp_path):
    job = tmp_path / "results" / "eve" / "batchworkdir" / "job"
    weights = job / "model" / "train" / "model_epoch_final.pth"
    weights.parent.mkdir(parents=True)
    weights.write_text("weights")
    job_files.keep(weights, tmp_path / "kept", tmp_path)
    assert (tmp_path / "kept").samefile(weights)
    (tmp_path / "folder").mkdir()
    secret = tmp_path / "folder" / "model_epoch_final.pth"
    secret.write_text("secret")
    # The job's code has exchanged a name since the weights were found.
    weights.unlink()
    weights.symlink_to(secret)
    with pytest.raises(FileNotFoundError):
        job_files.keep(weights, tmp_path / "stolen", tmp_path)
    weights.unlink()
    weights.parent.rmdir()
    weights.parent.symlink_to(tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        job_files.keep(weights, tmp_path / "stolen", tmp_path)
    assert not (tmp_path / "stolen").exists()
    # The administrator's own links lead to files, such as those in the data folder.
    (tmp_path / "link").symlink_to(secret)
    job_files.keep(tmp_path / "link", tmp_path / "linked", tmp_path)
    assert (tmp_path / "linked").read_text() == "secret"
    assert not (tmp_path / "linked").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can give a file to another account.")
def test_a_file_of_an_account_is_copied(tmp_path):
    (tmp_path / "weights").write_text("weights")
    os.chown(tmp_path / "weights", 1, 1)
    job_files.keep(tmp_path / "weights", tmp_path / "kept", tmp_path)
    assert (tmp_path / "kept").stat().st_uid == 0
    assert (tmp_path / "kept").read_text() == "weights"
