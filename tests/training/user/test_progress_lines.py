"""Which lines a quiet log has of a training, and how many bytes they are; the clock is that of the metrics."""

from __future__ import annotations

import pytest

from edt_sdk.training.records.recorder import TestLine, TrainLine
from edt_sdk.training.user.logging_hooks import DriverLoggers
from edt_sdk.training.user.progress_lines import EVERY_EPOCH, ProgressLines


def run(epochs: int, updates: int, pace: float, *, tests: int = 1, lines: ProgressLines | None = None) -> list[str]:
    """The lines of a training with so many updates an epoch, `pace` seconds each, validated every `tests` epochs."""
    lines = lines or ProgressLines(epochs)
    texts: list[str] = []
    for update in range(epochs * updates):
        epoch, now = update // updates, 1000 + pace * update
        line = TrainLine(
            update=update, epoch=epoch, samples=128, loss=0.5, accuracy=0.992, world=4, time=now, shards=(),
            updates_per_epoch=updates,
        )  # fmt: skip
        texts.append(lines.train(line, {"loss": 0.5, "accuracy": 0.992, "f1": 0.75}))
        if tests and (update + 1) % (updates * tests) == 0:
            texts.append(lines.test(TestLine(epoch=epoch, update=update, loss=0.25, accuracy=0.9, time=now)))
    texts.append(lines.end())
    return [text for text in texts if text]


def epochs_of(texts: list[str]) -> list[int]:
    return [int(text.split()[1]) for text in texts]


def test_a_line_reads_like_a_sentence_with_percentages() -> None:
    assert run(2, 3, 0.5) == [
        "Epoch 1 of 2: loss 0.5, accuracy 99.2 %, f1 0.75; test loss 0.25, accuracy 90.0 %; 256 samples/s, 4 workers",
        "Epoch 2 of 2: loss 0.5, accuracy 99.2 %, f1 0.75; test loss 0.25, accuracy 90.0 %; 256 samples/s, 4 workers",
    ]


def test_a_short_training_has_a_line_for_every_epoch() -> None:
    assert epochs_of(run(20, 6, 0.15)) == list(range(1, 21))
    assert epochs_of(run(3, 6, 0.15, tests=0)) == [1, 2, 3]


def test_after_that_ten_seconds_lie_between_two_lines_and_the_last_epoch_has_one() -> None:
    # An epoch takes 3 s.
    texts = run(100, 3, 1.0)
    assert epochs_of(texts) == [*range(1, EVERY_EPOCH + 1), *range(EVERY_EPOCH + 4, 100, 4), 100]
    told = [text for text in texts if text.endswith("; from now on a line every 10 s")]
    assert epochs_of(told) == [EVERY_EPOCH + 4], "where the numbers jump for the first time"
    assert epochs_of(run(103, 3, 1.0, tests=0))[-1] == 103


def test_a_long_epoch_has_a_line_a_minute() -> None:
    texts = run(2, 100, 7.0)
    assert [text.split(":")[0].split("update ")[1].split()[0] for text in texts[:4]] == ["10", "19", "28", "37"]
    assert "test" not in texts[0]
    assert epochs_of(texts).count(1) == 11
    assert texts[-1].startswith("Epoch 2 of 2: ")


def test_a_validation_of_an_epoch_without_a_line_is_in_the_next_one() -> None:
    lines = ProgressLines(1000)
    run(EVERY_EPOCH, 1, 0.01, tests=0, lines=lines)
    at = 1000 + 0.01 * EVERY_EPOCH
    texts = []
    for epoch, now in ((EVERY_EPOCH, at), (EVERY_EPOCH + 1, at + 30), (EVERY_EPOCH + 2, at + 31)):
        update = TrainLine(
            update=epoch, epoch=epoch, samples=1, loss=0.5, accuracy=None, world=1, time=now, shards=(),
            updates_per_epoch=1,
        )  # fmt: skip
        texts.append(lines.train(update, {"loss": 0.5}))
        if epoch == EVERY_EPOCH:
            texts.append(lines.test(TestLine(epoch=epoch, update=epoch, loss=0.25, accuracy=None, time=now)))
    shown = [text for text in texts if text]
    assert len(shown) == 1
    assert "loss 0.5; test (epoch 21) loss 0.25; " in shown[0]
    assert shown[0].endswith("1 worker; from now on a line every 10 s")


@pytest.mark.parametrize(("updates", "pace"), [(6, 0.01), (50, 0.1), (600, 0.1), (6000, 0.1)])
def test_ten_minutes_are_a_few_kilobytes(updates: int, pace: float) -> None:
    texts = run(round(600 / pace / updates), updates, pace)
    assert len(texts) <= EVERY_EPOCH + 600 / 10 + 1
    assert sum(len(text) + 1 for text in texts) < 20_000


def test_a_loss_that_is_no_number_is_shown() -> None:
    line = TrainLine(
        update=0, epoch=0, samples=1, loss=None, accuracy=None, world=1, time=1.0, shards=(), updates_per_epoch=1
    )
    lines = ProgressLines(1)
    lines.train(line, {"loss": float("nan")})
    assert lines.end() == "Epoch 1 of 1: loss nan; 1 worker"


def test_a_restarted_driver_prints_only_what_the_one_before_did_not(capsys: pytest.CaptureFixture[str]) -> None:
    def update(number: int) -> TrainLine:
        return TrainLine(
            update=number, epoch=number, samples=4, loss=1.0, accuracy=0.5, world=1, time=float(number),
            shards=((1.0, 0.5, 4),), workers=(0,), updates_per_epoch=1,
        )  # fmt: skip

    second = DriverLoggers(None, None, ProgressLines(4))
    second.recall(update(0))
    second.recall(update(1))
    second.begin()
    second.deliver(update(2))
    second.deliver(update(3))
    second.end(4)
    texts = capsys.readouterr().out.splitlines()
    # The first driver held the line of epoch 2 back for its validation.
    assert epochs_of(texts) == [2, 3, 4]
    assert "accuracy 50.0 %" in texts[0]
