"""Files of lines whose writer may die at any byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.training.records import jsonl
from edt_sdk.training.records.jsonl import JsonLines, backwards, cut_torn_line, truncate

texts = st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), max_size=12)


@given(lines=texts, torn=st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), piece=st.integers(1, 50))
def test_backwards_is_forwards_reversed_and_a_torn_end_is_cut(tmp_path_factory, lines, torn, piece):
    path = tmp_path_factory.mktemp("f") / "f"
    whole = b"".join(line + b"\n" for line in lines)
    path.write_bytes(whole + torn)
    offsets, at = [], 0
    for line in lines:
        offsets.append(at)
        at += len(line) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_PIECE", piece)
        assert list(backwards(path)) == list(zip(offsets, lines, strict=True))[::-1]
        cut_torn_line(path)
    assert path.read_bytes() == whole


def test_an_append_behind_a_torn_line_begins_a_line(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\ntw")
    lines = JsonLines(path)
    lines.append(b"three\n")
    lines.close()
    assert path.read_bytes() == b"one\nthree\n"
    truncate(path, 4)
    truncate(path, 100)
    truncate(tmp_path / "missing", 0)
    assert path.read_bytes() == b"one\n"
    assert path.stat().st_mode & 0o777 == 0o644 & ~_umask()


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    import resource
    import signal

    path = tmp_path / "f"
    lines = JsonLines(path)
    lines.append(b"one\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6, limits[1]))
        with pytest.raises(OSError, match="full"):
            lines.append(b"three\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_bytes() == b"one\n"
    lines.append(b"two\n")
    lines.close()
    assert path.read_bytes() == b"one\ntwo\n"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
