"""The worker's end of the link over a real socket pair."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from edt_sdk.schemas.wire import link as wire
from edt_sdk.training.member.link import SUPERVISOR_GONE, Link


def member(worker: int) -> wire.Member:
    return wire.Member(worker=worker, slot=worker, pid=1, host="127.0.0.1", store_port=1, fresh=True)


def generation(number: int, *workers: int) -> wire.Generation:
    return wire.Generation(training=0, number=number, members=tuple(member(worker) for worker in workers))


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket]]:
    ours, theirs = socket.socketpair()
    link = Link(ours)
    yield link, theirs
    link.finish()
    theirs.close()
    ours.close()


def test_generations_are_kept_and_awaited(pair: tuple[Link, socket.socket]) -> None:
    link, supervisor = pair
    found: list[wire.Generation] = []
    waiting = threading.Thread(target=lambda: found.append(link.wait_generation(2)))
    waiting.start()
    assert link.pending == 0
    for message in (generation(1, 0), generation(2, 0, 1), generation(3, 0, 2)):
        supervisor.sendall(wire.encode(message))
    waiting.join(180)
    assert found == [generation(3, 0, 2)]
    assert link.pending == 3
    assert link.generation(2) == generation(2, 0, 1)
    assert link.generation(4) is None


def test_the_newest_generation_is_awaited_whoever_is_in_it(pair: tuple[Link, socket.socket]) -> None:
    link, supervisor = pair
    found: list[wire.Generation | None] = []
    supervisor.sendall(wire.encode(generation(1, 0)))
    waiting = threading.Thread(target=lambda: found.append(link.wait_newer(1)))
    waiting.start()
    supervisor.sendall(wire.encode(generation(2)))
    waiting.join(180)
    assert found == [generation(2)]


def test_to_a_member_a_lost_supervisor_is_the_highest_generation(pair: tuple[Link, socket.socket]) -> None:
    link, supervisor = pair
    supervisor.sendall(wire.encode(generation(1, 0)))
    assert link.wait_generation(0) == generation(1, 0)
    link.become_member()
    supervisor.close()
    assert link.wait_newer(1) is None
    assert link.pending == SUPERVISOR_GONE
    assert link.generation(1) == generation(1, 0)
    link.send(wire.Left(worker=0, generation=2, update=1))  # nobody hears it


def test_messages_are_taken_once_by_kind_and_in_order(pair: tuple[Link, socket.socket]) -> None:
    link, supervisor = pair
    done, failed = wire.TrainingDone(training=0, updates=1), wire.TrainingFailed(training=1, message="no")
    begin = wire.Begin(training=0, payload="p")
    # Two messages and a half arrive together, the rest later.
    data = wire.encode(done) + wire.encode(begin) + wire.encode(failed)
    supervisor.sendall(data[:-5])
    assert link.take(wire.Begin) == begin
    assert link.take(wire.TrainingDone, wire.TrainingFailed) == done
    assert link.take(wire.TrainingDone, wire.TrainingFailed, timeout=0.01) is None
    supervisor.sendall(data[-5:])
    assert link.take(wire.TrainingDone, wire.TrainingFailed) == failed


def test_many_threads_send_whole_lines(pair: tuple[Link, socket.socket]) -> None:
    link, supervisor = pair
    message = wire.Failed(worker=1, message="m" * 5000, traceback="t" * 5000)
    threads = [threading.Thread(target=link.send, args=(message,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    with supervisor.makefile("rb") as lines:
        assert all(wire.decode_upward(lines.readline()) == message for _ in threads)
    for thread in threads:
        thread.join(180)


PROCESS = """
import multiprocessing, os, socket, sys, time
from edt_sdk.training.member.link import Link
link = Link(socket.socket(fileno=int(sys.argv[1])))
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
child.start()
if "finished" in sys.argv:
    link.finish()
print(child.pid, flush=True)
if "finished" in sys.argv:
    sys.stdin.readline()
    sys.exit(0)
time.sleep(600)
"""


@pytest.mark.parametrize(("arguments", "code"), [([], 1), (["finished"], 0)])
def test_a_lost_supervisor_ends_the_process_and_its_children(arguments: list[str], code: int) -> None:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(ours.fileno()), *arguments],
        pass_fds=[ours.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    ours.close()
    try:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        theirs.close()
        _, errors = process.communicate("\n")
        assert process.returncode == code, errors
        assert ("the supervisor is gone" in errors) == (code == 1)
    finally:
        process.kill()
        process.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def test_nonsense_is_as_good_as_a_lost_supervisor() -> None:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(ours.fileno())],
        pass_fds=[ours.fileno()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    ours.close()
    try:
        assert process.stdout is not None
        process.stdout.readline()
        theirs.sendall(b'{"type": "Nonsense"}\n')
        _, errors = process.communicate()
        assert process.returncode == 1
        assert "Nonsense" in errors
    finally:
        process.kill()
        process.wait()
        theirs.close()
