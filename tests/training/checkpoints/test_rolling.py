"""What is kept comes back bit for bit, or is passed over; and nothing that happens to it ends a training."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import random
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from edt_sdk.schemas.errors import NotFound, Unprocessable
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.saved import SIZE, read_header
from edt_sdk.training.checkpoints import ckpt, rolling
from edt_sdk.training.checkpoints import model_files as checkpoint
from edt_sdk.training.checkpoints.rolling import Keeper, LoadedState
from edt_sdk.training.records import full_disk
from edt_sdk.training.state import state
from tests.training.states import OPTIMIZERS, bits, capture, trained
from tests.waiting import until

NEVER = 1e9


@pytest.fixture
def paths(tmp_path: Path) -> JobPaths:
    paths = JobPaths(tmp_path, "ann", "job-1")
    paths.job_dir.mkdir(parents=True)
    return paths


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    return folder


def keeper(paths: JobPaths, memory: Path | None = None, interval: float = NEVER, training: int = 0) -> Keeper:
    return Keeper(paths, training, memory=memory, interval=interval)


def restored(saved: LoadedState | None, optimizer: str) -> list[object]:
    assert saved is not None
    model, own = trained(optimizer, steps=1)
    state.restore(saved.state, model, own)
    return bits(model, own)


def names(paths: JobPaths, training: int = 0) -> list[str]:
    return sorted(path.name for path in paths.checkpoints(training).iterdir())


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """As if the disk had no room for files above `size` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_bit_comes_back_whichever_way_it_was_kept(paths: JobPaths, memory: Path, optimizer: str) -> None:
    model, own = trained(optimizer)
    expected = bits(model, own)
    keep = keeper(paths, memory, interval=0)
    assert keep.newest() is None
    take = capture(model, own, {"position": 7})

    keep.save(take, 5, 4)
    saved = keep.newest()
    assert saved is not None
    assert (saved.name, saved.position, saved.updates) == ("memory", 5, 4)
    assert restored(saved, optimizer) == expected
    saved = keeper(paths, None, interval=0).newest()
    assert saved is not None
    assert (saved.name, saved.position, saved.updates) == ("update-4", 5, 4)
    assert restored(saved, optimizer) == expected

    keep.committed(take, 9, 8)
    saved = keep.newest()
    assert saved is not None
    assert (saved.name, saved.position, saved.updates) == ("memory", 9, 8)
    assert restored(saved, optimizer) == expected
    again, other = trained(optimizer, steps=1)
    assert state.restore(saved.state, again, other) == {"position": 7}

    keep._mirror.remove()
    assert (keep.newest() or saved).name == "update-8"
    assert restored(keep.newest(), optimizer) == expected

    keep.epoch(1, take, 11, 10, model, own)
    saved = keep.newest()
    assert saved is not None
    assert (saved.name, saved.position, saved.updates) == ("memory", 11, 10)
    assert restored(saved, optimizer) == expected
    keep._mirror.remove()
    assert (keep.newest() or saved).name == "epoch-1"
    assert restored(keep.newest(), optimizer) == expected
    keep.close()


@pytest.mark.parametrize("odd", range(4))
def test_files_are_the_same_with_and_without_a_copy_in_memory(tmp_path: Path, memory: Path, odd: int) -> None:
    model, own = trained("adam")
    # Too large for the head of a copy, which then has any length.
    model.register_buffer("wide", torch.randn(20_000))
    model.register_buffer("odd", torch.zeros(70_001 + odd, dtype=torch.uint8))
    written = []
    for place in (memory, None):
        where = JobPaths(tmp_path / f"{place is None}", "ann", "job-1")
        where.job_dir.mkdir(parents=True)
        keep = keeper(where, place, interval=0)
        keep.epoch(1, capture(model, own), 5, 4, model, own)
        keep.close()
        files = [path for path in (tmp_path / f"{place is None}").rglob("*") if path.is_file()]
        assert len(files) >= 3
        written.append({path.name: path.stat().st_size for path in files})
        _, found = ckpt.read(where.checkpoints(0) / "epoch-1.ckpt", 0)
        assert torch.equal(found.own["wide"], model.wide)
        weights = torch.load(where.train_dir / "model_epoch_1.pth", weights_only=True)
        assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert written[0] == written[1]


def test_what_is_kept_is_the_moment_it_was_taken(paths: JobPaths, memory: Path) -> None:
    model, own = trained()
    expected = bits(model, own)
    keep = keeper(paths, memory, interval=0)
    keep.epoch(1, capture(model, own), 5, 4, model, own)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    keep.close()
    assert restored(keeper(paths).newest(), "momentum") == expected
    weights = torch.load(paths.train_dir / "model_epoch_1.pth", weights_only=True)
    assert weights["head.weight"].count_nonzero()


def test_the_pth_pair_is_the_one_that_checkpoint_save_writes(paths: JobPaths, tmp_path: Path) -> None:
    model, own = trained("adam")
    keep = keeper(paths)
    keep.epoch(3, capture(model, own), 5, 4, model, own)
    keep.close()
    checkpoint.save(tmp_path / "plain", 3, model, own)
    files = sorted((tmp_path / "plain").iterdir())
    assert len(files) == 2
    for file in files:
        assert (paths.train_dir / file.name).read_bytes() == file.read_bytes()


def wait_for(gate: threading.Event) -> None:
    assert gate.wait(180)


@pytest.fixture
def held(paths: JobPaths, memory: Path) -> Iterator[None]:
    """What a writer that is killed now leaves: epoch 3 in memory, none of its files, and newer states."""
    gate = threading.Event()
    keep = keeper(paths, memory)
    model, own = trained("adam", steps=3)
    keep._start("held", keep._free.get(), lambda: wait_for(gate))
    keep.epoch(3, capture(model, own), 30, 24, model, own)
    for position in (31, 32, 33):
        later, other = trained("adam", steps=position)
        keep._mirror.put(capture(later, other)(), position, position)
    yield
    gate.set()
    keep.close()


def test_files_of_an_epoch_that_a_writer_owed_are_written_by_the_next(
    held: None, paths: JobPaths, memory: Path
) -> None:
    after = keeper(paths, memory)
    assert not after.has_epoch(3)
    assert (after.newest() or LoadedState).name == "memory"
    after.write_missing_epochs(33, lambda: trained("adam", steps=1))
    assert after.has_epoch(3)
    expected, own = trained("adam", steps=3)
    checkpoint.save(memory.parent / "plain", 3, expected, own)
    for name in ("model_epoch_3.pth", "model_epoch_3_optimizer_state.pth"):
        assert (paths.train_dir / name).read_bytes() == (memory.parent / "plain" / name).read_bytes()
    header = read_header(paths.checkpoints(0) / "epoch-3.ckpt")
    assert (header.position, header.updates, header.epoch) == (30, 24, 3)
    assert after._mirror.pinned() == []


def test_what_is_done_again_is_not_paid_for(held: None, paths: JobPaths, memory: Path) -> None:
    after = keeper(paths, memory)
    after.write_missing_epochs(29, lambda: pytest.fail("no model is wanted"))
    assert not after.has_epoch(3)
    assert after._mirror.pinned() == []


def test_the_newest_two_rolling_ones_and_every_epoch_are_kept(paths: JobPaths) -> None:
    model, own = trained()
    keep = keeper(paths)
    for number in (9, 10, 100):
        keep.save(capture(model, own), number, number)
        keep.epoch(number, capture(model, own), number, number, model, own)
    keep.close()
    assert names(paths) == ["epoch-10.ckpt", "epoch-100.ckpt", "epoch-9.ckpt", "update-10.ckpt", "update-100.ckpt"]
    header = read_header(paths.checkpoints(0) / "epoch-9.ckpt")
    assert (header.training, header.position, header.updates, header.epoch) == (0, 9, 9, 9)


def test_nothing_is_captured_that_is_not_due(paths: JobPaths) -> None:
    def never() -> state.State:
        raise AssertionError

    keep = keeper(paths)
    for update in range(100):
        keep.committed(never, update, update)
    keep.close()
    assert not paths.checkpoints(0).exists()


def test_the_end_leaves_the_final_files_and_the_epochs(paths: JobPaths, memory: Path) -> None:
    model, own = trained()
    keep = keeper(paths, memory, interval=0)
    keep.committed(capture(model, own), 3, 2)
    keep.epoch(1, capture(model, own), 4, 3, model, own)
    for _ in range(2):  # a rank 0 may die behind it, and the next one does it again
        keep.final(model, own)
        final = paths.train_dir / "model_epoch_final.pth"
        assert paths.final(0).samefile(final)
        assert final.stat().st_nlink == 2
        assert names(paths) == ["epoch-1.ckpt"]
        assert list(memory.iterdir()) == []
    keep.close()
    assert [path.name for path in paths.job_dir.iterdir()] == [paths.final(0).name]


def damages(data: bytes) -> Iterator[bytes]:
    """Every kind of damage: cut at and around each border, a byte changed in header, checksum, tensors."""
    length = len(data)
    for cut in (0, 1, SIZE // 2, SIZE - 1, SIZE, SIZE + 1, length // 2, length - 1):
        yield data[:cut]
    for place in (0, 5, data.index(b"position") + 11, data.index(b"sha256") + 12, SIZE - 2, SIZE - 1, SIZE, SIZE + 40):
        yield data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    for place in range(SIZE, length, max(1, length // 20)):
        yield data[:place] + bytes([data[place] ^ 0x80]) + data[place + 1 :]
    yield data + b"\0"
    yield bytes(length)


def test_a_damaged_file_is_named_set_aside_and_passed_over(paths: JobPaths, caplog: pytest.LogCaptureFixture) -> None:
    model, own = trained()
    keep = keeper(paths)
    keep.save(capture(model, own), 3, 2)
    keep.save(capture(model, own), 4, 3)
    newer = paths.checkpoints(0) / "update-3.ckpt"
    whole = newer.read_bytes()
    for damaged in damages(whole):
        caplog.clear()
        newer.write_bytes(damaged)
        saved = keep.newest()
        assert saved is not None
        assert saved.name == "update-2"
        (line,) = caplog.messages
        assert f"{newer} is damaged (" in line
        assert line.endswith(") and was skipped.")
        assert newer.with_name("update-3.ckpt.damaged").read_bytes() == damaged
    newer.write_bytes(whole)
    assert (keep.newest() or saved).name == "update-3"


def test_a_file_of_another_training_is_not_taken(paths: JobPaths, caplog: pytest.LogCaptureFixture) -> None:
    model, own = trained()
    keeper(paths, training=1).save(capture(model, own), 3, 2)
    os.rename(paths.checkpoints(1), paths.checkpoints(0))
    assert keeper(paths).newest() is None
    assert "it belongs to training 1" in caplog.text


def test_a_full_disk_is_a_line_in_the_log_and_the_next_try_works(
    paths: JobPaths, caplog: pytest.LogCaptureFixture
) -> None:
    model, own = trained()
    keep = keeper(paths, interval=0)
    keep.save(capture(model, own), 1, 1)
    size = (paths.checkpoints(0) / "update-1.ckpt").stat().st_size
    for limit in (SIZE // 2, SIZE + 10, size // 2, size - 1):
        caplog.clear()
        with file_size_limit(limit):
            keep.committed(capture(model, own), 2, 2)
            keep._wait()
            keep.epoch(1, capture(model, own), 3, 2, model, own)
            keep._wait()
            with pytest.raises(OSError, match="too large"):
                keep.save(capture(model, own), 4, 4)
        first, second = caplog.records
        assert (first.levelno, first.name) == (logging.ERROR, "edt_sdk.training.checkpoints.rolling")
        assert "update-2 was not written" in first.getMessage()
        assert "too large" in first.getMessage()
        assert "epoch-1 was not written" in second.getMessage()
        assert names(paths) == ["update-1.ckpt"]
    with file_size_limit(size // 4), pytest.raises(OSError, match="too large"):
        keep.final(model, own)
    assert names(paths) == ["update-1.ckpt"]
    keep.committed(capture(model, own), 2, 2)
    keep.close()
    assert names(paths) == ["update-1.ckpt", "update-2.ckpt"]


def test_the_files_of_an_epoch_wait_for_room_until_the_next_are_due(
    paths: JobPaths, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, own = trained()
    keep = keeper(paths)
    full = threading.Event()
    write = rolling.ckpt.write

    def limited(path: Path, *arguments: Any, **more: Any) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, *arguments, **more)

    monkeypatch.setattr(rolling.ckpt, "write", limited)
    monkeypatch.setattr(full_disk, "PAUSE", 0.01)
    full.set()
    keep.epoch(1, capture(model, own), 1, 1, model, own)
    until(lambda: "waits for room" in caplog.text, "the wait")
    assert not paths.checkpoints(0).exists()
    full.clear()
    until(lambda: paths.checkpoints(0).exists() and names(paths) == ["epoch-1.ckpt"], "its files")
    full.set()
    keep.epoch(2, capture(model, own), 2, 2, model, own)
    keep.epoch(3, capture(model, own), 3, 3, model, own)
    until(lambda: "epoch-2 was not written" in caplog.text, "the end of its wait")
    full.clear()
    until(lambda: names(paths) == ["epoch-1.ckpt", "epoch-3.ckpt"], "the files of the newer one")
    full.set()
    keep.epoch(4, capture(model, own), 4, 4, model, own)
    keep.close()
    assert "epoch-4 was not written" in caplog.text, "who leaves waits for no room"


def test_what_a_dead_writer_left_is_removed_before_the_next_begins(paths: JobPaths) -> None:
    model, own = trained()
    keep = keeper(paths)
    keep.save(capture(model, own), 1, 1)
    left = paths.checkpoints(0) / ".update-2.ckpt.abcdefg_.tmp"
    left.write_bytes(b"half")
    saved = keeper(paths).newest()
    assert saved is not None
    assert names(paths) == ["update-1.ckpt"]


def write_forever(paths: JobPaths) -> None:
    torch.set_num_threads(1)
    model, own = trained()
    keep = keeper(paths, interval=0)
    number = 1
    while True:
        keep.save(capture(model, own, number), number, number)
        keep.epoch(number, capture(model, own, number), number, number, model, own)
        number += 1


def test_a_writer_may_be_killed_at_any_instant(paths: JobPaths, caplog: pytest.LogCaptureFixture) -> None:
    model, own = trained()
    expected = bits(model, own)
    keeper(paths).save(capture(model, own, 0), 0, 0)
    chance = random.Random(5)
    for _ in range(8):
        before = names(paths)
        writer = multiprocessing.get_context("fork").Process(target=write_forever, args=(paths,))
        writer.start()
        while names(paths) == before:
            threading.Event().wait(1e-3)
        threading.Event().wait(chance.random() * 0.03)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        saved = keeper(paths).newest()
        assert saved is not None
        assert restored(saved, "momentum") == expected
        assert state.restore(saved.state, *trained(steps=1)) == saved.position
        assert not [name for name in names(paths) if not name.endswith(".ckpt")]
        for path in paths.train_dir.glob("*"):
            assert path.suffix == ".pth"
            torch.load(path, weights_only=True)
    assert caplog.messages == []


# --- a person's choice ------------------------------------------------------------------------------------------------


@pytest.fixture
def five(paths: JobPaths, memory: Path) -> Keeper:
    """Epochs 1 to 3, an update beyond, another one in memory; the number of steps tells the states apart."""
    keep = keeper(paths, memory)
    for steps in (1, 2, 3):
        model, own = trained(steps=steps)
        keep.epoch(steps, capture(model, own), 10 * steps, 8 * steps, model, own)
    keep.save(capture(model, own), 35, 26)
    keep._mirror.put(capture(model, own)(), 36, 27)
    assert (keep.newest() or LoadedState).name == "memory"
    return keep


@pytest.mark.parametrize("name", ["epoch-2", "epoch-2.ckpt", "model_epoch_2", "model_epoch_2.pth\n"])
def test_the_one_that_was_asked_for_and_nothing_behind_it(
    five: Keeper, paths: JobPaths, memory: Path, name: str
) -> None:
    paths.resume_from.write_text(name)
    saved = five.newest()
    assert saved is not None
    assert (saved.name, saved.position, saved.updates) == ("epoch-2", 20, 16)
    model, own = trained(steps=2)
    assert restored(saved, "momentum") == bits(model, own)
    assert not paths.resume_from.exists()
    assert names(paths) == ["epoch-1.ckpt", "epoch-2.ckpt", "epoch-3.ckpt.discarded"]
    assert list(memory.iterdir()) == []
    assert (five.newest() or saved).name == "epoch-2"


@pytest.mark.parametrize("name", ["epoch-4", "update-7", "model_epoch_final", "../epoch-1", "", "memory"])
def test_one_that_does_not_exist_is_refused_and_nothing_changes(five: Keeper, paths: JobPaths, name: str) -> None:
    paths.resume_from.write_text(name)
    before = names(paths)
    with pytest.raises(NotFound, match="epoch-1, epoch-2, epoch-3, update-26"):
        five.newest()
    assert names(paths) == before
    assert paths.resume_from.exists()


def test_one_that_is_damaged_is_refused_and_nothing_changes(five: Keeper, paths: JobPaths) -> None:
    paths.resume_from.write_text("epoch-2")
    os.truncate(paths.checkpoints(0) / "epoch-2.ckpt", 1000)
    before = names(paths)
    with pytest.raises(Unprocessable, match=r"epoch-2 is damaged \(1000 of "):
        five.newest()
    assert names(paths) == before
    paths.resume_from.unlink()
    assert (five.newest() or LoadedState).name == "memory"
