"""Journal, stream index and last words: what the supervisor writes and reads."""

import json

import pytest

from edt_sdk.schemas.wire.control import DriverStarted, Numbered
from edt_server.outputs.logs import TimeIndex
from edt_server.supervisor.journal import Journal, read_journal
from edt_server.supervisor.state_machines.wording import LastLines, file_tail, stream_tail
from edt_server.supervisor.stream_index import StreamIndex


def numbered(number):
    return Numbered(number=number, time=float(number), report=DriverStarted(pid=number))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def test_a_journal_is_there_again_after_its_writer_died(path):
    journal = Journal(path)
    for number in (1, 2, 3):
        journal.append(numbered(number))
    assert read_journal(path) == [numbered(1), numbered(2), numbered(3)]
    journal.close()
    again = Journal(path)
    assert again.last == 3
    assert not again.delivered
    again.acknowledge(2)
    assert again.open_reports() == [numbered(3)]
    again.append(numbered(4))
    again.acknowledge(9)
    assert again.delivered
    again.acknowledge(1)
    assert again.delivered, "an old answer may come late"
    again.welcome(1)
    assert [report.number for report in again.open_reports()] == [2, 3, 4]
    again.close()


def test_a_torn_last_line_is_no_report(path):
    journal = Journal(path)
    journal.append(numbered(1))
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert read_journal(path) == [numbered(1)]
    journal = Journal(path)
    journal.append(numbered(2))
    journal.close()
    assert read_journal(path) == [numbered(1), numbered(2)]


def test_numbers_have_no_gaps(path):
    journal = Journal(path)
    with pytest.raises(ValueError, match="report 2 follows 0"):
        journal.append(numbered(2))
    journal.close()


def test_no_journal_is_an_empty_one(path):
    assert read_journal(path) == []


@pytest.fixture
def streams(tmp_path):
    folder = tmp_path / "streams"
    folder.mkdir()
    return folder


def test_the_index_tells_when_each_byte_was_there(tmp_path, streams):
    elog = tmp_path / "log" / "stdout"
    index = StreamIndex(tmp_path / "index.jsonl", streams, {"log/driver/stdout": elog}, within=tmp_path)
    index.sample(1.0)
    (streams / "driver.stdout").write_text("one\n")
    index.sample(2.0)
    index.sample(3.0)
    elog.parent.mkdir()
    elog.write_text("elog\n")
    (streams / "driver.stdout").write_text("one\ntwo\n")
    (streams / "worker-0.stderr").write_text("x")
    index.sample(4.0)
    index.close()
    lines = [json.loads(line) for line in (tmp_path / "index.jsonl").read_text().splitlines()]
    assert lines == [
        {"t": 2.0, "f": "driver.stdout", "n": 4},
        {"t": 4.0, "f": "driver.stdout", "n": 8},
        {"t": 4.0, "f": "log/driver/stdout", "n": 5},
        {"t": 4.0, "f": "worker-0.stderr", "n": 1},
    ]
    times = TimeIndex(lambda: [tmp_path / "index.jsonl"])
    times.update()
    assert [times.time_of("driver.stdout", end) for end in (1, 4, 5, 8, 9)] == [2.0, 2.0, 4.0, 4.0, None]


def test_another_supervisor_goes_on_with_the_index(tmp_path, streams):
    (streams / "driver.stdout").write_text("one\n")
    for now in (1.0, 2.0):
        index = StreamIndex(tmp_path / "index.jsonl", streams, {}, within=tmp_path)
        index.sample(now)
        index.close()
    assert (tmp_path / "index.jsonl").read_text().count("\n") == 1


def test_a_job_that_is_deleted_meanwhile_is_no_trouble(tmp_path, streams):
    index = StreamIndex(tmp_path / "index.jsonl", streams, {}, within=tmp_path)
    streams.rmdir()
    index.sample(1.0)
    index.close()


def test_last_words_are_those_of_stderr_or_else_of_stdout(streams):
    assert stream_tail(streams, "driver") is None
    (streams / "driver.stdout").write_text("\n".join(f"line {n}" for n in range(50)))
    (streams / "driver.stderr").write_text("\n\n")
    words = stream_tail(streams, "driver")
    assert words == LastLines("driver.stdout", "\n".join(f"line {n}" for n in range(30, 50)))
    (streams / "driver.stderr").write_text("Traceback\n\nKeyError")
    assert stream_tail(streams, "driver") == LastLines("driver.stderr", "Traceback\nKeyError")


def test_of_a_stack_with_the_most_recent_call_first_the_first_lines_are_kept(streams):
    frames = [f'  File "train.py", line {n} in f{n}' for n in range(50)]
    path = streams / "worker-0.stderr"
    path.write_text("\n".join(["said before", "Stack (most recent call first):", *frames]))
    assert file_tail(path).split("\n") == ["Stack (most recent call first):", *frames[:19]]
    path.write_text("\n".join(["said before", "Stack (most recent call first):", *frames[:3]]))
    assert file_tail(path).split("\n") == ["said before", "Stack (most recent call first):", *frames[:3]]
    path.write_text("\n".join(["Stack (most recent call first):", *frames, "said after"]))
    assert file_tail(path).split("\n") == [*frames[-19:], "said after"]


def test_last_words_may_be_long_or_no_text_at_all(streams):
    path = streams / "x"
    path.write_bytes(b"\xff\xfe" + b"a" * 100_000 + b"\nlast")
    long, last = file_tail(path).split("\n")
    assert long == "a" * 500 + " …"
    assert last == "last"
