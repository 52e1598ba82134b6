"""Deaths, suspension and a lost supervisor, with real worker processes; the test plays the supervisor.

Whatever happens, the bits are those of one worker that nothing happened to.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from edt_sdk.callbacks import Callback
from edt_sdk.schemas.wire import link as wire
from edt_sdk.schemas.wire.pulse import Phase, read
from edt_sdk.training.user.payload import Training, TrainOptions
from tests.server.store.trouble import fill, small_disk
from tests.training.member.test_loop import hash_of, lines
from tests.training.stand_in import DEADLINE, StandIn
from tests.waiting import until

HERE = Path(__file__).parents[1]
SAMPLES, EPOCHS, UPDATES = 32, 3, 12


class Numbers(torch.utils.data.Dataset[Any]):
    """Waits at each sample as long as there is a file of that name."""

    def __init__(self, gates: Path) -> None:
        self.gates = gates

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        deadline = time.monotonic() + DEADLINE
        while (self.gates / f"sample-{index}").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        return torch.randn(300), torch.tensor(index % 3)


def datasets(gates: Path) -> tuple[Numbers, Numbers]:
    return Numbers(gates), Numbers(gates)


class Halving(Callback):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def on_epoch_begin(self, epoch: int) -> None:
        (self.folder / f"at-{epoch}").touch()
        deadline = time.monotonic() + DEADLINE
        while (self.folder / f"hold-{epoch}").exists() and time.monotonic() < deadline:
            time.sleep(0.005)

    def on_epoch_end(self, epoch: int) -> None:
        self.count += 1
        self.params["optimizer"].param_groups[0]["momentum"] *= 0.5
        with (self.folder / "counts").open("a") as counts:
            counts.write(f"{self.count}\n")

    def on_train_end(self) -> None:
        with (self.folder / "counts").open("a") as counts:
            counts.write("end\n")
        deadline = time.monotonic() + DEADLINE
        while (self.folder / "hold-end").exists() and time.monotonic() < deadline:
            time.sleep(0.005)


class Dawdling(torch.optim.SGD):
    """Waits in a process of which the test says so, when the update's exchange is over."""

    gates: ClassVar[Path]

    def step(self, closure: Any = None) -> Any:
        gate = self.gates / f"dawdle-{os.getpid()}"
        if gate.exists():
            (self.gates / "dawdling").touch()
            until(lambda: not gate.exists())
        return super().step(closure)


class Listening(torch.optim.SGD):
    """Waits in an update, when its exchange is over, until this process has heard of generation 2."""

    gates: ClassVar[Path]

    def step(self, closure: Any = None) -> Any:
        if (self.gates / "listen").exists():
            (self.gates / f"listening-{os.getpid()}").touch()
            until(lambda: any(thread.name == "edt-upcoming-2" for thread in threading.enumerate()))
            (self.gates / f"heard-{os.getpid()}").touch()
        return super().step(closure)


def training(
    folder: Path, *, wide: int = 8, optimizer_class: type[torch.optim.SGD] = torch.optim.SGD, **parts: Any
) -> Training:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(300, wide), nn.BatchNorm1d(wide), nn.Dropout(0.2), nn.Linear(wide, 3))
    optimizer = optimizer_class(model.parameters(), lr=0.1, momentum=0.9)
    return Training(
        model=model,
        datasets_function=functools.partial(datasets, folder),
        loss_function=nn.functional.cross_entropy,
        optimizer=optimizer,
        options=TrainOptions(epochs=EPOCHS, micro_batch=2, shards=(2,) * 4, checkpoint_freq=2),
        callbacks=[Halving(folder)],
        lr_scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7),
        **parts,
    )


@pytest.fixture
def job() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


@functools.cache
def undisturbed(wide: int = 8) -> tuple[str, tuple[str, ...]]:
    with StandIn() as job:
        job.pack(training(job.root, wide=wide), HERE)
        job.prepare(0)
        job.generation(1, 0)
        job.expect("w0", wire.Trained)
        assert job.exit_code("w0") == 0
        return final(job), counts(job)


def final(job: StandIn) -> str:
    return hash_of(job.paths.train_dir / "model_epoch_final.pth")


def counts(job: StandIn) -> tuple[str, ...]:
    path = job.root / "counts"
    return tuple(path.read_text().split()) if path.exists() else ()


def begin(job: StandIn, *workers: int, **parts: Any) -> None:
    """Generation 1 of these workers, held at the beginning of the second epoch."""
    (job.root / "hold-1").touch()
    job.pack(training(job.root, **parts), HERE)
    job.prepare(*workers)
    job.generation(1, *workers)
    job.joined(1)
    until((job.root / "at-1").exists)


def go_on(job: StandIn) -> None:
    (job.root / "hold-1").unlink()


def ends_well(job: StandIn, *workers: int, wide: int = 8) -> None:
    """The training ends with the bits, and the log, of an undisturbed one."""
    job.expect(f"w{workers[0]}", wire.Trained)
    for worker in workers:
        assert job.exit_code(f"w{worker}") == 0, job.children[f"w{worker}"].text
    bits, told = undisturbed(wide)
    assert final(job) == bits
    assert counts(job) == told
    commits = lines(job.paths.commits(0))
    assert [commit["update"] for commit in commits] == list(range(UPDATES))
    for epoch in range(EPOCHS):
        indices = [i for c in commits if c["epoch"] == epoch for shard in c["shards"] for i in shard["indices"]]
        assert sorted(indices) == list(range(SAMPLES))
    metrics = [(line["kind"], line["update"]) for line in lines(job.paths.metrics(0))]
    assert sorted(metrics) == sorted(
        [("train", n) for n in range(UPDATES)] + [("test", 4 * epoch + 3) for epoch in range(EPOCHS)]
    )


@pytest.mark.parametrize(
    "dead", [[0], [1, 2], *(pytest.param(dead, marks=pytest.mark.long) for dead in ([1], [0, 1], [2]))]
)
def test_members_die_while_others_wait_for_them_in_a_collective(job: StandIn, dead: list[int]) -> None:
    wide = 20_000  # several pieces of gradient are on their way at once
    begin(job, 0, 1, 2, wide=wide)
    stopped = job.children[f"w{dead[0]}"].process
    stopped.send_signal(signal.SIGSTOP)
    go_on(job)
    time.sleep(0.3)  # the others run into the exchange, most of the time
    job.kill(*dead)
    alive = [worker for worker in range(3) if worker not in dead]
    for worker in alive:
        assert job.expect(f"w{worker}", wire.Broken).generation == 1
    start = time.monotonic()
    job.generation(2, *alive)
    job.joined(2)
    assert time.monotonic() - start < 20
    ends_well(job, *alive, wide=wide)


def test_a_joiner_dies_before_it_arrives(job: StandIn) -> None:
    begin(job, 0)
    job.prepare(1)
    job.children["w1"].process.send_signal(signal.SIGSTOP)
    job.generation(2, 0, 1)
    go_on(job)
    time.sleep(0.3)  # w0 comes to the boundary and waits
    job.kill(1)
    job.generation(3, 0)
    job.joined(3)
    ends_well(job, 0)


def test_the_leader_dies_before_a_joiner_arrives_and_everything_begins_anew(job: StandIn) -> None:
    job.pack(training(job.root), HERE)
    job.prepare(0, 1)
    job.children["w0"].process.send_signal(signal.SIGSTOP)
    job.generation(1, 0, 1)
    time.sleep(0.3)  # w1 waits for an answer of w0's store
    job.kill(0)
    job.generation(2, 1)
    ends_well(job, 1)


def test_who_joins_on_another_host_knows_the_lines_from_before_it_came(job: StandIn) -> None:
    begin(job, 0)
    job.prepare(1, interface="127.0.0.2")
    (job.root / "hold-2").touch()
    job.generation(2, 0, 1)
    go_on(job)
    until((job.root / "at-2").exists)
    job.kill(0)
    assert job.expect("w1", wire.Broken).generation == 2
    # What the lost host had not sent to the server is lost with it.
    for path in (job.paths.commits(0), job.paths.metrics(0)):
        early = [line for line in path.read_text().splitlines(keepends=True) if json.loads(line)["update"] < 2]
        path.write_text("".join(early))
    job.generation(3, 1)
    job.joined(3)
    (job.root / "hold-2").unlink()
    ends_well(job, 1)


def test_a_worker_starts_on_a_full_disk_and_trains_when_there_is_room(job: StandIn) -> None:
    with small_disk(job.paths.job_dir, 1 << 20) as mounted:
        if not mounted:
            pytest.skip("a small disk of its own can only be mounted as root, with the right to (CAP_SYS_ADMIN)")
        job.pack(training(job.root), HERE)
        ballast = job.paths.job_dir / "ballast"
        fill(ballast)
        job.prepare(0)
        job.generation(1, 0)
        until(lambda: "the training waits for room" in job.children["w0"].text)
        ballast.unlink()
        ends_well(job, 0)


@pytest.mark.parametrize("leaves", [pytest.param("alone", marks=pytest.mark.long), "with another"])
def test_who_takes_the_place_of_rank_0_waits_until_it_has_written_its_last_update(job: StandIn, leaves: str) -> None:
    Dawdling.gates = job.root
    begin(job, 0, 1, 2, optimizer_class=Dawdling)
    slow = job.root / f"dawdle-{job.children['w0'].process.pid}"
    slow.touch()
    stay = [1] if leaves == "with another" else [1, 2]
    job.generation(2, *stay)
    go_on(job)
    until((job.root / "dawdling").exists)
    time.sleep(0.3)  # time enough for the others to go on without it, if they did
    assert [commit["update"] for commit in lines(job.paths.commits(0))] == [0, 1, 2, 3]
    slow.unlink()
    assert job.expect("w0", wire.Left).update == 5
    job.joined(2)
    ends_well(job, *stay)


@pytest.mark.parametrize(("wide", "joins"), [(8, 6), (20_000, 5)], ids=["little", "much"])
def test_who_is_announced_behind_the_exchange_joins_behind_that_update_where_it_takes_long(
    job: StandIn, wide: int, joins: int
) -> None:
    Listening.gates = job.root
    begin(job, 0, 1, wide=wide, optimizer_class=Listening)
    job.prepare(2)
    joiner = job.children["w2"].process
    joiner.send_signal(signal.SIGSTOP)  # so that its group is not made before everybody was seen to make it
    pids = [job.children[name].process.pid for name in ("w0", "w1")]
    (job.root / "listen").touch()
    go_on(job)
    until(lambda: all((job.root / f"listening-{pid}").exists() for pid in pids))
    (job.root / "listen").unlink()
    job.generation(2, 0, 1, 2)
    until(lambda: all((job.root / f"heard-{pid}").exists() for pid in pids))
    joiner.send_signal(signal.SIGCONT)
    assert job.expect("w2", wire.Joined).update == joins
    ends_well(job, 0, 1, 2, wide=wide)


def test_suspended_and_resumed_by_others(job: StandIn) -> None:
    begin(job, 0, 1)
    job.generation(2)
    go_on(job)
    left = [job.expect(f"w{worker}", wire.Left) for worker in (0, 1)]
    # A busy worker may hear of the second generation an update later. Both leave after the same update all the same.
    suspended = left[0].update
    assert suspended >= 5
    assert [(each.generation, each.update) for each in left] == [(2, suspended)] * 2
    assert [job.exit_code(f"w{worker}") for worker in (0, 1)] == [0, 0]
    job.prepare(2, 3, 4)
    job.generation(3, 2, 3, 4)
    assert job.expect("w3", wire.Joined).update == suspended
    ends_well(job, 2, 3, 4)


def test_suspended_without_a_group(job: StandIn) -> None:
    begin(job, 0, 1)
    job.kill(1)
    go_on(job)
    job.expect("w0", wire.Broken)
    job.generation(2)
    assert job.expect("w0", wire.Left).update == 4
    assert job.exit_code("w0") == 0
    job.prepare(2)
    job.generation(3, 2)
    assert job.expect("w2", wire.Joined).update == 4
    ends_well(job, 2)


@pytest.mark.parametrize("group_lost", [False, True])
def test_without_supervisor_members_write_a_checkpoint_and_end(job: StandIn, group_lost: bool) -> None:
    begin(job, 0, 1)
    if group_lost:
        job.kill(1)
        go_on(job)
        job.expect("w0", wire.Broken)
        job.hang_up("w0")
    else:
        job.hang_up("w0")
        job.hang_up("w1")
        go_on(job)
        assert job.exit_code("w1") == 1
    assert job.exit_code("w0") == 1
    assert "the supervisor is gone" in job.children["w0"].text
    job.prepare(2, 3)
    job.generation(2, 2, 3)
    joined = job.expect("w2", wire.Joined).update
    # Where the group is whole its members agree on an update. A busy worker may hear of it an update later.
    assert joined == 4 if group_lost else joined >= 5
    assert job.expect("w3", wire.Joined).update == joined
    ends_well(job, 2, 3)


def test_a_worker_that_is_no_member_ends_with_its_supervisor(job: StandIn) -> None:
    job.pack(training(job.root), HERE)
    job.prepare(0)
    job.hang_up("w0")
    assert job.exit_code("w0") == 1


def test_rank_0_dies_in_the_last_hook(job: StandIn) -> None:
    (job.root / "hold-end").touch()
    begin(job, 0, 1)
    go_on(job)
    until(lambda: "end" in counts(job))
    job.kill(0)
    job.expect("w1", wire.Broken)
    (job.root / "hold-end").unlink()
    job.generation(2, 1)
    job.expect("w1", wire.Trained)
    assert job.exit_code("w1") == 0
    assert final(job) == undisturbed()[0]
    assert counts(job) == (*undisturbed()[1], "end")


def test_signs_of_life(job: StandIn, tmp_path: Path) -> None:
    begin(job, 0)
    beat = read(job.root / "pulse-0")
    assert beat is not None
    assert (beat.phase, beat.updates) == (Phase.COMPUTING, 4)
    job.prepare(1)
    beat = read(job.root / "pulse-1")
    assert beat is not None
    assert beat.phase is Phase.OUTSIDE
    go_on(job)
    job.expect("w0", wire.Trained)
    beat = read(job.root / "pulse-0")
    assert beat is not None
    assert (beat.phase, beat.updates) == (Phase.WAITING, UPDATES)


def test_training_begins_with_the_weights_of_another(job: StandIn) -> None:
    path = job.root / "weights.pth"
    given = training(job.root)
    with torch.no_grad():
        given.model[0].bias.fill_(3.0)
    torch.save(given.model.state_dict(), path)
    job.job = job.job.__class__(
        **{f: getattr(job.job, f) for f in job.job.__struct_fields__} | {"warm_start": str(path)}
    )
    job.pack(training(job.root), HERE)
    job.prepare(0)
    job.generation(1, 0)
    job.expect("w0", wire.Trained)
    assert final(job) != undisturbed()[0]
    with StandIn() as other:
        other.pack(given, HERE)
        other.prepare(0)
        other.generation(1, 0)
        other.expect("w0", wire.Trained)
        assert final(other) == final(job)
