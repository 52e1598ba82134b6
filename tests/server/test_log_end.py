"""The last lines of a log, found from its end: whatever was written, and however long a line is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.paths import JobPaths
from edt_server.log_end import end_of
from edt_server.logs import LogReader


@pytest.fixture
def paths(tmp_path):
    paths = JobPaths(tmp_path, "ann", "job-1")
    paths.streams_dir.mkdir(parents=True)
    return paths


@given(st.lists(st.binary(max_size=9).map(lambda text: text.replace(b"\n", b"")), max_size=9), st.integers(1, 12))
def test_the_last_lines_of_a_small_file_are_exact(tmp_path_factory, lines, asked):
    path = tmp_path_factory.mktemp("log") / "file"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    rest = path.read_bytes()[end_of(path, asked) :]
    assert rest == b"".join(line + b"\n" for line in lines[-asked:])


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"x" * 90 + b"\n" + b"last\n", b"last\n"),  # a long line before it does not fit, and is left out
        (b"first\n" + b"x" * 90 + b"\n", b"x" * 19 + b"\n"),  # of one that is longer than what is looked at, its end
        (b"first\n" + b"x" * 90, b"x" * 20),
        (b"", b""),
    ],
)
def test_no_more_than_the_end_is_read(tmp_path, content, shown):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert content[end_of(path, 5, most=20) :] == shown


def test_there_may_be_no_file_yet(tmp_path):
    assert end_of(tmp_path / "none", 5) == 0


def test_a_reader_begins_with_the_last_lines_of_everybody_and_goes_on_behind_them(paths):
    out, err = paths.streams_dir / "driver.stdout", paths.streams_dir / "worker-0.stderr"
    out.write_text("".join(f"out {n}\n" for n in range(10)))
    err.write_text("".join(f"err {n}\n" for n in range(10)))
    batch = LogReader(paths).last(4, final=False)
    assert len(batch.lines) == len(batch.cursors) == 4
    assert batch.lines[-1].text in ("out 9", "err 9")
    with out.open("a") as file:
        file.write("out 10\n")
    assert [line.text for line in LogReader(paths, after=batch.next).read().lines] == ["out 10"]
    assert [line.text for line in LogReader(paths, worker=0).last(2).lines] == ["err 8", "err 9"]
