"""A full disk under rank 0: the training waits for room, and each line and each file is there once."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.training.checkpoints.rolling import Keeper
from edt_sdk.training.records import full_disk
from edt_sdk.training.records.recorder import CommitLine, Recorder
from tests.server.store.trouble import fill, small_disk
from tests.training.states import trained


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(full_disk, "PAUSE", 0.0)
    with small_disk(tmp_path, 2 << 20) as mounted:
        if not mounted:
            pytest.skip("a small disk of its own can only be mounted as root, with the right to (CAP_SYS_ADMIN)")
        yield tmp_path


def makes_room(ballast: Path, waits: int) -> Callable[[], bool]:
    """Make room at the last of so many waits."""
    left = list(range(waits))

    def patient() -> bool:
        if left.pop() == 0:
            ballast.unlink()
        return True

    return patient


def line(update: int) -> CommitLine:
    return CommitLine(update=update, epoch=0, generation=1, world=1, time=1.0, shards=())


def test_a_line_of_the_log_waits_for_room(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(disk / "commits", disk / "metrics", patient=makes_room(disk / "ballast", 3))
    fill(disk / "ballast")
    for update in range(100):  # more than the page that the file has
        recorder.commit(line(update))
    recorder.close()
    written = [json.loads(text)["update"] for text in (disk / "commits").read_text().splitlines()]
    assert written == list(range(100))
    # How long it waited is up to the machine.
    assert [re.split(r" \(|, after", record.message)[0] for record in caplog.records] == [
        "The disk is full",
        "There is room on the disk again",
    ]


def test_the_final_files_and_a_suspended_training_wait_for_room(disk: Path) -> None:
    paths = JobPaths(disk, "ann", "job-1")
    paths.job_dir.mkdir(parents=True)
    model, optimizer = trained("adam", steps=1)
    for patience in (2, 2):
        fill(disk / "ballast")
        keeper = Keeper(paths, 0, memory=None, interval=1e9, patient=makes_room(disk / "ballast", patience))
        keeper.final(model, optimizer)
        keeper.close()
        names = {path.name for path in paths.train_dir.iterdir()}
        assert names == {"model_epoch_final.pth", "model_epoch_final_optimizer_state.pth"}, "and no half files"


def test_without_patience_the_error_passes_through(disk: Path) -> None:
    recorder = Recorder(disk / "commits", disk / "metrics")
    fill(disk / "ballast")
    with pytest.raises(OSError, match="No space left") as caught:
        recorder.commit(line(0))
    assert caught.value.errno == errno.ENOSPC


def test_lines_of_loggers_wait_for_room(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(disk / "ballast")
    patient = makes_room(disk / "ballast", 3)
    monkeypatch.setattr(full_disk.time, "sleep", lambda _: patient())
    full_disk.wait_for_lines(disk)
    assert not (disk / "ballast").exists()
