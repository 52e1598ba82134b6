"""The streams and the folder of a process that may never have a slot."""

import os
import subprocess
import sys

import pytest

from edt_server.supervisor.processes import memory_left
from edt_server.supervisor.processes.children import Program
from edt_server.supervisor.processes.memory_left import Memory, memory_is_scarce, room_for_another
from edt_server.supervisor.processes.standby_processes import StandbyProcesses, _may_raise
from edt_server.supervisor.stream_index import StreamIndex


@pytest.fixture
def program(tmp_path):
    logs, streams = tmp_path / "logs", tmp_path / "streams"
    logs.mkdir()
    streams.mkdir()
    return Program("m", tmp_path, {"LOG_DIR": str(logs)}, streams / "worker-3")


def say(program, text):
    """As its process would, to streams that were opened before it began."""
    for name in ("stdout", "stderr"):
        with open(f"{program.streams}.{name}", "a") as file:
            file.write(f"{text} {name}")


def test_what_it_has_said_is_in_the_log_of_the_worker_that_it_becomes(program, tmp_path):
    index = StreamIndex(tmp_path / "index", tmp_path / "streams", {}, within=tmp_path)
    ahead = StandbyProcesses()
    hidden = ahead.hidden(3, program)
    say(hidden, "downloaded")
    assert ahead
    index.sample(1.0)
    assert (tmp_path / "index").read_text() == ""
    ahead.assign(3)
    assert not ahead
    assert (tmp_path / "streams" / "worker-3.stdout").read_text() == "downloaded stdout"
    assert sorted(path.name for path in (tmp_path / "streams").iterdir()) == ["worker-3.stderr", "worker-3.stdout"]
    index.sample(2.0)
    assert "worker-3.stderr" in (tmp_path / "index").read_text()
    index.close()
    ahead.ended(3)
    assert (tmp_path / "streams" / "worker-3.stdout").exists(), "a worker like any other"


def test_of_one_that_never_had_a_slot_nothing_is_left(program, tmp_path):
    ahead = StandbyProcesses()
    say(ahead.hidden(3, program), "downloaded")
    ahead.ended(3)
    assert not ahead
    assert list((tmp_path / "streams").iterdir()) == []
    assert not (tmp_path / "logs").exists()


def test_what_it_has_written_itself_stays(program, tmp_path):
    ahead = StandbyProcesses()
    ahead.hidden(3, program)
    (tmp_path / "logs" / "notes").write_text("…")
    ahead.ended(3)
    assert (tmp_path / "logs" / "notes").exists()


def test_what_an_earlier_one_of_its_number_said_is_not_its_own(program):
    ahead = StandbyProcesses()
    say(ahead.hidden(3, program), "long ago")
    hidden = StandbyProcesses().hidden(3, program)
    assert not list(hidden.streams.parent.iterdir())


@pytest.fixture
def waiting(program):
    """The standbys of a job, one of them with a process."""
    ahead = StandbyProcesses()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as process:
        say(ahead.hidden(3, program), "…")
        ahead.started(3, process.pid)
        assert badness(process.pid) == 1000
        assert os.sched_getscheduler(process.pid) == (os.SCHED_IDLE if _may_raise() else os.SCHED_OTHER)
        yield ahead, process.pid


def badness(pid):
    with open(f"/proc/{pid}/oom_score_adj") as file:
        return int(file.read())


def test_its_process_comes_last_until_it_has_a_slot(waiting):
    ahead, pid = waiting
    ahead.assign(3)
    assert badness(pid) == badness(os.getpid())
    ahead.started(3, pid)
    assert badness(pid) == badness(os.getpid()), "it has its slot already"


def test_one_that_is_to_end_gets_its_share_of_the_processor_and_is_still_killed_first(waiting):
    ahead, pid = waiting
    ahead.hurry(3)
    assert os.sched_getscheduler(pid) == os.SCHED_OTHER
    assert badness(pid) == 1000


def test_there_is_room_as_long_as_enough_stays_free(monkeypatch):
    monkeypatch.setattr(memory_left, "memory_now", lambda: Memory(1000 << 30, 300 << 30))
    assert room_for_another([os.getpid()])
    assert not memory_is_scarce()
    monkeypatch.setattr(memory_left, "memory_now", lambda: Memory(1000 << 30, 200 << 30))
    assert not room_for_another([os.getpid()])
    monkeypatch.setattr(memory_left, "memory_now", lambda: Memory(1000 << 30, 99 << 30))
    assert memory_is_scarce()
    monkeypatch.setattr(memory_left, "memory_now", lambda: None)
    assert not room_for_another([]), "where nothing is known"
    assert not memory_is_scarce()
