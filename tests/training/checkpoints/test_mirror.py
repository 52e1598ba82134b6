"""A copy in memory is whole or not there, whenever its writer is killed; and costs what it may cost."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.training.checkpoints.mirror import CopyInterval, Mirror, size_of
from edt_sdk.training.state.state import State

ELEMENTS = 200_000


@pytest.fixture
def folder() -> Any:
    """In memory, as in a job."""
    place = Path(
        "/dev/shm" if os.path.isdir("/dev/shm") else "/tmp", f"edt-test-{os.getpid()}-{random.getrandbits(40)}"
    )
    place.mkdir()
    yield place
    for path in place.iterdir():
        path.unlink()
    place.rmdir()


def made_of(number: int, elements: int = ELEMENTS) -> State:
    """A state that says in every element which one it is; long enough to be killed in."""
    return State(
        {"a": torch.full((elements,), float(number)), "b": torch.full((7, 3), number, dtype=torch.int64)},
        str(number).encode(),
        [torch.full((elements // 2,), number, dtype=torch.int32)],
    )


def check(state: State, number: int) -> None:
    assert state.rest == str(number).encode()
    for tensor in (*state.own.values(), *state.tensors):
        assert tensor.unique().tolist() == [number]


def write_forever(folder: Path, first: int, pipe: Any) -> None:
    torch.set_num_threads(1)
    mirror = Mirror(folder, 0)
    number = first
    while True:
        mirror.put(made_of(number), number, number)
        # What was told was whole before.
        pipe.send(number)
        number += 1


def test_a_writer_may_be_killed_at_any_instant(folder: Path) -> None:
    chance = random.Random(3)
    context = multiprocessing.get_context("fork")
    known = -1
    torn = 0
    for _ in range(12):
        ours, theirs = context.Pipe(duplex=False)
        writer = context.Process(target=write_forever, args=(folder, known + 1, theirs))
        writer.start()
        theirs.close()
        told = known
        for _ in range(chance.randint(1, 6)):
            assert ours.poll(60)
            told = ours.recv()
        # Somewhere in the next copy, or between two.
        threading.Event().wait(chance.random() * 2e-3)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        while True:
            try:
                told = ours.recv()
            except EOFError:
                break
        reader = Mirror(folder, 0)
        slots = sorted(reader.slots(), key=lambda slot: slot.position)
        torn += len(slots) == 1
        assert slots
        # At least what was told, at most the one behind it, which was whole but not told any more.
        assert told <= slots[-1].position <= told + 1
        for slot in slots:
            check(reader.load(slot), slot.position)
            assert slot.updates == slot.position
        known = slots[-1].position
    assert len(list(folder.iterdir())) == 2


def test_every_step_of_a_copy_leaves_the_other_slot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(folder, 0)
    mirror.put(made_of(1), 1, 1)
    mirror.put(made_of(2), 2, 2)
    for part in range(1000):
        calls = 0
        whole = torch.Tensor.copy_

        def dies(self: torch.Tensor, *arguments: Any) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if calls > part:  # noqa: B023  # used before the next round
                raise KeyboardInterrupt
            return whole(self, *arguments)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "copy_", dies)
            try:
                mirror.put(made_of(3), 3, 3)
                break
            except KeyboardInterrupt:
                pass
        (slot,) = Mirror(folder, 0).slots()
        assert slot.position == 2
        check(Mirror(folder, 0).load(slot), 2)
    assert part > 2
    assert sorted(slot.position for slot in mirror.slots()) == [2, 3]


def test_a_state_that_grows_or_is_another_ones_is_no_trouble(folder: Path) -> None:
    mirror, other = Mirror(folder, 0), Mirror(folder, 0)
    for number, elements in enumerate((10, 1000, 100_000, 10, 500_000)):
        (mirror if number % 2 else other).put(made_of(number, elements), number, number)
        newest = max(other.slots(), key=lambda slot: slot.position)
        assert newest.position == number
        check(mirror.load(newest), number)
    assert Mirror(folder, 1).slots() == []
    mirror.remove()
    # Its mapping is of a file that has no name any more.
    other.put(made_of(9), 9, 9)
    assert [slot.position for slot in mirror.slots()] == [9]
    other.close()


def test_no_room_switches_it_off_with_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.statvfs(folder)
    state = made_of(1)
    blocks = 4 * size_of(state) // real.f_frsize - 1
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((*real[:4], blocks, *real[5:])))
    mirror = Mirror(folder, 0, CopyInterval(clock=iter(range(10_000)).__next__))
    assert [mirror.copy_if_due(lambda: state, n, n) for n in range(200)] == [False] * 200
    (line,) = caplog.messages
    assert "a quarter" in line
    assert list(folder.iterdir()) == []


def test_without_a_folder_nothing_is_captured(tmp_path: Path) -> None:
    def never() -> State:
        raise AssertionError

    for folder in (None, tmp_path / "missing"):
        mirror = Mirror(folder, 0, CopyInterval(clock=iter(range(10_000)).__next__))
        assert not any(mirror.copy_if_due(never, n, n) for n in range(300))
        assert mirror.slots() == []


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 0.5)), max_size=60), st.floats(0.001, 0.5))
def test_the_cost_stays_below_its_share_of_the_time(steps: list[tuple[float, float]], share: float) -> None:
    now = 0.0
    pace = CopyInterval(share, lambda: now)
    spent = last = 0.0
    for idle, cost in steps:
        now += idle
        if pace.due:
            now += cost
            spent, last = spent + cost, cost
            pace.took(cost)
    # All but the newest has been waited for.
    assert spent - last <= share * now + 1e-9
    now += last / share + 1e-6
    assert pace.due


def test_a_folder_that_goes_away_switches_it_off_with_one_line(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = folder / "gone"
    gone.mkdir()
    mirror = Mirror(gone, 0, CopyInterval(clock=iter(range(10_000)).__next__))
    gone.rmdir()
    state = made_of(1, 10)
    assert not any(mirror.copy_if_due(lambda: state, n, n) for n in range(50))
    assert len(caplog.messages) == 1


def test_what_is_owed_stays_until_it_is_settled(folder: Path) -> None:
    mirror = Mirror(folder, 0)
    mirror.put(made_of(1), 1, 1)
    one = mirror.pin(made_of(2), 2, 2, epoch=1)
    assert one is not None
    one.release()
    for number in (3, 4, 5):
        assert mirror.put(made_of(number), number, number)
    assert [(slot.position, slot.epoch) for slot in mirror.pinned()] == [(2, 1)]
    check(Mirror(folder, 0).load(mirror.pinned()[0]), 2)
    two = mirror.pin(made_of(6), 6, 6, epoch=2)
    assert two is not None
    two.release()
    assert not mirror.put(made_of(7), 7, 7)
    assert not mirror.pin(made_of(7), 7, 7, epoch=3)
    Mirror(folder, 0).unpin(1)
    assert [slot.position for slot in mirror.pinned()] == [6]
    assert mirror.put(made_of(8), 8, 8)
    assert sorted(slot.position for slot in mirror.slots()) == [6, 8]
    mirror.remove()
    mirror.unpin(2)
