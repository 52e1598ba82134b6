"""A full disk under a supervisor: its reports are kept, and the index of the streams goes on when there is room."""

from __future__ import annotations

import os

import pytest

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire.control import JobEnded, Numbered
from edt_server.outputs.logs import TimeIndex
from edt_server.supervisor.journal import Journal, read_journal
from edt_server.supervisor.stream_index import StreamIndex
from tests.server.store.trouble import fill, small_disk


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path, 1 << 20) as mounted:
        if not mounted:
            pytest.skip("a small disk of its own can only be mounted as root, with the right to (CAP_SYS_ADMIN)")
        yield tmp_path


def test_the_last_report_is_kept(disk):
    journal = Journal(disk / "journal.jsonl")
    fill(disk / "ballast")
    reports = [
        Numbered(number=number, time=0.0, report=JobEnded(state=JobState.KILLED, message="y" * 5000))
        for number in range(1, 6)
    ]
    for report in reports:
        journal.append(report)
    journal.close()
    assert read_journal(disk / "journal.jsonl") == reports
    used = (disk / "journal.jsonl").stat()
    assert used.st_blocks * 512 < used.st_size + 4096, "nothing is kept for a file that does not grow any more"


def test_growth_is_recorded_when_there_is_room_again(disk):
    streams = disk / "streams"
    streams.mkdir()
    output = streams / "driver.stdout"
    output.write_bytes(b"")
    index = StreamIndex(disk / "index", streams, {}, within=disk)
    os.truncate(output, 1)
    index.sample(1.0)
    fill(disk / "ballast")
    # Until the page that the index has is full: its last line is torn then. The stream grows without a block.
    size = 1
    while (disk / "index").stat().st_size < os.sysconf("SC_PAGESIZE"):
        size += 1
        os.truncate(output, size)
        index.sample(float(size))
    index.sample(float(size))
    assert not (disk / "index").read_bytes().endswith(b"\n")
    (disk / "ballast").unlink()
    index.sample(1000.0)
    index.close()
    read = TimeIndex(lambda: [disk / "index"])
    read.update()
    assert read.time_of("driver.stdout", size) == 1000.0
    assert read.time_of("driver.stdout", size - 1) == size - 1
    StreamIndex(disk / "index", streams, {}, within=disk).close()
