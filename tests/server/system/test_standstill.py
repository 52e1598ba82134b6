"""A stopped process is told from a busy and from an idle one, and one that was stopped notices it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from edt_server.system.processes import identify
from edt_server.system.standstill import BEAT, NOTICED, SEEN, StandstillPulse, StandstillWatch, stopped
from tests.waiting import until

ECHO = "import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)\n"
THREADS = "import threading\nthreading.Thread(target=input, daemon=True).start()\nprint(flush=True)\nwhile True: pass\n"


@contextmanager
def running(program: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def stop(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: stopped(identify(process.pid)) is not None)


def say(process: subprocess.Popen[str]) -> None:
    """Have it do something, and wait until it has."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("here\n")
    process.stdin.flush()
    assert process.stdout.readline() == "here\n"


def test_a_stopped_process_stands_still_when_it_has_been_seen_so_for_long() -> None:
    with running(ECHO) as process:
        say(process)
        watch, who = StandstillWatch(), identify(process.pid)
        assert not watch.stands_still(who, 0.0)
        assert not watch.stands_still(who, 100.0)  # it waits, but it is not stopped
        stop(process)
        assert not watch.stands_still(who, 200.0)
        assert not watch.stands_still(who, 200.0 + SEEN / 2)
        assert watch.stands_still(who, 200.0 + SEEN)


def test_one_that_has_run_between_two_looks_does_not_stand_still() -> None:
    with running(ECHO) as process:
        watch, who = StandstillWatch(), identify(process.pid)
        say(process)
        stop(process)
        assert not watch.stands_still(who, 0.0)
        os.kill(process.pid, signal.SIGCONT)
        say(process)
        stop(process)
        assert not watch.stands_still(who, 100.0)
        assert watch.stands_still(who, 100.0 + SEEN)


def test_all_threads_have_to_be_stopped_and_the_process_to_be_the_one() -> None:
    with running(THREADS) as process:
        assert process.stdout is not None
        process.stdout.readline()
        who = identify(process.pid)
        assert stopped(who) is None  # busy
        stop(process)
        marks = stopped(who)
        assert marks is not None
        assert len(marks) == 2
        assert stopped(msgspec.structs.replace(who, start_ticks=who.start_ticks + 1)) is None
        assert stopped(msgspec.structs.replace(who, host="elsewhere")) is None
    assert stopped(who) is None


def test_two_processes_are_not_taken_for_one() -> None:
    with running(ECHO) as one, running(ECHO) as other:
        watch = StandstillWatch()
        for process in (one, other):
            say(process)
            stop(process)
        assert not watch.stands_still(identify(one.pid), 0.0)
        assert not watch.stands_still(identify(other.pid), 100.0)


def test_whoever_is_seen_to_stand_still_notices_it() -> None:
    assert BEAT < NOTICED < SEEN
    pulse = StandstillPulse()
    assert pulse.unbroken_since(0.0, 1000.0)  # nobody beats yet
    pulse.begin(0.0)
    assert not pulse.beat(0.1)
    assert pulse.unbroken_since(0.05, 0.2)
    # Stopped after the beat at 0.1: doubt before the next beat, at it, and after it.
    assert not pulse.unbroken_since(0.05, 0.1 + SEEN)
    assert pulse.beat(0.1 + SEEN)
    assert not pulse.unbroken_since(0.05, 0.1 + SEEN)
    assert not pulse.beat(0.2 + SEEN)
    assert not pulse.unbroken_since(0.05, 0.2 + SEEN)
    assert pulse.unbroken_since(0.15 + SEEN, 0.2 + SEEN)  # what was confirmed since then counts


def test_a_gap_before_the_first_beat_is_one() -> None:
    pulse = StandstillPulse()
    pulse.begin(10.0)
    assert not pulse.unbroken_since(10.0, 10.0 + SEEN)
    assert pulse.beat(10.0 + SEEN)
    assert not pulse.unbroken_since(10.0, 10.0 + SEEN)
