"""Who hangs and who is only slow, second by second; and what is seen of real processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from edt_sdk.schemas.wire.pulse import Beat, Phase, Pulse
from edt_server.supervisor.processes.liveness import observe, pulse_file
from edt_server.supervisor.state_machines.watchdog import Observation, Watchdog

COMPUTING, WAITING, OUTSIDE = Phase.COMPUTING, Phase.WAITING, Phase.OUTSIDE


class Watch:
    """Looks every half second and says when which worker was found."""

    def __init__(self, hang_timeout=60.0, *, committed=True):
        self.dog = Watchdog(hang_timeout)
        self.committed = committed
        self.now = 1000.0

    def until(self, seconds, *workers):
        """`workers`: functions of the time since the start; the first hang and when."""
        start = self.now
        while self.now - start <= seconds:
            self.now += 0.5
            seen = [worker(self.now - start, start) for worker in workers]
            for hang in self.dog.look(seen, committed=self.committed, now=self.now):
                self.own = hang.own
                return hang.worker, self.now - start, hang.why
        return None


def process(number, phase, *, since=0.0, state="S", cpu=0.0, updates=3, takes_part=True):
    """`since` and `cpu`: values, or functions of the time."""

    def at(t, start):
        entered = since(t) if callable(since) else since
        used = cpu(t) if callable(cpu) else cpu
        return Observation(number, takes_part, Beat(phase, updates, start + entered), state, used)

    return at


def test_a_stopped_process_is_found_after_five_seconds():
    watch = Watch()
    worker, when, why = watch.until(60, process(1, WAITING, state="T", takes_part=False))
    assert (worker, why, watch.own) == (1, "was stopped for 5 s", False)
    assert 5 <= when <= 6


def test_one_that_was_stopped_for_a_moment_is_not():
    assert Watch().until(60, lambda t, s: process(1, COMPUTING, since=t, state="T" if t % 8 < 4 else "R")(t, s)) is None


@pytest.mark.parametrize("cpu", [0.0, lambda t: t])
def test_a_micro_batch_of_a_minute_is_none(cpu):
    """Sleeping or computing; also the first of all."""
    for committed in (True, False):
        watch = Watch(committed=committed)
        assert watch.until(600, process(1, COMPUTING, since=lambda t: t // 60 * 60, cpu=cpu)) is None


def test_one_that_neither_speaks_nor_computes_hangs():
    watch = Watch()
    worker, when, why = watch.until(900, process(1, COMPUTING), process(2, WAITING))
    assert worker == 1
    assert 120 <= when <= 121
    assert why == "did not move for 120 s after update 3"
    assert watch.own


def test_one_that_waits_for_a_disk_hangs_without_a_fault_of_its_own():
    watch = Watch()
    assert watch.until(900, process(1, COMPUTING, state="D"))[2] == "did not move for 120 s after update 3"
    assert not watch.own


def test_a_little_use_of_the_processor_is_none():
    assert Watch().until(900, process(1, COMPUTING, cpu=lambda t: 0.005 * t))[1] < 125


def test_one_that_computes_has_ten_times_as_long():
    _, when, why = Watch().until(2000, process(1, COMPUTING, cpu=lambda t: 0.5 * t))
    assert 1200 <= when <= 1201
    assert why == "did not get on for 1200 s after update 3"


def test_one_that_stopped_to_compute_after_a_while_hangs_from_then_on():
    assert 220 <= Watch().until(2000, process(1, COMPUTING, cpu=lambda t: min(t, 100)))[1] <= 222


def test_the_longest_computation_that_ended_is_learned():
    watch = Watch(2.0)
    assert watch.until(60, process(1, COMPUTING, since=lambda t: t // 3 * 3)) is None
    watch.now += 1
    assert 29 <= watch.until(100, process(1, COMPUTING))[1] <= 31


def test_the_first_update_may_take_long():
    assert Watch(committed=False).until(599, process(1, COMPUTING)) is None
    _, when, why = Watch(2.0, committed=False).until(30, process(1, COMPUTING, updates=0))
    assert when <= 21
    assert why == "did not move for 20 s before the first update"


def test_all_waiting_for_each_other_hang_and_the_last_of_them_is_named():
    watch = Watch(2.0)
    worker, _, why = watch.until(
        60, process(1, WAITING, since=1.0, updates=3), process(2, WAITING, since=2.0, updates=2), process(3, WAITING)
    )
    assert worker == 2
    assert (why, watch.own) == ("did not move for 4 s, nor did any other", False)


def test_those_who_wait_for_one_that_computes_do_not_hang():
    busy = process(2, COMPUTING, since=lambda t: t // 3 * 3)
    assert Watch(2.0).until(60, process(1, WAITING), busy) is None


def test_one_that_need_not_move_does_not_hang():
    assert Watch(2.0).until(600, process(1, OUTSIDE, takes_part=False)) is None
    assert Watch(2.0).until(600, process(1, COMPUTING, takes_part=False)) is None


def test_time_before_it_had_to_move_does_not_count():
    watch = Watch(2.0)
    watch.until(100, process(1, OUTSIDE, takes_part=False))
    start = watch.now
    assert watch.dog.look([Observation(1, True, Beat(OUTSIDE, 0, 0.0), "S", None)], committed=True, now=start) == []


def test_each_is_named_once():
    watch = Watch(2.0)
    stuck = process(1, COMPUTING)
    assert watch.until(60, stuck)
    assert watch.until(60, stuck) is None


def test_a_real_process_is_seen_computing_with_its_children_and_stopped(tmp_path):
    source = "import os, sys; os.fork(); print(flush=True)\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", source], start_new_session=True, stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        Pulse(str(pulse_file(tmp_path, 4))).beat(Phase.COMPUTING, 7)

        def see(later):
            (seen,) = observe({4: child.pid, 5: 2**22 + 1}, {4}, tmp_path, time.monotonic() + later)
            return seen

        assert see(0.0).cpu is None, "nobody looks as long as it speaks"
        before = see(2.0).cpu
        while see(2.0).cpu < before + 0.1:
            time.sleep(0.01)
        assert see(0.0).beat.updates == 7
        assert see(0.0).takes_part
        os.kill(child.pid, signal.SIGSTOP)
        while see(0.0).state != "T":
            time.sleep(0.01)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert observe({4: child.pid}, {4}, tmp_path, time.monotonic()) == []
