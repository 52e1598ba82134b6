"""What an earlier server left behind never stops the start of the next one."""

from __future__ import annotations

import logging
import os

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
