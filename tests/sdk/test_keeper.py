"""A program on a leash ends with whoever started it, with all its descendants; and a test's server with its jobs."""

import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from edt_sdk.keeper import LeashedProcess

# A program whose child is a session of its own and outlives it, as a job outlives a server.
DETACHES = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open(sys.argv[1] + "~", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + "~", sys.argv[1])
time.sleep(float(sys.argv[2]))
"""
STARTS = """
import os, sys, time
from pathlib import Path
from edt_sdk.keeper import LeashedProcess
with open(sys.argv[1] + ".log", "ab") as log:
    LeashedProcess([sys.executable, "-c", sys.argv[2], *sys.argv[1::2]], cwd=Path.cwd(), env=os.environ, log=log)
time.sleep(600)
"""
SERVES = """
import sys, time
from edt_sdk.testing import LocalServer
server = LocalServer(sys.argv[1], slots=1, traits={"EdtApp.threads_per_slot": 1}).start()
job = server.client().submit(sys.argv[2], main="train.py", max_workers=1, framework="PyTorch", progress=False)
while not job.workers():
    time.sleep(0.05)
print(server.pid, *(worker["pid"] for worker in job.workers()), flush=True)
time.sleep(600)
"""


def told(path: Path) -> list[psutil.Process]:
    """The processes that the program has named, once it has."""
    while not path.exists():
        time.sleep(0.02)
    return [psutil.Process(int(pid)) for pid in path.read_text().split()]


def gone(processes: list[psutil.Process]) -> bool:
    """Whether they end; those that are nobody's are reaped."""
    left = psutil.wait_procs(processes, timeout=60)[1]
    for process in left:
        process.kill()
    return not left


@pytest.fixture
def begin(tmp_path):
    """Starts the program, which ends after some seconds."""

    def start(seconds: float, **options: bool) -> LeashedProcess:
        with (tmp_path / "log").open("ab") as log:
            command = [sys.executable, "-c", DETACHES, str(tmp_path / "pids"), str(seconds)]
            return LeashedProcess(command, cwd=tmp_path, env=os.environ, log=log, **options)

    return start


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_when_its_starter_is_gone_nothing_is_left(tmp_path, how):
    pids = tmp_path / "pids"
    with subprocess.Popen([sys.executable, "-c", STARTS, str(pids), DETACHES, "600"], stderr=subprocess.DEVNULL) as one:
        both = told(pids)
        keeper = both[0].parent()
        assert keeper is not None
        one.send_signal(how)
    assert gone([*both, keeper])


def test_what_outlives_it_is_kept_and_the_keeper_ends_with_the_last(tmp_path, begin):
    kept = begin(600)
    program, child = told(tmp_path / "pids")
    kept.send_signal(signal.SIGTERM)
    assert kept.ended(60)
    with suppress(psutil.NoSuchProcess):
        program.wait(180)
    assert child.is_running()
    keeper = child.parent()
    assert keeper is not None
    assert keeper.pid not in (1, os.getpid())
    child.kill()
    assert gone([child, keeper])


def test_without_a_leash_it_goes_on(tmp_path):
    pids = tmp_path / "pids"
    starts = STARTS.replace("log=log)", "log=log, leashed=False)")
    with subprocess.Popen([sys.executable, "-c", starts, str(pids), DETACHES, "600"]) as one:
        program, child = told(pids)
        one.kill()
    assert program.is_running()
    program.kill()
    with suppress(psutil.NoSuchProcess):
        program.wait(180)
    assert child.is_running()
    child.kill()
    assert gone([child])


def test_signals_and_its_end(tmp_path, begin):
    kept = begin(600)
    program, child = told(tmp_path / "pids")
    assert program.pid == kept.pid
    assert not kept.ended()
    kept.send_signal(signal.SIGTERM)
    assert kept.ended(60)
    kept.send_signal(signal.SIGTERM)  # nobody else gets it
    child.kill()
    assert gone([program, child])


def test_when_it_is_let_go_nothing_of_it_is_left_and_others_go_on(tmp_path, begin):
    (tmp_path / "other").mkdir()
    kept = begin(0.1)
    program, child = told(tmp_path / "pids")
    (tmp_path / "pids").unlink()
    other = begin(600)
    both = told(tmp_path / "pids")
    assert kept.ended(60)
    assert not kept.all_ended()
    assert kept.let_go(60)
    assert not child.is_running()
    assert not program.is_running()
    assert not other.ended()
    assert all(process.is_running() for process in both)
    assert other.let_go(60)
    assert other.let_go(0)  # nothing more happens


def test_one_that_nobody_holds_any_more_goes_on(tmp_path, begin):
    begin(600)
    gc.collect()
    program, child = told(tmp_path / "pids")
    assert program.is_running()
    program.kill()
    child.kill()


def test_a_program_that_is_none_says_so_in_its_log(tmp_path):
    with (tmp_path / "log").open("ab") as log:
        assert LeashedProcess([str(tmp_path / "none")], cwd=tmp_path, env=os.environ, log=log).ended(60)
    assert "No such file or directory" in (tmp_path / "log").read_text()


def test_a_server_and_its_jobs_are_gone_when_its_test_is_killed(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import time\ntime.sleep(600)\n")
    command = [sys.executable, "-c", SERVES, str(tmp_path / "server"), str(tmp_path / "code")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        named = [psutil.Process(int(pid)) for pid in test.stdout.readline().split()]
        assert len(named) == 2
        keeper = named[0].parent()
        assert keeper is not None
        everything = keeper.children(recursive=True)
        assert set(named) < set(everything)  # the job's supervisor is among them
        test.kill()
    assert gone([*everything, keeper])
