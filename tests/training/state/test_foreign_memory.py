"""Memory of another process read where it lies; whoever is not the one that was meant, or is gone, is found out."""

from __future__ import annotations

import dataclasses
import os
import pickle
import signal

import pytest
import torch

from edt_sdk.training.exchange.peer_errors import PeerLost, is_lost_peer
from edt_sdk.training.state import foreign_memory
from edt_sdk.training.state.foreign_memory import MemoryLocation, MemoryReader, SharedTensors


class Owner:
    """A process that shows tensors until it is told to end."""

    def __init__(self, *sizes: int) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            shown = SharedTensors([torch.arange(size) % 251 for size in sizes])
            os.write(writing, pickle.dumps(shown.location))
            signal.pause()
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            self.location: MemoryLocation = pickle.loads(pipe.read1(10_000))

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


@pytest.fixture
def owner():
    owners = []

    def make(*sizes):
        owners.append(Owner(*sizes))
        return owners[-1]

    yield make
    for one in owners:
        one.end()


@pytest.mark.parametrize("sizes", [(1,), (10, 3_000_000, 1), (foreign_memory._PIECE // 8,)])
def test_what_is_shown_is_read_bit_for_bit(owner, sizes):
    location = owner(*sizes).location
    found = [torch.full((size,), -1) for size in sizes]
    MemoryReader(location).read(found)
    for tensor, size in zip(found, sizes, strict=True):
        assert torch.equal(tensor, torch.arange(size) % 251)


def test_another_process_than_the_one_that_was_meant_is_found_out(owner):
    location = owner(10).location
    with pytest.raises(OSError, match="another one"):
        MemoryReader(dataclasses.replace(location, token=location.token + 1))
    with pytest.raises(OSError, match="Bad address"):
        MemoryReader(dataclasses.replace(location, mark=8))


def test_one_that_is_gone_before_cannot_be_read(owner):
    one = owner(10)
    one.end()
    with pytest.raises(OSError, match="No such process"):
        MemoryReader(one.location)


def test_one_that_dies_meanwhile_is_a_lost_member(owner):
    one = owner(10)
    reader = MemoryReader(one.location)
    one.end()
    with pytest.raises(PeerLost) as caught:
        reader.read([torch.empty(10, dtype=torch.int64)])
    assert is_lost_peer(caught.value)


def test_one_whose_number_is_another_processs_by_the_end_is_a_lost_member(owner):
    one = owner(10)
    reader = MemoryReader(one.location)
    reader._location = dataclasses.replace(one.location, token=one.location.token + 1)
    with pytest.raises(PeerLost, match="another one"):
        reader.read([torch.empty(10, dtype=torch.int64)])


def test_a_system_without_the_call_says_so(owner, monkeypatch):
    def missing():
        raise OSError("this system cannot read another process's memory")

    monkeypatch.setattr(foreign_memory, "_call", missing)
    with pytest.raises(OSError, match="cannot read"):
        MemoryReader(owner(10).location)
