"""The last lines of a log, found from its end: whatever was written, and however long a line is."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.outputs.logs import LogReader
from edt_server.outputs.tail import LogEnd, end_of, line_at


@pytest.fixture
def paths(tmp_path):
    paths = JobPaths(tmp_path, "ann", "job-1")
    paths.streams_dir.mkdir(parents=True)
    return paths


@given(st.lists(st.binary(max_size=9).map(lambda text: text.replace(b"\n", b"")), max_size=9), st.integers(1, 12))
def test_the_last_lines_of_a_small_file_are_exact(tmp_path_factory, lines, asked):
    path = tmp_path_factory.mktemp("log") / "file"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    rest = path.read_bytes()[end_of(path, asked).offset :]
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
    assert content[end_of(path, 5, max_bytes=20).offset :] == shown


def test_there_may_be_no_file_yet(tmp_path):
    assert end_of(tmp_path / "none", 5) == LogEnd(0)


def test_a_reader_begins_with_the_last_lines_of_everybody_and_goes_on_behind_them(paths):
    out, err = paths.streams_dir / "driver.stdout", paths.streams_dir / "worker-0.stderr"
    out.write_text("".join(f"out {n}\n" for n in range(10)))
    err.write_text("".join(f"err {n}\n" for n in range(10)))
    batch = LogReader(paths).last(4, final=False)
    assert len(batch.lines) == len(list(batch.cursors())) == 4
    assert batch.lines[-1].text in ("out 9", "err 9")
    with out.open("a") as file:
        file.write("out 10\n")
    assert [line.text for line in LogReader(paths, after=batch.next).read().lines] == ["out 10"]
    assert [line.text for line in LogReader(paths, worker=0).last(2).lines] == ["err 8", "err 9"]


@given(st.lists(st.binary(max_size=9), max_size=9).map(b"\n".join), st.integers(0, 99))
def test_a_line_is_found_from_any_of_its_bytes(tmp_path_factory, content, at):
    path = tmp_path_factory.mktemp("log") / "file"
    path.write_bytes(content)
    at = min(at, len(content))
    assert line_at(path, at) == content.rfind(b"\n", 0, at) + 1


def test_the_end_of_a_large_file_takes_more_than_one_block(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"".join(b"%09d\n" % n for n in range(200_000)))
    assert path.read_bytes()[end_of(path, 100_000).offset :].startswith(b"000100000\n")
    # No more than a kibibyte a line.
    path.write_bytes((b"x" * 10_000 + b"\n") * 300)
    end = end_of(path, 300)
    assert end.cut
    assert path.stat().st_size - end.offset == 30 * 10_001


def test_where_one_writes_long_lines_nothing_older_than_those_is_shown(paths, monkeypatch):
    monkeypatch.setattr("edt_server.outputs.tail._BLOCK", 64)
    monkeypatch.setattr("edt_server.outputs.tail._A_LINE", 8)
    (paths.streams_dir / "driver.stdout").write_text("".join(f"short {n}\n" for n in range(4)))
    (paths.streams_dir / "worker-0.stdout").write_text("".join(f"{n}{'x' * 29}\n" for n in range(4)))
    index = []
    for n in range(4):
        index += [("driver.stdout", 2 * n, 8 * (n + 1)), ("worker-0.stdout", 2 * n + 1, 31 * (n + 1))]
    paths.stream_index.write_text("".join(json.dumps({"t": t, "f": f, "n": n}) + "\n" for f, t, n in index))
    reader = LogReader(paths)
    batch = reader.last(8)
    assert [line.text[:7] for line in batch.lines] == ["2xxxxxx", "short 3", "3xxxxxx"]
    cursors = list(batch.cursors())
    assert [line.text[:7] for line in LogReader(paths, after=cursors[0]).read().lines] == ["short 3", "3xxxxxx"]
    assert LogReader(paths, after=cursors[-1]).read().lines == ()


@pytest.mark.parametrize(
    ("since", "shown"),
    [
        (0, ["a", "b", "c", "d"]),
        (2, ["b", "c", "d"]),
        (2.5, ["c", "d"]),
        (3, ["c", "d"]),
        (3.5, ["d"]),
    ],
)
def test_a_reader_begins_at_a_time(paths, since, shown):
    out, err = paths.streams_dir / "driver.stdout", paths.streams_dir / "driver.stderr"
    out.write_text("a\nc\n")
    err.write_text("b\nd\n")
    # The first look came in the middle of the second line: it was said when it ended.
    index = [("driver.stdout", 1, 3), ("driver.stderr", 2, 2), ("driver.stdout", 3, 4), ("driver.stderr", 4, 4)]
    paths.stream_index.write_text("".join(json.dumps({"t": t, "f": f, "n": n}) + "\n" for f, t, n in index))
    for path in (out, err):
        os.utime(path, (4, 4))
    reader = LogReader(paths)
    reader.begin(since)
    assert [line.text for line in reader.read().lines] == shown
    reader = LogReader(paths)
    reader.begin(since)
    assert [line.text for line in reader.last(1).lines] == shown[-1:]


def test_what_no_supervisor_has_indexed_was_said_at_its_last_change(paths):
    out = paths.streams_dir / "driver.stdout"
    out.write_text("a\nb\n")
    os.utime(out, (50, 50))
    for since, shown in ((50, ["a", "b"]), (51, [])):
        reader = LogReader(paths)
        reader.begin(since)
        assert [line.text for line in reader.read().lines] == shown
    with out.open("a") as file:
        file.write("c\n")
    assert [line.text for line in reader.read().lines] == ["c"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["driver.stdout", "driver.stderr", "worker-0.stdout"]), st.integers(0, 3)),
        max_size=20,
    ),
    st.integers(1, 9),
)
def test_the_last_lines_are_those_that_the_whole_ends_with_and_each_can_be_gone_on_from(tmp_path_factory, said, asked):
    paths = JobPaths(tmp_path_factory.mktemp("log"), "ann", "job-1")
    paths.streams_dir.mkdir(parents=True)
    index, time = [], 0
    for at, (name, later) in enumerate(said):
        time += later
        with (paths.streams_dir / name).open("a") as file:
            file.write(f"{at}\n")
            index.append({"t": time, "f": name, "n": file.tell()})
    paths.stream_index.write_text("".join(json.dumps(entry) + "\n" for entry in index))
    whole = [line.text for line in LogReader(paths).read().lines]
    batch = LogReader(paths).last(asked)
    shown = [line.text for line in batch.lines]
    assert shown == whole[-asked:]
    for at, cursor in enumerate(batch.cursors(), 1):
        assert [line.text for line in LogReader(paths, after=cursor).read().lines] == shown[at:]
