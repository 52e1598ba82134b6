"""Whole trainings in real worker processes; the test plays the supervisor."""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edt_sdk.callbacks import Callback, LoggerCallback
from edt_sdk.schemas.wire import link as wire
from edt_sdk.training.member.link import Link
from edt_sdk.training.user.payload import Training, TrainOptions
from tests.training.stand_in import DEADLINE, StandIn
from tests.waiting import until

HERE = Path(__file__).parents[1]
SAMPLES, TESTS, SHARDS, BATCH, EPOCHS = 53, 43, 4, 3, 6


class Images(torch.utils.data.Dataset[Any]):
    """Samples that differ each time they are looked at, by all three random generators."""

    def __init__(self, samples: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(samples, 1, 6, 6, generator=generator)
        self.y = torch.randint(0, 3, (samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(1, 6, 6) * 0.1 + random.random() * 0.1 + float(np.random.rand()) * 0.1
        return self.x[index] + noise, self.y[index]


def datasets() -> tuple[Images, Images]:
    return Images(SAMPLES, 1), Images(TESTS, 2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1))


class Conductor(Callback):
    """Lowers the learning rate each epoch, averages the weights of all updates, writes down what it does; may wait."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = self.updates = 0
        self.average = 0.0

    def note(self, *what: object) -> None:
        with (self.folder / "notes").open("a") as notes:
            notes.write(json.dumps([os.getpid(), *what]) + "\n")

    def on_train_begin(self) -> None:
        self.note("train begin")

    def on_epoch_begin(self, epoch: int) -> None:
        deadline = time.monotonic() + DEADLINE
        while (self.folder / f"hold-{epoch}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.note("begin", epoch, self.params["optimizer"].param_groups[0]["lr"])

    def on_update_end(self, update: int) -> None:
        assert update == self.updates
        self.updates += 1
        self.average += 0.1 * (float(self.model.head.weight.detach().abs().sum()) - self.average)

    def on_epoch_end(self, epoch: int, unasked: bool = False) -> None:
        assert self.params["epochs"] == EPOCHS
        assert not unasked
        self.count += 1
        for group in self.params["optimizer"].param_groups:
            group["lr"] *= 0.5 + 0.1 * random.random()
        with torch.no_grad():
            self.model.head.weight.clamp_(-0.1, 0.1)
        self.model.eval()
        self.note("end", epoch, self.count, self.updates, self.average)

    def on_train_end(self) -> None:
        self.note("train end")


class Opinion(LoggerCallback):
    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        print("worker logger", worker, completed_batch, f"{loss:.3f}", f"{acc:.3f}")


def training(folder: Path, *, loaders: int = 0, **parts: Any) -> Training:
    torch.manual_seed(11)
    model = parts.pop("model", None) or Net()
    options = TrainOptions(
        epochs=EPOCHS, micro_batch=BATCH, shards=(BATCH,) * SHARDS, loader_workers=loaders, checkpoint_freq=4,
        validation_freq=2, clip_grad_norm=1.0,
    )  # fmt: skip
    return Training(
        model=model,
        datasets_function=parts.pop("datasets_function", datasets),
        loss_function=parts.pop("loss_function", nn.functional.cross_entropy),
        optimizer=torch.optim.Adam(model.parameters(), lr=0.02),
        options=options,
        callbacks=parts.pop("callbacks", [Conductor(folder)]),
        **parts,
    )


@pytest.fixture
def job() -> Any:
    with StandIn() as stand_in:
        yield stand_in


def hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    for name, tensor in torch.load(path, weights_only=True).items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_alone(make: Callable[[Path], Training]) -> tuple[str, list[Any], list[Any]]:
    """One worker from begin to end: hash, metrics and notes."""
    with StandIn() as job:
        job.pack(make(job.root), HERE)
        job.prepare(0)
        job.generation(1, 0)
        assert job.expect("w0", wire.Trained).updates == EPOCHS * 5
        # Without a budget it sends nothing that an older supervisor would not know.
        assert not any(isinstance(message, wire.EpochMeasured | wire.Held) for message in job.children["w0"].inbox)
        assert job.exit_code("w0") == 0, job.children["w0"].text
        return hash_of(job.paths.train_dir / "model_epoch_final.pth"), lines(job.paths.metrics(0)), notes(job)


def notes(job: StandIn) -> list[Any]:
    path = job.root / "notes"
    return lines(path) if path.exists() else []


@pytest.mark.parametrize("loaders", [0, 2])
def test_one_three_and_two_workers_without_the_first_end_with_the_same_bits(job: StandIn, loaders: int) -> None:
    alone, metrics, told = run_alone(lambda folder: training(folder, loaders=loaders))

    job.pack(training(job.root, loaders=loaders, worker_logger=Opinion()), HERE)
    for epoch in (1, 3):
        (job.root / f"hold-{epoch}").touch()
    job.prepare(0)
    job.generation(1, 0)
    job.joined(1)
    job.prepare(1, 2)
    job.generation(2, 0, 1, 2)
    (job.root / "hold-1").unlink()
    job.joined(2)
    job.generation(3, 1, 2)
    (job.root / "hold-3").unlink()
    left = job.expect("w0", wire.Left)
    assert left.generation == 3
    assert job.exit_code("w0") == 0
    job.joined(3)
    assert job.expect("w1", wire.Trained).updates == EPOCHS * 5
    for name in ("w1", "w2"):
        assert job.exit_code(name) == 0, job.children[name].text

    assert hash_of(job.paths.train_dir / "model_epoch_final.pth") == alone
    check_commits(job, [[0], [0, 1, 2], [1, 2]])
    assert without(lines(job.paths.metrics(0))) == without(metrics)
    check_hooks(job, told)
    files = sorted(path.name for path in job.paths.train_dir.iterdir())
    assert files == [
        "model_epoch_4.pth",
        "model_epoch_4_optimizer_state.pth",
        "model_epoch_final.pth",
        "model_epoch_final_optimizer_state.pth",
    ]
    assert "worker logger 2 1 " in job.children["w2"].text
    assert "END TRAINING" in job.children["w0"].text


def check_commits(job: StandIn, members: list[list[int]]) -> None:
    """Every update once, each shard once by who says so, every member at least one, every sample once an epoch."""
    commits = lines(job.paths.commits(0))
    assert [commit["update"] for commit in commits] == list(range(EPOCHS * 5))
    pids = {child.worker: child.process.pid for child in job.children.values()}
    seen: dict[int, list[int]] = {}
    generations = []
    for commit in commits:
        assert [shard["shard"] for shard in commit["shards"]] == list(range(SHARDS))
        assert sorted({shard["worker"] for shard in commit["shards"]}) == members[commit["generation"] - 1]
        assert commit["world"] == len(members[commit["generation"] - 1])
        for shard in commit["shards"]:
            assert shard["pid"] == pids[shard["worker"]]
            seen.setdefault(commit["epoch"], []).extend(shard["indices"])
        generations.append(commit["generation"])
    assert generations == sorted(generations)
    assert sorted(set(generations)) == [1, 2, 3]
    assert seen.keys() == set(range(EPOCHS))
    assert all(sorted(indices) == list(range(SAMPLES)) for indices in seen.values())


def without(metrics: list[Any]) -> list[Any]:
    """Metrics without what depends on who computed them, and when."""
    return [{k: v for k, v in line.items() if k not in ("time", "world", "workers")} for line in metrics]


def check_hooks(job: StandIn, alone: list[Any]) -> None:
    """The callbacks ran as in one process, on rank 0 only, and with their own state where rank 0 moved."""
    told = notes(job)
    assert [note[1:] for note in told] == [note[1:] for note in alone]
    first, second = job.children["w0"].process.pid, job.children["w1"].process.pid
    assert [note[0] for note in told] == sorted((note[0] for note in told), key=[first, second].index)
    assert {note[0] for note in told} == {first, second}
    rates = [note[3] for note in told if note[1] == "begin"]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.02 * 0.6 ** (EPOCHS - 1) * 1.0001
    ends = [note for note in told if note[1] == "end"]
    assert [note[3:5] for note in ends] == [
        [epoch, epoch * -(-SAMPLES // (BATCH * SHARDS))] for epoch in range(1, EPOCHS + 1)
    ]
    assert len({note[5] for note in ends}) == EPOCHS, "the average moves"


class Held(Images):
    """Leaves a file when one sample is read, and waits there until this worker knows the second generation."""

    def __init__(self, samples: int, seed: int, reached: Path) -> None:
        super().__init__(samples, seed)
        self.reached = reached

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 4:
            self.reached.touch()
            (link,) = (each for each in gc.get_objects() if isinstance(each, Link))
            deadline = time.monotonic() + DEADLINE
            while link.pending < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
        return super().__getitem__(index)


def held_datasets(reached: Path) -> tuple[Images, Images]:
    return Images(SAMPLES, 1), Held(TESTS, 2, reached)


def test_members_may_change_within_a_validation(job: StandIn) -> None:
    _, metrics, _ = run_alone(lambda folder: training(folder))
    reached = job.root / "reached"
    job.pack(training(job.root, datasets_function=functools.partial(held_datasets, reached)), HERE)
    job.prepare(0)
    job.generation(1, 0)
    job.joined(1)
    job.prepare(1)
    until(reached.exists, "the first validation")
    job.generation(2, 0, 1)
    assert job.expect("w1", wire.Joined).update == 10
    job.expect("w0", wire.Trained)
    found = lines(job.paths.metrics(0))
    assert without(found) == without(metrics)
    worlds = [(line["update"], line["kind"], line["world"]) for line in found]
    assert worlds[8:12] == [(8, "train", 1), (9, "train", 1), (9, "test", 2), (10, "train", 2)]


def own_step(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> tuple[Any, Any]:
    inputs, labels = data
    model.get_optimizer().zero_grad()
    outputs = model(inputs)
    loss = model.get_loss_function()(outputs, labels)
    loss.backward()
    return eva(outputs, labels), loss


def own_test(model: Any, test_iter: Any, fn_args: Any) -> float:
    losses = []
    model.train()
    for inputs, labels in test_iter:
        losses.append(model.get_loss_function()(model(inputs), labels).item() * len(labels))
    with torch.no_grad():
        model.head.weight.mul_(2)
    return sum(losses) / TESTS + random.random()


def test_own_step_and_own_validation_give_the_same_everywhere(job: StandIn) -> None:
    def make(folder: Path) -> Training:
        return training(folder, fn_step_train=own_step, fn_test=own_test, metrics=[spread])

    alone, metrics, _ = run_alone(make)
    job.pack(make(job.root), HERE)
    (job.root / "hold-1").touch()
    job.prepare(0)
    job.generation(1, 0)
    job.prepare(1)
    job.joined(1)
    job.generation(2, 0, 1)
    (job.root / "hold-1").unlink()
    job.joined(2)
    job.expect("w0", wire.Trained)
    assert hash_of(job.paths.train_dir / "model_epoch_final.pth") == alone
    found = lines(job.paths.metrics(0))
    assert without(found) == without(metrics)
    tests = [line for line in found if line["kind"] == "test"]
    assert [line["epoch"] for line in tests] == [1, 3, 5]
    assert all(line["accuracy"] is None and line["loss"] > 0 for line in tests)
    assert all(line["metrics"]["spread"] > 0 for line in found if line["kind"] == "train")


def spread(outputs: Tensor, labels: Tensor) -> Tensor:
    return outputs.std()


def test_progress_is_reported(job: StandIn) -> None:
    job.pack(training(job.root), HERE)
    job.prepare(0)
    job.generation(1, 0)
    first = job.expect("w0", wire.Progress)
    assert (first.update, first.total_updates, first.epochs, first.loss) == (0, EPOCHS * 5, EPOCHS, None)
    job.expect("w0", wire.Trained)
    last = [message for message in job.children["w0"].inbox if isinstance(message, wire.Progress)][-1]
    assert last.update == EPOCHS * 5
    assert last.epoch == EPOCHS - 1
    # The mean of the last epoch, as in the log, and not of the last update.
    epoch = [line for line in lines(job.paths.metrics(0)) if line["kind"] == "train" and line["epoch"] == EPOCHS - 1]
    mean = sum(line["loss"] * line["samples"] for line in epoch) / sum(line["samples"] for line in epoch)
    assert last.loss == pytest.approx(mean)
    assert abs(last.loss - epoch[-1]["loss"]) > 1e-6
    assert last.test_accuracy is not None


def raises() -> Any:
    raise OSError("the disk with the images is gone")


class Broken(Images):
    def __getitem__(self, index: int) -> Any:
        if index == 13:
            raise ValueError("sample 13 is broken")
        return super().__getitem__(index)


def broken_sample() -> Any:
    return Broken(SAMPLES, 1), None


class Wrong(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def typed(outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy(outputs[:, 0], labels)


class Raising(Callback):
    def on_epoch_end(self, epoch: int) -> None:
        raise KeyError("a callback's own mistake")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"datasets_function": raises}, "raises() raised OSError: the disk with the images is gone"),
        ({"datasets_function": broken_sample}, "sample 13 is broken"),
        ({"model": Wrong()}, "RuntimeError: mat1 and mat2"),
        (
            {"loss_function": typed},
            "in the loss function typed, which got a tensor of 3×3 (float32) and a tensor of 3 (int64)",
        ),
        ({"callbacks": [Raising()]}, "a callback's own mistake"),
    ],
)
def test_an_error_of_the_users_code_is_told_and_ends_the_worker(job: StandIn, parts: Any, said: str) -> None:
    job.pack(training(job.root, **parts), HERE)
    child = job.start_worker(0)
    hello = job.expect("w0", wire.WorkerHello)
    job.send("w0", wire.Begin(training=0, payload=str(job.paths.payload(0))))
    child.inbox.append(hello)
    job.generation(1, 0)
    failed = job.expect("w0", wire.Failed)
    assert said in failed.message
    assert failed.worker == 0
    assert not failed.final  # what the user's code raised may be gone the next time
    # The traceback has the line of the user's code, and none of ours or of torch's wrappers.
    assert all(each not in failed.traceback for each in ("/edt_sdk/", "contextlib", "_call_impl"))
    if "model" not in parts:
        assert f'File "{__file__}", line' in failed.traceback
    assert job.exit_code("w0") == 1
    assert failed.traceback in child.text
