"""The job's folder in memory: private, found again, gone with the job, or when nobody is left who would want it."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from edt_server.supervisor.processes.memory import SHARED_MEMORY, memory_folder, remove_memory_folder, sweep


@pytest.fixture
def job():
    name = f"test-{uuid.uuid4().hex}"
    yield name
    remove_memory_folder(str(SHARED_MEMORY / f"edt-{os.getuid()}-{name}"))


def test_it_is_private_and_found_again_and_removed(job):
    folder = memory_folder(job)
    assert folder == f"/dev/shm/edt-{os.getuid()}-{job}"
    assert os.stat(folder).st_mode & 0o777 == 0o700
    with open(f"{folder}/state", "w") as file:
        file.write("x")
    assert memory_folder(job) == folder
    assert sorted(os.listdir(folder)) == ["alive", "state"]
    remove_memory_folder(folder)
    assert not os.path.exists(folder)
    remove_memory_folder(folder)
    remove_memory_folder("")


def test_a_name_that_is_taken_is_not_used(job, tmp_path):
    path = SHARED_MEMORY / f"edt-{os.getuid()}-{job}"
    path.symlink_to(tmp_path)
    assert memory_folder(job) == ""
    path.unlink()
    path.mkdir(mode=0o755)
    assert memory_folder(job) == ""


def test_only_memory_will_do(tmp_path):
    assert memory_folder("x", tmp_path) == ""


HOLD = """
import sys
from edt_server.supervisor.processes.memory import memory_folder
print(memory_folder(sys.argv[1]), flush=True)
sys.stdin.read()
"""


class Holder:
    """A process that has the folder of a job, as a supervisor has."""

    def __init__(self, job: str) -> None:
        command = [sys.executable, "-c", HOLD, job]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.folder = Path(self.process.stdout.readline().strip())
        (self.folder / "training-0.0").touch()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def holder(job):
    made = Holder(job)
    yield made
    made.kill()


def later(folder: Path) -> None:
    """An hour and a bit after it was found unused."""
    then = time.time() - 3700
    os.utime(folder / "unused", (then, then))


def test_what_is_left_behind_is_removed_after_an_hour(holder):
    holder.kill()
    assert holder.folder not in sweep()
    assert (holder.folder / "training-0.0").exists(), "another attempt may want it"
    assert holder.folder not in sweep(), "the hour is not over"
    later(holder.folder)
    assert holder.folder in sweep()
    assert not holder.folder.exists()


def test_never_one_in_use(holder, job):
    (holder.folder / "unused").touch()
    later(holder.folder)
    assert holder.folder not in sweep()
    second = Holder(job)  # the next attempt, while the first one still sees its processes off
    try:
        assert second.folder == holder.folder
        assert not (holder.folder / "unused").exists()
        holder.kill()
        assert holder.folder not in sweep()
        assert not (holder.folder / "unused").exists()
    finally:
        second.kill()


def test_the_hour_begins_anew_with_another_attempt(holder, job):
    holder.kill()
    sweep()
    later(holder.folder)
    Holder(job).kill()
    assert holder.folder not in sweep()
    assert (holder.folder / "training-0.0").exists()


def test_nor_one_that_is_not_ours(job, tmp_path):
    folder = SHARED_MEMORY / f"edt-{os.getuid()}-{job}"
    folder.mkdir(mode=0o700)
    (folder / "unused").touch()
    later(folder)
    assert folder not in sweep(), "without a lock nothing is known about it"
    (folder / "alive").touch()
    folder.chmod(0o755)
    assert folder not in sweep()
    assert sweep(tmp_path) == []
