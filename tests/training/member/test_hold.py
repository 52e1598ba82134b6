"""Trainings that hold at the end of an epoch, in real worker processes; the test plays the supervisor."""

from __future__ import annotations

import functools
import gc
import time
from pathlib import Path
from typing import Any

import pytest

from edt_sdk.schemas.wire import link as wire
from edt_sdk.training.member.link import Link
from edt_sdk.training.user.payload import Training
from tests.training.member.test_loop import (
    EPOCHS,
    HERE,
    Conductor,
    hash_of,
    job,
    lines,
    notes,
    run_alone,
    spread,
    training,
    without,
)
from tests.training.stand_in import DEADLINE, StandIn
from tests.waiting import until

__all__ = ["job"]
UPDATES = 5  # of an epoch


class Gate(Conductor):
    """Waits before the last update of an epoch while there is a file `hold-<epoch>`.

    With the number of a generation in a file `heard-<epoch>`, it then waits until this worker has heard of that one.
    """

    def on_update_end(self, update: int) -> None:
        super().on_update_end(update)
        epoch, left = divmod(update + 2, UPDATES)
        if not left:
            (self.folder / f"at-{epoch}").touch()
            deadline = time.monotonic() + DEADLINE
            while (self.folder / f"hold-{epoch}").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            if (heard := self.folder / f"heard-{epoch}").exists():
                link = next(thing for thing in gc.get_objects() if isinstance(thing, Link))
                until(lambda: link.pending >= int(heard.read_text()), "the generation is announced here")


def make(folder: Path) -> Training:
    return training(folder, callbacks=[Gate(folder)], metrics=[spread])


@functools.cache
def alone() -> tuple[str, list[Any], list[Any]]:
    """The uninterrupted training of one worker: hash, metrics and notes."""
    return run_alone(make)


def before_the_end_of_epoch(job: StandIn, epoch: int) -> None:
    """Let rank 0 wait there."""
    (job.root / f"hold-{epoch}").touch()


def go_on(job: StandIn, epoch: int, heard: int) -> None:
    """Let them go on, each one once it has heard of this generation: before, it would rightly hold in the last one."""
    (job.root / f"heard-{epoch}").write_text(str(heard))
    (job.root / f"hold-{epoch}").unlink()


def begin(job: StandIn, *workers: int) -> None:
    """A training that holds after its first epoch."""
    job.pack(make(job.root), HERE)
    job.prepare(*workers)
    job.generation(1, *workers, budget=1)


def held(job: StandIn, worker: int, generation: int, epoch: int) -> None:
    """Wait until a generation holds, and check that nothing was computed beyond its budget."""
    found = job.expect(f"w{worker}", wire.Held)
    assert (found.generation, found.epoch) == (generation, epoch)
    assert (job.paths.checkpoints(0) / f"epoch-{epoch}.ckpt").exists()
    assert (job.paths.train_dir / f"model_epoch_{epoch}.pth").exists()
    assert len(lines(job.paths.commits(0))) == epoch * UPDATES
    assert [note[1:3] for note in notes(job)][-1][0] == "end"


def leave(job: StandIn, number: int, *workers: int) -> None:
    """A generation without members: these workers leave the last one."""
    job.generation(number)
    for worker in workers:
        assert job.expect(f"w{worker}", wire.Left).update == len(lines(job.paths.commits(0)))
        assert job.exit_code(f"w{worker}") == 0, job.children[f"w{worker}"].text


def check_the_end(job: StandIn, worker: int) -> None:
    """The rest of the training, and all that it leaves, is as in the training without an interruption."""
    assert job.expect(f"w{worker}", wire.Trained).updates == EPOCHS * UPDATES
    final, metrics, told = alone()
    assert hash_of(job.paths.train_dir / "model_epoch_final.pth") == final
    assert [line["update"] for line in lines(job.paths.commits(0))] == list(range(EPOCHS * UPDATES))
    assert without(lines(job.paths.metrics(0))) == without(metrics)
    assert [note[1:] for note in notes(job)] == [note[1:] for note in told], "a hook was called twice, or not at all"
    assert not (job.paths.job_dir / "training-0.discarded.jsonl").exists()


def checkpoints(job: StandIn) -> list[str]:
    return sorted(path.name for path in job.paths.checkpoints(0).glob("*"))


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 2])
def test_held_at_one_and_three_epochs_and_resumed_it_ends_with_the_same_bits(job: StandIn, size: int) -> None:
    first, second = range(size), range(size, 2 * size)
    begin(job, *first)
    held(job, first[0], 1, 1)
    leave(job, 2, *first)
    assert checkpoints(job) == ["epoch-1.ckpt"], "the state of the hold was written once"
    job.prepare(*second)
    job.generation(3, *second, budget=1)
    assert job.expect(f"w{second[0]}", wire.Joined).update == UPDATES
    # A budget that is not raised holds at once again. One that is raised lets nobody leave.
    held(job, second[0], 3, 1)
    job.generation(4, *second, budget=3)
    held(job, second[0], 4, 3)
    # That of all epochs never holds.
    job.generation(5, *second, budget=EPOCHS)
    check_the_end(job, second[0])
    assert not any(isinstance(message, wire.Held) for message in job.children[f"w{second[0]}"].inbox)


def test_more_budget_during_the_last_update_means_the_same_to_all_members(job: StandIn) -> None:
    """Rank 0, then rank 1, is told of it alone. Then both are, and once of all epochs."""
    before_the_end_of_epoch(job, 1)
    begin(job, 0, 1)
    for rank, epoch, budget in ((0, 1, 2), (1, 2, 3)):
        until((job.root / f"at-{epoch}").exists, "the last update of the epoch")
        job.generation(epoch + 1, 0, 1, budget=budget, told=(rank,))
        before_the_end_of_epoch(job, epoch + 1)
        (job.root / f"hold-{epoch}").unlink()
        # All hold, also the member that knows of more budget, and go on together when all know it.
        held(job, 0, epoch, epoch)
        job.send(f"w{1 - rank}", job.generations[epoch + 1])
        job.joined(epoch + 1)
    for epoch, budget in ((3, 4), (4, EPOCHS)):
        until((job.root / f"at-{epoch}").exists, "the last update of the epoch")
        job.generation(epoch + 1, 0, 1, budget=budget)
        before_the_end_of_epoch(job, 4)
        go_on(job, epoch, epoch + 1)
    check_the_end(job, 0)
    assert not any(isinstance(message, wire.Held) for message in job.children["w0"].inbox)


def test_members_that_change_during_the_last_update_and_while_they_hold(job: StandIn) -> None:
    before_the_end_of_epoch(job, 1)
    begin(job, 0, 1)
    job.joined(1)
    job.prepare(2)
    until((job.root / "at-1").exists, "the last update of the epoch")
    job.generation(2, 0, 1, 2, budget=1)
    go_on(job, 1, 2)
    job.joined(2)
    held(job, 0, 2, 1)
    job.generation(3, 1, 2, budget=1)  # rank 0 leaves
    assert job.expect("w0", wire.Left).update == UPDATES
    assert job.exit_code("w0") == 0
    job.joined(3)
    held(job, 1, 3, 1)
    job.prepare(3)
    job.generation(4, 1, 2, 3, budget=3)
    job.joined(4)
    held(job, 1, 4, 3)
    job.generation(5, 1, 2, 3)
    check_the_end(job, 1)


def test_the_deaths_of_rank_0_and_of_all_while_they_hold(job: StandIn) -> None:
    begin(job, 0, 1)
    held(job, 0, 1, 1)
    job.kill(0)
    job.generation(2, 1, budget=1)
    held(job, 1, 2, 1)
    job.prepare(2)
    job.generation(3, 1, 2, budget=3)
    held(job, 1, 3, 3)
    job.kill(1, 2)
    job.prepare(3)
    job.generation(4, 3, budget=3)
    assert job.expect("w3", wire.Joined).update == 3 * UPDATES
    held(job, 3, 4, 3)
    # One that holds ends with its supervisor.
    job.hang_up("w3")
    assert job.exit_code("w3") == 1
    assert checkpoints(job)[-1] == "epoch-3.ckpt"
    job.prepare(4)
    job.generation(5, 4)
    assert job.expect("w4", wire.Joined).update == 3 * UPDATES
    check_the_end(job, 4)


def test_an_epoch_that_cannot_be_written_costs_a_checkpoint_of_another_name(job: StandIn) -> None:
    before_the_end_of_epoch(job, 1)
    begin(job, 0)
    until((job.root / "at-1").exists, "the last update of the epoch")
    in_its_way = job.paths.checkpoints(0) / "epoch-1.ckpt"
    (in_its_way / "inside").mkdir(parents=True)
    (job.root / "hold-1").unlink()
    assert job.expect("w0", wire.Held).epoch == 1
    leave(job, 2, 0)
    assert checkpoints(job) == ["epoch-1.ckpt", f"update-{UPDATES}.ckpt"]
    job.prepare(1)
    job.generation(3, 1)
    assert job.expect("w1", wire.Joined).update == UPDATES
    check_the_end(job, 1)


def test_every_validation_is_sent_and_sent_again_by_the_next_rank_0(job: StandIn) -> None:
    job.pack(make(job.root), HERE)
    job.prepare(0)
    job.generation(1, 0, budget=2)
    held(job, 0, 1, 2)
    sent = job.expect("w0", wire.EpochMeasured)
    leave(job, 2, 0)
    job.prepare(1)
    job.generation(3, 1, budget=4)
    again = job.expect("w1", wire.EpochMeasured)
    assert (again.epoch, again.loss, again.accuracy, again.metrics) == (2, sent.loss, sent.accuracy, sent.metrics)
    held(job, 1, 3, 4)
    last = job.expect("w1", wire.EpochMeasured)
    tests = [line for line in lines(job.paths.metrics(0)) if line["kind"] == "test"]
    for line, message in zip(tests, (sent, last), strict=True):
        assert (line["epoch"] + 1, line["loss"], line["accuracy"]) == (message.epoch, message.loss, message.accuracy)
        assert line["metrics"] == message.metrics != {}
    job.generation(4, 1)
    check_the_end(job, 1)
