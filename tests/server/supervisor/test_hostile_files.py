"""What a job's code has put where its supervisor writes: nothing is followed, and nothing waits."""

import os

import pytest

from edt_sdk.schemas.wire.regular import append_regular, make_folder
from edt_server.supervisor.stream_index import StreamIndex


def test_streams_are_appended_to_regular_files_only(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("bob's")
    (tmp_path / "link").symlink_to(victim)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(OSError, match=name):
            append_regular(tmp_path / name)
    for _ in range(2):
        with open(append_regular(tmp_path / "file"), "w") as file:
            file.write("x")
    assert (tmp_path / "file").read_text() == "xx"
    assert victim.read_text() == "bob's"


def test_folders_are_made_below_no_link(tmp_path):
    (tmp_path / "result").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "result" / "log").symlink_to(tmp_path / "victim")
    for folder in ("log", "log/driver"):
        with pytest.raises(NotADirectoryError):
            make_folder(tmp_path / "result" / folder, within=tmp_path / "result")
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "result" / ".." / "victim" / "new", within=tmp_path / "result")
    assert list((tmp_path / "victim").iterdir()) == []
    for _ in range(2):
        make_folder(tmp_path / "result" / "model" / "train", within=tmp_path / "result")
    assert (tmp_path / "result" / "model" / "train").is_dir()


def test_the_size_of_another_persons_file_is_not_recorded(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "stdout").write_text("bob's")
    (tmp_path / "result").mkdir()
    (tmp_path / "result" / "log").symlink_to(tmp_path / "victim")
    elog = {"log/stdout": tmp_path / "result" / "log" / "stdout"}
    index = StreamIndex(tmp_path / "index", tmp_path / "streams", elog, within=tmp_path / "result")
    (tmp_path / "streams").mkdir()
    index.sample(1.0)
    index.close()
    assert (tmp_path / "index").read_bytes() == b""
