"""What a job has written, as a list: weights for anybody, and what it resumes from itself."""

from __future__ import annotations

import zipfile

import pytest

from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.saved import Saved
from edt_sdk.training.member.model_zip import write
from edt_server.outputs.results import Checkpoint, checkpoints, plan


@pytest.fixture
def paths(tmp_path):
    paths = JobPaths(tmp_path, "ann", "job-1")
    paths.train_dir.mkdir(parents=True)
    return paths


def exact(paths, training, name, *, position, updates, epoch=None):
    body = b"tensors"
    header = Saved(
        training=training, position=position, updates=updates, epoch=epoch, time=12.5, length=len(body)
    ).sealed(b"")
    folder = paths.checkpoints(training)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ckpt"
    path.write_bytes(header.encoded() + body)
    return path


def test_lists_weights_by_epoch_and_then_exact_ones_by_update(paths):
    for name in ("model_epoch_10", "model_epoch_9", "model_epoch_final", "model_epoch_9_optimizer_state", "other"):
        (paths.train_dir / f"{name}.pth").write_bytes(b"1234")
    exact(paths, 0, "update-1200", position=1300, updates=1200)
    exact(paths, 0, "epoch-3", position=900, updates=880, epoch=3)
    exact(paths, 1, "update-4", position=5, updates=4)
    found = checkpoints(paths)
    assert [(c.name, c.kind, c.epoch, c.update, c.training) for c in found] == [
        ("model_epoch_9.pth", "weights", 9, None, None),
        ("model_epoch_10.pth", "weights", 10, None, None),
        ("model_epoch_final.pth", "weights", None, None, None),
        ("epoch-3", "exact", 3, 880, 0),
        ("update-1200", "exact", None, 1200, 0),
        ("update-4", "exact", None, 4, 1),
    ]
    assert found[3] == Checkpoint(
        name="epoch-3", epoch=3, bytes=512 + 7, time=12.5, kind="exact", update=880, training=0
    )


def test_leaves_out_what_nobody_can_resume_from(paths):
    assert checkpoints(paths) == []
    torn = exact(paths, 0, "update-1", position=2, updates=1)
    torn.write_bytes(torn.read_bytes()[:-1])
    folder = paths.checkpoints(0)
    (folder / "update-2.ckpt").write_bytes(b"")
    (folder / ".update-3.ckpt.abcdefgh.tmp").write_bytes(b"half")
    exact(paths, 0, "update-4", position=6, updates=4).rename(folder / "update-4.ckpt.damaged")
    (folder / "update-5.ckpt").symlink_to(folder / "missing")
    assert checkpoints(paths) == []


def test_the_part_model_is_the_final_one_once_there_is_one(paths):
    epochs = [f"model_epoch_{n}{state}.pth" for n in (1, 2) for state in ("", "_optimizer_state")]
    own = ["model_epoch_best.pth", "notes.txt"]
    for name in (*epochs, *own):
        (paths.train_dir / name).write_bytes(b"1234")

    def there(part):
        archive = b"".join(plan(paths, part).chunks)
        return {name for name in (*epochs, *own, *final) if f"model/train/{name}".encode() in archive}

    final = ["model_epoch_final.pth", "model_epoch_final_optimizer_state.pth"]
    assert there("model") == {*epochs, *own}
    for name in final:
        (paths.train_dir / name).write_bytes(b"1234")
    assert there("model") == {*own, *final}
    assert there("all") == {*epochs, *own, *final}
    assert there("checkpoint") >= {*epochs}
    write(paths, paths.result_dir / "saved")
    with zipfile.ZipFile(paths.result_dir / "saved" / f"{paths.job_id}.zip") as archive:
        assert sorted(archive.namelist()) == sorted(f"model/train/{name}" for name in (*own, *final))


def test_the_part_checkpoint_holds_both_kinds_and_nothing_that_comes_and_goes(paths):
    exact(paths, 0, "epoch-1", position=2, updates=1, epoch=1)
    (paths.train_dir / "model_epoch_1.pth").write_bytes(b"1234")
    passing = [exact(paths, 0, "update-1", position=2, updates=1), paths.train_dir / ".model_epoch_2.pth.abcdefgh.tmp"]
    passing[1].write_bytes(b"half")
    planned = plan(paths, "checkpoint")
    for path in passing:
        path.unlink()
    archive = b"".join(planned.chunks)
    assert len(archive) == planned.size
    assert b"checkpoint/training-0/epoch-1.ckpt" in archive
    assert b"model/train/model_epoch_1.pth" in archive
