"""Every line once, each file in its own order, all of them by time, from any cursor on."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.outputs import logs
from edt_server.outputs.logs import LoggedLine, LogReader, Placed, TimeIndex, elog_name, merge
from edt_server.outputs.tail import MAX_BYTES, MAX_LINE, read_tail, to_cursor


@pytest.fixture
def paths(tmp_path):
    paths = JobPaths(tmp_path, "ann", "job-1")
    paths.streams_dir.mkdir(parents=True)
    return paths


class Writer:
    """Writes streams as processes do, and their index as a supervisor does."""

    def __init__(self, paths):
        self.paths = paths
        self.host = "node1"
        self.clock = 1000.0

    def path(self, name):
        if name == "elog":
            folder = self.paths.driver_log_dir(self.host)
            folder.mkdir(parents=True, exist_ok=True)
            return folder / "stdout", elog_name(folder.name)
        return self.paths.streams_dir / name, name

    def say(self, name, data, *, indexed=True):
        path, key = self.path(name)
        with path.open("ab") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        self.clock += 1
        if indexed:
            with self.paths.stream_index.open("a") as index:
                index.write(json.dumps({"t": self.clock, "f": key, "n": path.stat().st_size}) + "\n")


@pytest.fixture
def writer(paths):
    return Writer(paths)


def texts(batch):
    return [line.text for line in batch.lines]


def read_on(paths, limit=3, final=True, **options):
    """All lines, a few at a time, each time by a new reader that knows the cursor only."""
    lines, cursor = [], ""
    while True:
        batch = LogReader(paths, after=cursor, **options).read(limit=limit, final=final)
        lines += batch.lines
        cursor = batch.next
        if not batch.lines:
            return lines


def test_a_file_that_appears_while_others_are_read_costs_no_line(paths, writer, monkeypatch):
    writer.say("driver.stdout", "one\n")
    writer.say("worker-0.stdout", "two\n")
    reader = LogReader(paths)
    read_tail = logs.read_tail

    def read_and_be_disturbed(path, *arguments, **options):
        if path.name == "worker-0.stdout" and not writer.path("elog")[0].exists():
            writer.say("elog", "three\n")  # stands before the workers in the list of files
        return read_tail(path, *arguments, **options)

    monkeypatch.setattr(logs, "read_tail", read_and_be_disturbed)
    first = reader.read()
    rest = LogReader(paths, after=first.next).read()
    assert sorted(texts(first) + texts(rest)) == ["one", "three", "two"]


def test_streams_are_merged_by_the_time_they_were_seen(paths, writer):
    writer.say("driver.stdout", "one\n")
    writer.say("worker-0.stderr", "two\n")
    writer.say("elog", "[2026-01-01 00:00:00] three\n")
    writer.say("worker-10.stdout", "four\n")
    writer.say("driver.stderr", "five\n")
    writer.say("driver.stdout", "six\nseven\n")
    batch = LogReader(paths).read(final=True)
    assert texts(batch) == ["one", "two", "[2026-01-01 00:00:00] three", "four", "five", "six", "seven"]
    assert [line.time for line in batch.lines] == [1001, 1002, 1003, 1004, 1005, 1006, 1006]
    told = [(line.stream, line.worker, line.err) for line in batch.lines[:5]]
    assert told == [
        ("stdout", None, False),
        ("worker", 0, True),
        ("elog", None, False),
        ("worker", 10, False),
        ("stderr", None, True),
    ]
    assert batch.done
    assert [line.text for line in read_on(paths)] == texts(batch)
    assert len(batch.lines) == 7


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "oeLabAB"),
        ({"stream": "all"}, "oeLabAB"),
        ({"stream": "driver"}, "oe"),
        ({"stream": "stdout"}, "o"),
        ({"stream": "stderr"}, "e"),
        ({"stream": "elog"}, "L"),
        ({"stream": "worker"}, "abAB"),
        ({"worker": 1}, "AB"),
        ({"stream": "worker", "worker": 0}, "ab"),
        ({"stream": "stdout", "worker": 0}, "a"),
        ({"stream": "stderr", "worker": 1}, "B"),
        ({"worker": 7}, ""),
    ],
)
def test_selects_streams_and_workers(paths, writer, options, expected):
    names = {"o": "driver.stdout", "e": "driver.stderr", "L": "elog", "a": "worker-0.stdout", "b": "worker-0.stderr"}
    for text, name in {**names, "A": "worker-1.stdout", "B": "worker-1.stderr"}.items():
        writer.say(name, f"{text}\n")
    assert "".join(texts(LogReader(paths, **options).read(final=True))) == expected


@pytest.mark.parametrize(
    "options", [{"stream": "x"}, {"stream": "elog", "worker": 1}, {"after": "!"}, {"after": "e30x"}]
)
def test_refuses_what_it_does_not_know(paths, options):
    with pytest.raises(InvalidRequest):
        LogReader(paths, **options)


def test_a_cursor_cannot_name_a_file(paths):
    from edt_server.outputs.tail import to_cursor

    for key in ("../../etc/passwd", "l:../x", "x", ""):
        with pytest.raises(InvalidRequest):
            LogReader(paths, after=to_cursor({key: 1}))


def test_the_last_line_without_a_newline_waits_for_the_end(paths, writer):
    writer.say("driver.stdout", "whole\nhalf")
    reader = LogReader(paths)
    first = reader.read()
    assert (texts(first), first.done) == (["whole"], False)
    assert texts(reader.read()) == []
    writer.say("driver.stdout", " and half")
    last = reader.read(final=True)
    assert (texts(last), last.done) == (["half and half"], True)
    assert (texts(reader.read(final=True)), last.next) == ([], reader.read(final=True).next)


def test_a_line_not_indexed_yet_is_told_and_has_a_time(paths, writer):
    writer.say("driver.stdout", "seen\n")
    writer.say("driver.stdout", "not yet\n", indexed=False)
    batch = LogReader(paths).read()
    assert texts(batch) == ["seen", "not yet"]
    assert batch.lines[1].time == (paths.streams_dir / "driver.stdout").stat().st_mtime


def test_no_index_and_no_files_are_no_error(paths, writer):
    assert LogReader(paths).read().lines == ()
    assert LogReader(paths).read(final=True).done
    writer.say("worker-0.stdout", "alone\n", indexed=False)
    assert texts(LogReader(paths).read()) == ["alone"]


def test_a_damaged_index_costs_times_only(paths, writer):
    writer.say("driver.stdout", "one\n")
    with paths.stream_index.open("ab") as index:
        index.write(b'{"t": 5, "f"\n\xff\xfe\n{"t": "x", "f": "driver.stdout", "n": 9}\n')
    writer.say("driver.stdout", "two\n")
    batch = LogReader(paths).read(final=True)
    assert [(line.text, line.time) for line in batch.lines] == [("one", 1001), ("two", 1002)]


def test_bytes_that_are_no_utf8_are_replaced(paths, writer):
    writer.say("driver.stdout", b"caf\xe9 \xff\r\nok\n")
    assert texts(LogReader(paths).read()) == ["caf\ufffd \ufffd", "ok"]


def test_an_endless_line_comes_in_pieces_of_whole_characters(paths, writer):
    text = "ü" * (MAX_LINE + 1000)
    writer.say("driver.stdout", text + "\nnext\n")
    batch = LogReader(paths).read(final=True)
    assert batch.lines[-1].text == "next"
    assert "".join(texts(batch)[:-1]) == text
    assert max(len(line.text.encode()) for line in batch.lines) <= MAX_LINE
    writer.say("worker-0.stdout", b"x" * (9 * MAX_LINE))
    reader, pieces = LogReader(paths, worker=0), []
    while batch := reader.read(final=True).lines:
        pieces += batch
    assert sum(len(line.text) for line in pieces) == 9 * MAX_LINE


def test_a_line_of_a_megabyte_stays_whole_next_to_the_files_of_two_workers(paths, writer):
    for name in ("driver.stderr", "elog", *(f"worker-{n}.{kind}" for n in (0, 1) for kind in ("stdout", "stderr"))):
        writer.say(name, "x\n")
    writer.say("driver.stdout", b"y" * 1_000_000 + b"\n")
    assert max(map(len, texts(LogReader(paths).read(final=True)))) == 1_000_000


def test_a_page_never_overtakes_a_file_that_has_more(paths, writer):
    for k in range(50):
        writer.say("driver.stdout" if k % 5 else "worker-0.stdout", f"{k}\n")
    for limit in (1, 2, 7):
        assert [line.text for line in read_on(paths, limit=limit)] == [str(k) for k in range(50)]


def test_every_cursor_of_a_batch_resumes_behind_its_line(paths, writer):
    for k in range(12):
        writer.say(("driver.stdout", "worker-0.stdout", "elog")[k % 3], f"{k}\n")
    batch = LogReader(paths).read(final=True)
    for place, cursor in enumerate(batch.cursors()):
        assert texts(LogReader(paths, after=cursor).read(final=True)) == [str(k) for k in range(place + 1, 12)]


@given(
    says=st.lists(
        st.tuples(
            st.sampled_from(["driver.stdout", "driver.stderr", "worker-0.stdout", "elog"]),
            st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=5),
            st.booleans(),
        ),
        max_size=25,
    ),
    reads=st.lists(st.integers(0, 25), max_size=5),
    limit=st.integers(1, 8),
)
def test_whatever_is_written_and_read_when_each_line_is_told_once(tmp_path_factory, says, reads, limit):
    paths = JobPaths(tmp_path_factory.mktemp("logs"), "ann", "job-1")
    paths.streams_dir.mkdir(parents=True)
    writer, reader, told = Writer(paths), LogReader(paths), []
    for k, (name, text, indexed) in enumerate(says):
        writer.say(name, f"{k}:{text}\n", indexed=indexed)
        if k in reads:
            told += reader.read(limit=limit).lines
    while batch := reader.read(limit=limit, final=True).lines:
        told += batch
    assert sorted(line.text for line in told) == sorted(f"{k}:{text}" for k, (_, text, _) in enumerate(says))
    by_origin = {}
    for line in told:
        by_origin.setdefault((line.stream, line.worker), []).append(int(line.text.partition(":")[0]))
    assert all(numbers == sorted(numbers) for numbers in by_origin.values())


@given(st.lists(st.lists(st.floats(0, 100)), max_size=5), st.integers(0, 20), st.floats(0, 100))
def test_merge_gives_the_earliest_lines_in_order(files, limit, until):
    line = LoggedLine(time=0, stream="stdout", worker=None, err=False, text="")
    placed = [[Placed(t, order, 0, line) for t in sorted(times)] for order, times in enumerate(files)]
    merged = [entry.time for entry in merge(placed, limit=limit, until=until)]
    assert merged == sorted(t for times in files for t in times if t <= until)[:limit]


def test_times_of_a_file_never_go_back(tmp_path):
    path = tmp_path / "index"
    path.write_text('{"t":5,"f":"a","n":10}\n{"t":4,"f":"a","n":20}\n{"t":9,"f":"a","n":15}\n{"t":10,"f":"a","n":')
    index = TimeIndex(lambda: [path])
    index.update()
    assert [index.time_of("a", end) for end in (1, 10, 11, 20, 21)] == [5, 5, 5, 5, None]
    with path.open("a") as file:
        file.write("30}\n")
    index.update()
    assert index.time_of("a", 21) == 10


def test_a_cursor_beyond_every_file_is_refused(paths):
    with pytest.raises(InvalidRequest, match="not a cursor"):
        LogReader(paths, after=to_cursor({"o": 2**63}))
    assert LogReader(paths, after=to_cursor({"o": 2**63 - 1})).read(final=True).lines == ()


def test_many_files_share_the_bytes_of_one_read(paths):
    for number in range(40):
        folder = paths.log_root / f"driver-{number}"
        folder.mkdir(parents=True)
        (folder / "stdout").write_bytes(b"x" * (1 << 20))
    reader, text = LogReader(paths), 0
    while lines := reader.read(final=True).lines:
        assert sum(len(line.text) for line in lines) <= 2 * MAX_BYTES
        text += sum(len(line.text) for line in lines)
    assert text == 40 << 20


def test_one_kind_of_output_alone(paths):
    (paths.streams_dir / "driver.stdout").write_text("out\n")
    (paths.streams_dir / "worker-0.stderr").write_text("err\n")
    for err, shown in ((None, ["out", "err"]), (False, ["out"]), (True, ["err"])):
        assert sorted(line.text for line in LogReader(paths, err=err).read(final=True).lines) == sorted(shown)


def test_a_file_of_line_breaks_is_not_split_beyond_what_is_wanted(tmp_path):
    (tmp_path / "log").write_bytes(b"\n" * MAX_BYTES)
    tracemalloc.start()
    tail = read_tail(tmp_path / "log", 0, max_lines=1, final=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(tail.lines), tail.more, peak < 3 * MAX_BYTES) == (1, True, True)
