"""The job's folder in memory: private, found again, gone with the job."""

import os
import uuid

import pytest

from edt_server.supervisor.memory import SHARED_MEMORY, memory_folder, remove_memory_folder


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
    assert os.listdir(folder) == ["state"]
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
