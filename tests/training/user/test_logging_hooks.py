"""What each of the four loggers hears: names, order and units of both families of WMLA."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from edt_sdk.callbacks import LoggerCallback
from edt_sdk.training.records.recorder import TestLine, TrainLine
from edt_sdk.training.user.logging_hooks import DriverLoggers, WorkerLoggers
from edt_sdk.training.user.progress_lines import ProgressLines


class Hears:
    """Every hook there is, of either family."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("on_", "log_")):
            raise AttributeError(name)
        return lambda *arguments: self.heard.append((name.removeprefix("log_").removesuffix("_metrics"), *arguments))


class Deaf:
    """None of them."""


def update(
    number: int, *shards: tuple[float | None, float | None, int], per_epoch: int = 2, **metrics: float
) -> TrainLine:
    samples = sum(count for _, _, count in shards)
    return TrainLine(
        update=number,
        epoch=number // per_epoch,
        samples=samples,
        loss=sum((loss or 0.0) * count for loss, _, count in shards) / samples,
        accuracy=sum((accuracy or 0.0) * count for _, accuracy, count in shards) / samples,
        world=2,
        time=0.0,
        shards=shards,
        workers=tuple(range(len(shards))),
        updates_per_epoch=per_epoch,
        metrics=dict(metrics),
    )


def validation(epoch: int, loss: float | None, accuracy: float | None, **metrics: float | None) -> TestLine:
    return TestLine(epoch=epoch, update=2 * epoch + 1, loss=loss, accuracy=accuracy, time=0.0, metrics=metrics)


def delivered(*lines: TrainLine | TestLine) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    old, new = Hears(), Hears()
    loggers = DriverLoggers(old, new)
    loggers.begin()
    for line in lines:
        loggers.deliver(line)
    loggers.end(1)
    return old.heard, new.heard


def test_in_the_driver_an_old_logger_hears_every_batch_of_an_epoch_in_the_units_of_release_1_2() -> None:
    batch = 2.304, 0.125, 64
    heard, _ = delivered(update(0, batch, batch), update(1, batch, batch), validation(0, 2.0, 0.5), update(2, batch))
    assert [heard[0], heard[-1]] == [("on_train_begin",), ("on_train_end",)]
    train = [call for call in heard if call[0] == "train"]
    # The k-th says k + 1, the last one 0; the next epoch begins anew.
    assert [call[3:] for call in train] == [(2, 0), (3, 1), (4, 0), (0, 1), (2, 0)]
    # 2.304 with batches of 64 is 0.036; accuracy is a fraction.
    assert [call[1:3] for call in train] == [(pytest.approx(0.036), pytest.approx(0.125))] * 5
    assert ("test", 2.0, 0.5, 4) in heard
    assert heard.index(("test", 2.0, 0.5, 4)) == heard.index(train[3]) + 1


def test_in_the_driver_a_new_logger_hears_the_means_of_the_epoch_so_far() -> None:
    _, heard = delivered(
        update(0, (4.0, 0.0, 2), (2.0, 1.0, 2), f1=0.5),
        update(1, (1.0, 1.0, 4), f1=0.25),
        validation(0, 0.5, 0.75, f1=0.875),
        update(2, (7.0, 0.0, 2), f1=0.0),
    )
    assert heard[1:-1] == [
        ("train", {"loss": 3.0, "f1": 0.5, "accuracy": 0.5}, 2, 0, 2),
        ("train", {"loss": 2.0, "f1": 0.375, "accuracy": 0.75}, 3, 0, 2),
        ("test", {"loss": 0.5, "accuracy": 0.75, "f1": 0.875}, 0, 0),
        ("train", {"loss": 7.0, "f1": 0.0, "accuracy": 0.0}, 4, 1, 2),
    ]


def test_every_value_is_a_plain_number_also_where_there_is_none() -> None:
    old, new = delivered(update(0, (None, None, 4)), validation(0, None, None, f1=None))
    values = [value for call in old for value in call[1:]]
    values += [
        value for call in new for part in call[1:] for value in (part.values() if isinstance(part, dict) else [part])
    ]
    assert {type(value) for value in values} == {int, float}
    assert math.isnan(old[1][1])
    assert math.isnan(new[2][1]["f1"])


def test_empty_shards_are_no_batches() -> None:
    old, _ = delivered(update(0, (1.0, 1.0, 2), (None, None, 0)), update(1, (1.0, 1.0, 2), (None, None, 0)))
    assert [call[3] for call in old if call[0] == "train"] == [2, 0]


def test_what_an_earlier_driver_delivered_counts_and_is_not_heard_again() -> None:
    old, new = Hears(), Hears()
    loggers = DriverLoggers(old, new)
    loggers.recall(update(0, (4.0, 0.0, 2)))
    loggers.begin()
    loggers.deliver(update(1, (2.0, 1.0, 2)))
    assert old.heard == [("on_train_begin",), ("train", 1.5, 0.5, 0, 0)]
    assert new.heard == [("on_train_begin",), ("train", {"loss": 3.0, "accuracy": 0.5}, 2, 0, 2)]


def test_hooks_that_are_not_there_are_not_called() -> None:
    loggers = DriverLoggers(Deaf(), Deaf())
    loggers.begin()
    loggers.deliver(update(0, (1.0, 1.0, 2)))
    loggers.deliver(validation(0, 1.0, 1.0))
    loggers.end(1)


def test_without_a_logger_the_driver_prints_what_the_engine_printed(capsys: pytest.CaptureFixture[str]) -> None:
    loggers = DriverLoggers(None, None)
    loggers.begin()
    loggers.deliver(update(0, (2.0, 0.25, 4), per_epoch=1))
    loggers.deliver(validation(0, 0.5, 0.123456))
    loggers.end(1)
    said = capsys.readouterr().out.splitlines()
    assert said[:-1] == [
        "--------START TRAINING--------",
        "Iteration 0: tag train_accuracy, simple_value 0.25000",
        "Iteration 0: tag train_loss, simple_value 0.50000",
        "Iteration 1: tag test_accuracy, simple_value 0.12346",
        "Iteration 1: tag test_loss, simple_value 0.50000",
    ]
    assert re.fullmatch(r"--------END TRAINING: completed epoch 1 in time \d+\.\d\d --------", said[-1])


@pytest.mark.parametrize("given", [(LoggerCallback(), None), (None, Hears())])
def test_a_logger_of_either_family_replaces_these_lines(
    given: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    loggers = DriverLoggers(*given)
    loggers.deliver(update(0, (2.0, 0.25, 4)))
    assert capsys.readouterr().out == ""


def test_in_a_quiet_job_a_logger_of_one_s_own_is_called_and_nothing_else_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, own = Hears(), Hears()
    loggers = DriverLoggers(old, None, ProgressLines(1))
    loggers.begin()
    loggers.deliver(update(0, (2.0, 0.25, 4), per_epoch=1))
    loggers.end(1)
    work(WorkerLoggers(0, own, None, quiet=True))
    work(WorkerLoggers(0, None, None, quiet=True))
    assert [call[0] for call in old.heard] == ["on_train_begin", "train", "on_train_end"]
    assert len(own.heard) == 6
    assert capsys.readouterr().out == ""


def work(loggers: WorkerLoggers) -> None:
    loggers.begin()
    loggers.train(0, 2, 3.0, 0.0, 2, {"f1": 0.5})
    loggers.train(0, 2, 1.0, 1.0, 2, {"f1": 1.0})
    loggers.test(0, 0.5, None, {})
    loggers.train(1, 3, 2.0, 1.0, 2, {"f1": 0.25})
    loggers.end()


def test_in_a_worker_an_old_logger_hears_the_step_s_own_loss_and_the_running_accuracy() -> None:
    old = Hears()
    work(WorkerLoggers(7, old, None))
    assert old.heard == [
        ("on_train_begin",),
        ("train", 3.0, 0.0, 1, 7),
        ("train", 1.0, 0.5, 2, 7),
        ("test", 0.5, 0.0, 1, 7),
        ("train", 2.0, 1.0, 3, 7),  # counted over epochs; accuracy begins anew
        ("on_train_end",),
    ]


def test_in_a_worker_a_new_logger_hears_the_step_s_own_values() -> None:
    new = Hears()
    work(WorkerLoggers(7, None, new))
    assert new.heard == [
        ("on_train_begin",),
        ("train", {"loss": 3.0, "accuracy": 0.0, "f1": 0.5}, 1, 0, 2),
        ("train", {"loss": 1.0, "accuracy": 1.0, "f1": 1.0}, 2, 0, 2),
        ("test", {"loss": 0.5}, 1, 0),
        ("train", {"loss": 2.0, "accuracy": 1.0, "f1": 0.25}, 3, 1, 3),
        ("on_train_end",),
    ]


def test_without_a_logger_a_worker_prints_its_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    work(WorkerLoggers(0, None, None))
    said = [re.sub(r"\d{13}", "MS", line) for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "--------START TRAINING--------",
        "Timestamp MS, Iteration 1", "batches :1 3.00000",
        "Timestamp MS, Iteration 2", "batches :2 1.00000",
        "Timestamp MS, Iteration 3", "batches :3 2.00000",
        "--------END TRAINING: completed 3 iterations --------",
    ]  # fmt: skip
