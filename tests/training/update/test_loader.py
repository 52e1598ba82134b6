"""Batches by key: the same bits from any process, plans that change, errors that name the sample."""

import ctypes
import os
import random
import signal
import socket
import time
import traceback

import numpy as np
import pytest
import torch
from torch.utils.data import get_worker_info

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.sampling.order import TEST, TRAIN, BatchKey, Order
from edt_sdk.training.update.loader import ShardLoader
from tests.training.numeric_job import steps_of

PR_GET_PDEATHSIG = 2


class Augmented:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        noise = random.random() + np.random.rand() + torch.rand(3, 5)
        return {"x": noise + index, "pair": (np.float32(index), [index])}, index % 7


class Where:
    """Tells who loads, and what was asked for."""

    def __getitem__(self, index):
        info = get_worker_info()
        return index, -1 if info is None else os.getpid()


def key(shard, indices, *, epoch=0, step=0, kind=TRAIN):
    return BatchKey(kind, epoch, step, shard, tuple(indices))


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value.dtype, tuple(value.shape), value.numpy().tobytes()]
    if isinstance(value, dict):
        return [[name, flat(item)] for name, item in value.items()]
    return [flat(item) for item in value]


ORDER = Order(100, (6, 6, 6), 6, 3, 2)


def run(loader_workers, collate=None):
    keys = [k for step in steps_of(ORDER)[:4] for k in ORDER.keys(step, range(3))]
    tests = [key(0, range(5), kind=TEST, epoch=epoch) for epoch in range(2)]
    with ShardLoader(Augmented(), collate, 5, loader_workers, test_dataset=Augmented()) as loader:
        loader.plan([*keys, *tests])
        return [(flat(batch.data), batch.indices.tolist()) for batch in map(loader.take, [*keys, *tests])]


def with_noise(items):
    return torch.tensor([label for _, label in items]) + torch.rand(1), torch.from_numpy(np.random.rand(3))


@pytest.mark.parametrize("collate", [None, with_noise])
def test_loader_processes_give_the_same_bits(collate):
    torch.set_num_threads(2)
    expected = run(0, collate)
    assert torch.get_num_threads() == 2
    assert run(1, collate) == expected
    assert run(3, collate) == expected
    assert [indices for _, indices in expected[:3]] == [s.tolist() for s in ORDER.shards(0, 0)]
    # Each validation measures the same, each epoch of training is augmented anew.
    assert expected[-1] == expected[-2]


def test_augmentation_follows_seed_epoch_step_and_shard():
    with ShardLoader(Augmented(), None, 5) as loader:
        first = loader.take(key(0, [3, 3])).data[0]["x"]
        assert not torch.equal(first[0], first[1])
        others = [key(1, [3, 3]), key(0, [3, 3], step=9), key(0, [3, 3], epoch=1)]
        assert not any(torch.equal(loader.take(other).data[0]["x"], first) for other in others)
        assert torch.equal(loader.take(key(0, [3, 3])).data[0]["x"], first)
    with ShardLoader(Augmented(), None, 6) as loader:
        assert not torch.equal(loader.take(key(0, [3, 3])).data[0]["x"], first)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_tensors_start_on_64_bytes(loader_workers):
    def collate(items):
        memory = np.zeros(20, dtype=np.float32)
        return torch.from_numpy(memory[3:]), [torch.zeros(8)[1:]]

    with ShardLoader(Where(), collate, 0, loader_workers) as loader:
        for shard in range(6):
            batch = loader.take(key(shard, [1]))
            assert batch.data[0].data_ptr() % 64 == 0
            assert batch.data[1][0].data_ptr() % 64 == 0


def pids(batch):
    return set(batch.data[1].tolist())


def test_one_set_of_processes_lives_through_all_plans():
    with ShardLoader(Where(), None, 0, 2) as loader:
        seen = set()
        for step in range(4):
            keys = [key(shard, [shard, 10 + shard], step=step) for shard in range(5)]
            loader.plan(iter(keys))
            for k in keys:
                batch = loader.take(k)
                assert batch.indices.tolist() == list(k.indices)
                seen |= pids(batch)
        assert len(seen) == 2
    for pid in seen:
        assert not os.path.exists(f"/proc/{pid}")


class Counting:
    """Every load leaves a line in a file."""

    def __init__(self, path):
        self.path = path

    def __getitem__(self, index):
        with open(self.path, "a") as file:
            file.write(f"{index}\n")
        return index

    def counts(self):
        with open(self.path) as file:
            loaded = file.read().split()
        return {int(index): loaded.count(index) for index in set(loaded)}


def test_batches_under_way_that_are_still_wanted_are_kept(tmp_path):
    data = Counting(tmp_path / "loaded")
    steps = [[key(shard, [4 * step + shard], step=step) for shard in range(4)] for step in range(6)]
    with ShardLoader(data, None, 0, 2) as loader:
        # Alone, then with half of each step, then alone again.
        loader.plan([k for step in steps for k in step])
        for k in steps[0]:
            assert loader.take(k).data.tolist() == list(k.indices)
        loader.plan([k for step in steps[1:] for k in step[:2]])
        for k in steps[1][:2] + steps[2][:2]:
            assert loader.take(k).data.tolist() == list(k.indices)
        loader.plan([k for step in steps[3:] for k in step])
        for k in (k for step in steps[3:] for k in step):
            assert loader.take(k).data.tolist() == list(k.indices)
    counts = data.counts()
    assert set(counts.values()) == {1}  # nothing was loaded twice
    wanted = {*range(4), 4, 5, 8, 9, *range(12, 24)}
    assert wanted <= set(counts)
    assert len(set(counts) - wanted) <= 8  # what had been under way: 2 batches ahead in 2 processes, twice


def test_a_redone_step_and_unplanned_keys_are_loaded_too():
    with ShardLoader(Where(), None, 0, 1) as loader:
        keys = [key(shard, [shard]) for shard in range(6)]
        loader.plan(keys)
        assert [loader.take(k).data[0].item() for k in keys[:4]] == [0, 1, 2, 3]
        loader.plan(keys[2:])
        assert [loader.take(k).data[0].item() for k in keys[2:]] == [2, 3, 4, 5]
        assert [loader.take(k).data[0].item() for k in (keys[1], keys[5], keys[0])] == [1, 5, 0]
        # Out of order, while planned ones are under way.
        loader.plan(keys)
        assert [loader.take(keys[n]).data[0].item() for n in (3, 0, 5, 1, 2, 4)] == [3, 0, 5, 1, 2, 4]


def test_a_long_plan_is_read_as_needed():
    read = []

    def endless():
        step = 0
        while True:
            read.append(step)
            yield key(0, [step % 50], step=step)
            step += 1

    with ShardLoader(Where(), None, 0, 2) as loader:
        loader.plan(endless())
        assert [loader.take(key(0, [n], step=n)).data[0].item() for n in range(5)] == list(range(5))
        assert len(read) < 200


class Broken:
    def __getitem__(self, index):
        if index == 17:
            return self.deep(index)
        return index

    def deep(self, index):
        raise KeyError(f"no file for {index}")


@pytest.mark.parametrize("loader_workers", [0, 1])
def test_an_error_of_the_data_set_names_the_sample_and_shows_its_traceback(loader_workers):
    with ShardLoader(Broken(), None, 0, loader_workers) as loader:
        loader.plan([key(0, [1, 17]), key(1, [2])])
        with pytest.raises(
            Unprocessable, match=r"train data set raised KeyError.*no file for 17.* for sample 17"
        ) as caught:
            loader.take(key(0, [1, 17]))
        assert caught.value.ids["sample"] == 17
        text = "".join(traceback.format_exception(caught.value))
        assert "in deep" in text
        assert "raise KeyError" in text
        # The loader lives on: after a change of membership the batch may be somebody else's.
        assert loader.take(key(1, [2])).data.tolist() == [2]


@pytest.mark.parametrize("loader_workers", [0, 1])
def test_an_error_of_the_collate_function_is_told_as_such(loader_workers):
    def collate(items):
        raise RuntimeError("ragged")

    with ShardLoader(Where(), collate, 0, loader_workers) as loader, pytest.raises(Unprocessable) as caught:
        loader.take(key(0, [4, 5]))
    assert "collate function raised RuntimeError: ragged" in str(caught.value)


class Descriptors:
    def __init__(self, watched):
        self.watched = watched

    def __getitem__(self, index):
        return [os.readlink(f"/proc/self/fd/{fd}") for fd in self.watched]


def test_loader_processes_keep_no_sockets_open():
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    theirs, _ = listener.accept()
    data = Descriptors([listener.fileno(), ours.fileno(), theirs.fileno()])
    with ShardLoader(data, lambda items: items, 0, 1) as loader:
        assert loader.take(key(0, [0])).data == [["/dev/null"] * 3]
        # The other end sees us go, although the loader process lives.
        ours.close()
        theirs.settimeout(30)
        assert theirs.recv(1) == b""
    theirs.close()
    listener.close()


def loader_of(rank, port, path):
    """Make a loader, leave the numbers of its processes in a file, and be killed."""
    loader = ShardLoader(Where(), None, 0, 2)
    found = set().union(*(pids(loader.take(key(shard, [0]))) for shard in range(4)))
    path.write_text(" ".join(map(str, found)))
    os.kill(os.getpid(), signal.SIGKILL)


def test_loader_processes_die_with_their_worker(processes, tmp_path):
    assert processes(1, loader_of, tmp_path / "pids", may_die=True) == [None]
    left = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    assert len(left) == 2
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in left):
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Conditions:
    """Under what a batch is loaded: intra-op threads, and the signal at the death of the parent."""

    def __getitem__(self, index):
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number))
        return torch.get_num_threads(), number.value


@pytest.mark.parametrize(("loader_workers", "number"), [(0, 0), (1, signal.SIGKILL)])
def test_conditions_of_loading(loader_workers, number):
    torch.set_num_threads(2)
    with ShardLoader(Conditions(), None, 0, loader_workers) as loader:
        assert [int(x) for x in loader.take(key(0, [0])).data] == [1, number]
    assert torch.get_num_threads() == 2


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def take_until(loader, deadline):
    step = 0
    while time.monotonic() < deadline:
        loader.take(key(0, [1], step=step))
        step += 1


def test_a_loader_process_that_is_killed_raises_instead_of_hanging():
    with ShardLoader(Where(), None, 0, 1) as loader:
        (pid,) = pids(loader.take(key(0, [1])))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            take_until(loader, time.monotonic() + 60)


def test_a_validation_may_have_a_collate_function_of_its_own():
    def doubled(items):
        return torch.stack(items) * 2

    data = [torch.tensor([float(number)]) for number in range(4)]
    with ShardLoader(data, doubled, test_dataset=data, test_collate=torch.stack) as loader:
        assert loader.take(BatchKey(TEST, 0, 0, 0, (1, 2))).data.tolist() == [[1.0], [2.0]]
        assert loader.take(BatchKey(TRAIN, 0, 0, 0, (1, 2))).data.tolist() == [[2.0], [4.0]]
