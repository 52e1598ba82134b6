"""Memory of one process read by another: found by its address alone, and gone with those who map it."""

import dataclasses
import json
import os

import pytest
import torch

from edt_sdk.training.exchange.memory_window import Address, View, Window, open_window


@pytest.fixture
def child():
    """Runs a function in a forked process; its exit code is the function's answer."""

    def run(function):
        pid = os.fork()
        if not pid:
            os._exit(int(function()))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return run


def test_another_process_sees_what_is_written(child):
    window = Window()
    start, memory = window.allocate(10_000)
    assert memory.numel() == 10_000
    assert not memory.any()
    memory[9_999] = 7
    window.board[5] = start

    def look():
        view = View(window.address)
        theirs = view.memory(int(view.board[5]), 10_000)
        return int(theirs[9_999]) == 7 and not theirs[:9_999].any()

    assert child(look) == 1


def test_memory_outlives_its_owner_for_those_who_map_it():
    reading, writing = os.pipe()
    done, end = os.pipe()
    pid = os.fork()
    if not pid:
        window = Window()
        window.board[1] = 42
        os.write(writing, json.dumps(dataclasses.astuple(window.address)).encode())
        os.read(done, 1)
        os._exit(0)
    address = Address(*json.loads(os.read(reading, 1000)))
    view = View(address)
    os.write(end, b"x")
    os.waitpid(pid, 0)
    assert int(view.board[1]) == 42
    with pytest.raises(OSError, match="No such file"):
        View(address)
    for descriptor in (reading, writing, done, end):
        os.close(descriptor)


def test_an_address_that_means_something_else_is_refused(tmp_path):
    window = Window()
    address = window.address
    with pytest.raises(OSError, match="another window"):
        View(Address(address.pid, address.descriptor, address.token + 1))
    with open(tmp_path / "file", "w+b") as file, pytest.raises(OSError, match="no window"):
        View(Address(address.pid, file.fileno(), address.token))


def test_vectors_start_on_a_page_and_stay_when_more_is_needed():
    window = Window()
    first = window.allocate(100)[1]
    first.fill_(1)
    second = window.allocate(1 << 20)[1]
    assert first.data_ptr() % 4096 == second.data_ptr() % 4096 == 0
    assert not second.any()
    assert bool(torch.all(first == 1))


def test_descriptors_are_given_back():
    window = Window()
    window.allocate(1 << 20)
    descriptors = len(os.listdir("/proc/self/fd"))
    del window
    assert len(os.listdir("/proc/self/fd")) == descriptors - 2  # the window's, and that of the notice board's mapping


def test_a_system_that_forbids_it_has_none(monkeypatch):
    def forbidden(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    assert open_window() is None
