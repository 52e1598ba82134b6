"""A real process put behind the others, and among them again."""

import os
import subprocess
import sys
import textwrap

import pytest

from edt_server.supervisor.processes import standby_processes as background

PROGRAM = textwrap.dedent("""
    import subprocess, sys, threading
    inner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    threading.Thread(target=sys.stdin.readline).start()
    print(inner.pid, flush=True)
    inner.communicate(sys.stdin.read().encode())
""")


@pytest.fixture
def family():
    """A process of two threads with a child of its own."""
    with subprocess.Popen([sys.executable, "-c", "input()\n" + PROGRAM], stdin=-1, stdout=-1, text=True) as process:
        yield process


def begin(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def badness(pid):
    with open(f"/proc/{pid}/oom_score_adj") as file:
        return int(file.read())


def threads(pid):
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


@pytest.mark.parametrize("allowed", [True, False])
def test_it_and_all_that_it_starts_come_last_until_that_is_taken_back(family, allowed, monkeypatch):
    may = background._may_raise()
    monkeypatch.setattr(background, "_may_raise", lambda: may and allowed)
    background.lower_priority(family.pid)
    inner = begin(family)
    behind = os.SCHED_IDLE if may and allowed else os.SCHED_OTHER
    assert [badness(pid) for pid in (family.pid, inner)] == [1000, 1000]
    assert {os.sched_getscheduler(thread) for pid in (family.pid, inner) for thread in threads(pid)} == {behind}
    background.restore_priority(family.pid)
    assert [badness(pid) for pid in (family.pid, inner)] == [badness(os.getpid())] * 2
    everybody = {os.sched_getscheduler(thread) for pid in (family.pid, inner) for thread in threads(pid)}
    assert everybody == {os.SCHED_OTHER}


def test_one_that_is_gone_is_passed_over():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    background.lower_priority(process.pid)
    background.restore_priority(process.pid)
