"""The driver in a real process: the user's script, what it asks for, what its loggers hear, how it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from edt_sdk.schemas.wire import link as wire
from edt_sdk.training.checkpoints import model_files as checkpoint
from edt_sdk.training.records.recorder import Recorder, TestLine, TrainLine
from edt_sdk.training.user import payload
from tests.training.stand_in import COMPAT, StandIn
from tests.waiting import until

SCRIPT = """
import sys
import torch
from torch import nn
from callbacks import LoggerCallback
from fabric_model import FabricModel
import neighbour

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return neighbour.double(self.layer(x))

class Logger(LoggerCallback):
    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        print("train", round(loss, 4), round(acc, 4), completed_batch, worker)

    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        print("test", round(loss, 4), acc, completed_batch, worker)

    def on_train_end(self):
        print("logger ended")

class New:
    def log_train_metrics(self, metrics, iteration, epoch, workers):
        print("new train", sorted(metrics.items()), iteration, epoch, workers)

    def log_test_metrics(self, metrics, iteration, epoch):
        print("new test", sorted(metrics.items()), iteration, epoch)

def datasets():
    raise AssertionError("the data set is opened in workers only")

if __name__ == "__main__":
    print("argv", sys.argv, __file__)
    model = Net()
    nn.init.zeros_(model.layer.weight)
    kept = model.layer.weight
    loggers = {"driver_logger": Logger(), "driver_logger_callback": New()} if "own" in sys.argv else {}
    edt = FabricModel(model, datasets, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1),
                      enable_onnx=True, **loggers)
    edt.train(2, 4, 3, num_dataloader_threads=1, worker_memory="16G", checkpoint_freq=0)
    assert kept is model.layer.weight
    print("trained", model.layer.weight[0, 0].item())
    if "twice" in sys.argv:
        edt.train(epoch_number=1, batch_size=4, effective_batch_size=10)
"""


SCHEDULED = """
import torch
from torch import nn
from fabric_model import FabricModel

if __name__ == "__main__":
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    fabric = FabricModel(model, dict, nn.functional.mse_loss, optimizer, lr_scheduler=schedule)
    fabric.train(1, 4, lr_step="update", on_nan="stop", mode="fast")
"""


@pytest.fixture
def job() -> Any:
    with StandIn(main="train.py", args=["own"]) as stand_in:
        (stand_in.code / "train.py").write_text(SCRIPT)
        (stand_in.code / "neighbour.py").write_text("def double(x):\n    return 2 * x\n")
        yield stand_in


def start(job: StandIn) -> Any:
    return job.start_driver(PYTHONPATH=f"{COMPAT / 'kernel'}{os.pathsep}{COMPAT / 'job'}", DATA_DIR="/data", LOG_DIR="")


def record(job: StandIn, number: int, updates: range) -> None:
    """The metrics of these updates, two an epoch."""
    recorder = Recorder(job.paths.commits(number), job.paths.metrics(number))
    shards = ((1.0, 0.5, 4), (3.0, 0.75, 4), (None, None, 0))
    for update in updates:
        recorder.metric(
            TrainLine(
                update=update,
                epoch=update // 2,
                samples=8,
                loss=2.0,
                accuracy=0.625,
                world=2,
                time=1.0,
                shards=shards,
                workers=(7, 8, 8),
                updates_per_epoch=2,
                metrics={"f1": 0.25},
            )
        )
        if update % 2:
            recorder.metric(TestLine(epoch=update // 2, update=update, loss=0.5, accuracy=0.9, time=1.0))
    recorder.close()


def finish(job: StandIn, number: int = 0, updates: range = range(4)) -> None:
    """What workers do at the end: metrics and final files are there before the driver is told."""
    record(job, number, updates)
    model = nn.Module()
    model.layer = nn.Linear(2, 2)
    nn.init.constant_(model.layer.weight, 42)
    checkpoint.save(job.paths.train_dir, checkpoint.FINAL, model, torch.optim.SGD(model.parameters(), lr=0.1))
    job.send("driver", wire.TrainingDone(training=number, updates=4))


def test_the_driver_asks_waits_delivers_every_metric_and_loads_the_weights(job: StandIn) -> None:
    child = start(job)
    assert job.expect("driver", wire.DriverHello).pid == child.process.pid
    request = job.expect("driver", wire.TrainRequest)
    assert (request.training, request.shards, request.epochs) == (0, 3, 2)
    read = payload.read(Path(request.payload))
    assert Path(request.payload) == job.paths.payload(0)
    assert read.options.shards == (4, 4, 4)
    assert read.options.loader_workers == 1
    assert read.save_to_onnx
    assert read.model(torch.zeros(1, 2)).tolist() == (2 * read.model.layer.bias[None]).tolist()
    finish(job)
    assert job.exit_code("driver") == 0, child.text
    said = child.text.splitlines()
    assert f"argv ['train.py', 'own'] {job.code / 'train.py'}" in said
    assert said[0] == "<> DATA_DIR /data"
    assert not [line for line in said if "LOG_DIR" in line]
    assert "Using pytorch backend." in said
    # The running loss of an epoch is the sum of mean losses over samples; the k-th of an epoch says k + 1, the last 0.
    epoch = ["train 0.25 0.5 2 7", "train 0.5 0.625 3 8", "train 0.4167 0.5833 4 7", "train 0.5 0.625 0 8"]
    old = [line for line in said if line.startswith(("train ", "test "))]
    assert old == [*epoch, "test 0.5 0.9 4 0", *epoch, "test 0.5 0.9 4 0"]
    means = "[('accuracy', 0.625), ('f1', 0.25), ('loss', 2.0)]"
    tested = "new test [('accuracy', 0.9), ('loss', 0.5)] 0"
    assert [line for line in said if line.startswith("new")] == [
        f"new train {means} 2 0 2", f"new train {means} 4 0 2", f"{tested} 0",
        f"new train {means} 6 1 2", f"new train {means} 8 1 2", f"{tested} 1",
    ]  # fmt: skip
    assert said.index("logger ended") > said.index(f"{tested} 1")
    assert said[-1] == "trained 42.0"
    assert "--------START TRAINING--------" in said
    assert any(line.startswith("--------END TRAINING: completed epoch 2 in time ") for line in said)
    assert sum("worker_memory" in line for line in said) == 1


def test_without_loggers_the_lines_of_old_are_printed_and_a_second_training_is_another(job: StandIn) -> None:
    job.job = msgspec.structs.replace(job.job, args=("twice",))
    child = start(job)
    job.expect("driver", wire.TrainRequest)
    finish(job)
    second = job.expect("driver", wire.TrainRequest)
    assert (second.training, second.shards, second.epochs) == (1, 3, 1)
    assert payload.read(Path(second.payload)).options.shards == (4, 4, 2)
    finish(job, 1)
    assert job.exit_code("driver") == 0, child.text
    assert "Iteration 2: tag train_accuracy, simple_value 0.50000" in child.text
    assert "Iteration 0: tag train_loss, simple_value 0.50000" in child.text


def test_a_driver_that_died_attaches_to_the_trainings_there_are(job: StandIn) -> None:
    """Its script runs again: the same requests, no payload written anew, and each training's own weights."""
    job.job = msgspec.structs.replace(job.job, args=("twice",))
    first = start(job)
    request = job.expect("driver", wire.TrainRequest)
    payload_file = job.paths.payload(0)
    before = payload_file.read_bytes(), payload_file.stat().st_mtime_ns
    first.process.kill()
    assert job.exit_code("driver") == -signal.SIGKILL
    assert first.connection is not None
    first.connection.close()

    (job.code / "neighbour.py").write_text("def double(x):\n    return 3 * x\n")
    again = start(job)
    assert job.expect("driver", wire.TrainRequest) == request
    final = nn.Module()
    final.layer = nn.Linear(2, 2)
    nn.init.constant_(final.layer.weight, 7)
    torch.save(final.state_dict(), job.paths.final(0))
    finish(job)
    assert job.expect("driver", wire.TrainRequest).training == 1
    assert (payload_file.read_bytes(), payload_file.stat().st_mtime_ns) == before
    finish(job, 1)
    assert job.exit_code("driver") == 0, again.text
    assert "trained 7.0" in again.text, "a later training may have replaced model_epoch_final.pth"


def test_loggers_of_a_driver_that_is_run_again_go_on_where_they_stopped(job: StandIn) -> None:
    first = start(job)
    job.expect("driver", wire.TrainRequest)
    record(job, 0, range(1))
    until((job.paths.job_dir / "training-0.delivered").exists)
    first.process.kill()
    job.exit_code("driver")
    heard = [line for line in first.text.splitlines() if line.startswith(("train ", "test "))]
    assert first.connection is not None
    first.connection.close()

    again = start(job)
    job.expect("driver", wire.TrainRequest)
    finish(job, 0, range(1, 4))
    assert job.exit_code("driver") == 0, again.text
    heard += [line for line in again.text.splitlines() if line.startswith(("train ", "test "))]
    epoch = ["train 0.25 0.5 2 7", "train 0.5 0.625 3 8", "train 0.4167 0.5833 4 7", "train 0.5 0.625 0 8"]
    assert heard == [*epoch, "test 0.5 0.9 4 0"] * 2
    assert "new train [('accuracy', 0.625), ('f1', 0.25), ('loss', 2.0)] 4 0 2" in again.text


def test_a_schedule_and_its_options_reach_the_workers(job: StandIn) -> None:
    (job.code / "train.py").write_text(SCHEDULED)
    child = start(job)
    read = payload.read(Path(job.expect("driver", wire.TrainRequest).payload))
    assert isinstance(read.lr_scheduler, torch.optim.lr_scheduler.StepLR)
    assert read.lr_scheduler.optimizer is read.optimizer
    assert (read.options.lr_step, read.options.nan_loss) == ("update", "stop")
    assert "mode='fast' has no effect here: this job was submitted with mode 'exact'." in child.text


@pytest.mark.parametrize(("script", "final"), [("train(1.5, 4)", True), ("train(1, 4), 1 / 0", False)])
def test_input_that_cannot_be_is_not_tried_again(job: StandIn, script: str, final: bool) -> None:
    (job.code / "train.py").write_text(SCHEDULED.replace("train(1, 4", f"{script}; fabric.train(1, 4"))
    start(job)
    if not final:
        job.expect("driver", wire.TrainRequest)
        nn_model = nn.Linear(2, 2)
        torch.save(nn_model.state_dict(), job.paths.final(0))
        job.send("driver", wire.TrainingDone(training=0, updates=0))
    assert job.expect("driver", wire.Failed).final is final


def test_a_failed_training_raises_in_the_script(job: StandIn) -> None:
    child = start(job)
    job.expect("driver", wire.TrainRequest)
    job.send("driver", wire.TrainingFailed(training=0, message="worker 1 ran out of ideas."))
    failed = job.expect("driver", wire.Failed)
    assert failed.worker is None
    assert failed.message == "worker 1 ran out of ideas."
    assert job.exit_code("driver") == 1
    assert "edt.train(2, 4, 3" in child.text
    assert "logger ended" not in child.text


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("print('all done, it thinks')", 1, "train.py ended without calling FabricModel(...).train(...)"),
        ("raise SystemExit(0)", 1, "without calling"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("def broken(:", 1, "SyntaxError"),
        ("import no_such_module", 1, "no_such_module"),
        ("import sys; sys.exit(7)", 7, None),
        ("import sys; sys.exit('in words')", 1, None),
    ],
)
def test_how_scripts_end(job: StandIn, script: str, code: int, said: str | None) -> None:
    (job.code / "train.py").write_text(script)
    child = start(job)
    if said is not None:
        failed = job.expect("driver", wire.Failed)
        assert said in failed.message
        assert "driver.py" not in failed.traceback
    assert job.exit_code("driver") == code
    if script.startswith("1"):
        assert 'train.py", line 1, in <module>' in child.text
    if "words" in script:
        assert "in words" in child.text


def test_a_model_that_cannot_be_pickled_is_explained(job: StandIn) -> None:
    text = SCRIPT.replace(
        "self.layer = nn.Linear(2, 2)", "self.layer = nn.Linear(2, 2); self.handle = __import__('threading').Lock()"
    )
    (job.code / "train.py").write_text(text)
    start(job)
    failed = job.expect("driver", wire.Failed)
    assert "model.handle cannot be sent" in failed.message
    assert job.exit_code("driver") == 1
    assert not job.paths.payload(0).exists()


def test_a_driver_without_supervisor_ends_itself(job: StandIn) -> None:
    child = start(job)
    job.expect("driver", wire.TrainRequest)
    job.hang_up("driver")
    assert job.exit_code("driver") == 1
    assert "the supervisor is gone" in child.text


def test_a_signal_is_not_swallowed(job: StandIn) -> None:
    child = start(job)
    job.expect("driver", wire.TrainRequest)
    os.kill(child.process.pid, signal.SIGTERM)
    assert job.exit_code("driver") == -signal.SIGTERM
