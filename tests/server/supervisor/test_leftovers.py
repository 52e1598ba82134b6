"""What a program of an earlier attempt has left running, and the port that is kept for the next one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from edt_sdk.schemas.wire.context import JobContext, to_environ
from edt_server.supervisor.processes.ports import RunPorts
from edt_server.supervisor.processes.predecessors import end_leftovers

# A session of its own, which no signal to a group reaches.
SLEEPS = "import os, sys, time; os.setsid(); print('there', flush=True); time.sleep(600)"


def started(job: str) -> subprocess.Popen[str]:
    context = JobContext(
        job_id=job, owner="ann", data_dir="/d", link="/l", main="", code_dir="", args=(), seed=0, mode="exact",
        threads_per_slot=1, max_workers=1, command=("bash", '"job_id":"another"'),
    )  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPS], env=os.environ | to_environ(context), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def test_only_what_carries_the_job_s_mark_is_ended() -> None:
    mine, other = started(f"mine-{os.getpid()}"), started(f"other-{os.getpid()}")
    try:
        assert end_leftovers(f"mine-{os.getpid()}") == 1
        assert mine.wait(180) == -signal.SIGKILL
        assert other.poll() is None
        assert end_leftovers("another") == 0
        assert end_leftovers(f"mine-{os.getpid()}") == 0
    finally:
        for process in (mine, other):
            process.kill()
            process.communicate()


def test_a_kept_port_is_free_for_who_asks_for_it_by_its_number() -> None:
    ports = RunPorts()
    kept = ports.of(1, "127.0.0.1")
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", kept), timeout=5)
        with socket.socket() as store:
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("127.0.0.1", kept))
            store.listen()
            socket.create_connection(("127.0.0.1", kept), timeout=5).close()
        others = [RunPorts() for _ in range(64)]
        assert kept not in {other.of(1, "127.0.0.1") for other in others}
        for other in others:
            other.close()
    finally:
        ports.close()
