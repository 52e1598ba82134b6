"""An epoch's files are there afterwards, whenever the one that writes them is killed. Real worker processes.

Rank 0 is held where the test wants to kill it by gates in the training itself: at what the model adds to its state
dict, which is asked for before the state is anywhere but in rank 0; and in the thread that writes.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edt_sdk.schemas.wire import link as wire
from edt_sdk.schemas.wire.saved import read_header
from edt_sdk.training.records.lines import epoch_ended
from edt_sdk.training.sampling.schedule import Cursor, EpochEnd, Schedule
from edt_sdk.training.user.payload import Training
from tests.training.member import test_recovery as recovery
from tests.training.member.test_loop import lines
from tests.training.member.test_recovery import HERE, UPDATES
from tests.training.stand_in import DEADLINE, StandIn
from tests.waiting import until

EPOCH = 2  # checkpoint_freq of these trainings, and so the only epoch with files


def wait_at(gate: Path) -> None:
    """Say that somebody is there, and wait as long as the gate is closed."""
    if not gate.exists():
        return
    gate.with_suffix(".reached").touch()
    deadline = time.monotonic() + DEADLINE
    while gate.exists() and time.monotonic() < deadline:
        time.sleep(0.005)


class Waits:
    """Pickles as an empty dictionary, and waits for the gate where the checkpoint's thread does that."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __reduce__(self) -> Any:
        if threading.current_thread().name.startswith("edt-checkpoint"):
            wait_at(self.gate)
        return OrderedDict, ()


class Gated(nn.Sequential):
    """A model that waits at two gates of a folder while its epoch's state dict is made and written."""

    def __init__(self, folder: Path, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.folder = folder

    def get_extra_state(self) -> Any:
        wait_at(self.folder / "copy")
        return Waits(self.folder / "write")

    def set_extra_state(self, state: Any) -> None:
        pass


def training(folder: Path, *, callbacks: bool) -> Training:
    made = recovery.training(folder)
    gated = Gated(folder, *made.model)
    changes: dict[str, Any] = {"model": gated}
    if not callbacks:
        changes["callbacks"] = []
    return Training(**{name: getattr(made, name) for name in made.__dataclass_fields__} | changes)


@pytest.fixture(params=[True, False], ids=["callbacks", "no callbacks"])
def callbacks(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def job() -> Iterator[StandIn]:
    with StandIn(memory=True) as stand_in:
        yield stand_in


def content(job: StandIn) -> list[Any]:
    """What the files of the epoch say, bit for bit."""
    found: list[Any] = []
    for name in (f"model_epoch_{EPOCH}", f"model_epoch_{EPOCH}_optimizer_state", "model_epoch_final"):
        found += plain(torch.load(job.paths.train_dir / f"{name}.pth", weights_only=True))
    header = read_header(job.paths.checkpoints(0) / f"epoch-{EPOCH}.ckpt")
    return [*found, (header.updates, header.epoch)]


def plain(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [(value.dtype, tuple(value.shape), value.contiguous().flatten().view(torch.uint8).numpy().tobytes())]
    if isinstance(value, dict):
        return [part for name, inner in value.items() for part in (name, *plain(inner))]
    if isinstance(value, list | tuple):
        return [part for inner in value for part in plain(inner)]
    return [value]


_undisturbed: dict[bool, list[Any]] = {}


def undisturbed(callbacks: bool) -> list[Any]:
    if callbacks not in _undisturbed:
        with StandIn() as job:
            job.pack(training(job.root, callbacks=callbacks), HERE)
            job.prepare(0)
            job.generation(1, 0)
            job.expect("w0", wire.Trained)
            _undisturbed[callbacks] = content(job)
    return _undisturbed[callbacks]


def begin(job: StandIn, gate: str, *workers: int, callbacks: bool) -> None:
    """These workers train, until rank 0 is at the gate."""
    (job.root / gate).touch()
    job.pack(training(job.root, callbacks=callbacks), HERE)
    job.prepare(*workers)
    job.generation(1, *workers)
    until((job.root / f"{gate}.reached").exists)


def ends_with_the_files(job: StandIn, worker: int, *, callbacks: bool) -> None:
    job.expect(f"w{worker}", wire.Trained)
    assert job.exit_code(f"w{worker}") == 0, job.children[f"w{worker}"].text
    assert content(job) == undisturbed(callbacks)
    assert [commit["update"] for commit in lines(job.paths.commits(0))] == list(range(UPDATES))


def missing(job: StandIn) -> bool:
    return not (job.paths.checkpoints(0) / f"epoch-{EPOCH}.ckpt").exists()


def test_rank_0_is_killed_before_its_state_is_anywhere_else(job: StandIn, callbacks: bool) -> None:
    begin(job, "copy", 0, 1, callbacks=callbacks)
    job.kill(0)
    (job.root / "copy").unlink()
    assert missing(job)
    job.expect("w1", wire.Broken)
    job.generation(2, 1)
    ends_with_the_files(job, 1, callbacks=callbacks)


def test_rank_0_is_killed_while_it_writes_and_others_are_updates_further(job: StandIn, callbacks: bool) -> None:
    begin(job, "write", 0, 1, 2, callbacks=callbacks)
    until(lambda: len(lines(job.paths.commits(0))) == UPDATES)
    job.kill(0)
    (job.root / "write").unlink()
    assert missing(job)
    for worker in (1, 2):
        job.expect(f"w{worker}", wire.Broken)
    job.generation(2, 1, 2)
    ends_with_the_files(job, 1, callbacks=callbacks)
    assert "Writing the files of epoch-2" in job.children["w1"].text


def test_everybody_is_killed_while_rank_0_writes(job: StandIn, callbacks: bool) -> None:
    begin(job, "write", 0, 1, callbacks=callbacks)
    job.kill(0, 1)
    (job.root / "write").unlink()
    assert missing(job)
    job.prepare(2)
    job.generation(2, 2)
    assert job.expect("w2", wire.Joined).update >= 8
    ends_with_the_files(job, 2, callbacks=callbacks)


def test_the_next_writer_is_killed_too(job: StandIn) -> None:
    begin(job, "write", 0, 1, 2, callbacks=False)
    until(lambda: len(lines(job.paths.commits(0))) == UPDATES)
    job.kill(0)
    (job.root / "write").unlink()
    (job.root / "copy").touch()  # w1 is held where it makes the state dict of what was kept
    (job.root / "copy.reached").unlink(missing_ok=True)
    job.generation(2, 1, 2)
    until((job.root / "copy.reached").exists)
    job.kill(1)
    (job.root / "copy").unlink()
    assert missing(job)
    job.generation(3, 2)
    ends_with_the_files(job, 2, callbacks=False)


def test_which_epoch_a_state_is_the_end_of() -> None:
    schedule = Schedule(epochs=2, updates_per_epoch=1)
    # TrainBegin, EpochBegin, TrainStep, EpochEnd, EpochBegin, TrainStep, EpochEnd, TrainEnd, Final
    with_hooks = [epoch_ended(Cursor(schedule, position), hooks=True) for position in range(9)]
    without = [epoch_ended(Cursor(schedule, position), hooks=False) for position in range(9)]
    first, second = EpochEnd(0, True), EpochEnd(1, True)
    assert with_hooks == [None, None, None, None, first, None, None, second, None]
    assert without == [None, None, None, None, first, first, None, second, second]
