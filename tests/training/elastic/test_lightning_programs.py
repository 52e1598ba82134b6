"""Real programs of Lightning: as with its own strategy, and with one hash however many workers there are."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from edt_sdk.schemas.wire import link as wire
from tests.training.elastic import lightning_programs as programs
from tests.training.elastic.test_own_loop import ended, job_of
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own advice

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "programs.md"
# In `make test`: the program with several steps in an update.
SHORT = ("gan",)


def some(names: tuple[str, ...]) -> list[object]:
    # Three processes, each of which imports Lightning, and three sizes.
    return [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in names]


def flat(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([tensor.flatten().double() for tensor in module.state_dict().values()])


def checkpoints(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What is in the checkpoints, one for each epoch."""

    def content(saved: dict[str, Any]) -> tuple[Any, ...]:
        weights = {key: value.tolist() for key, value in saved["state_dict"].items()}
        return *(str(saved[part]) for part in ("epoch", "global_step", "loops", "lr_schedulers")), weights

    found = {path.name: torch.load(path, weights_only=True) for path in (folder / "checkpoints").glob("*.ckpt")}
    assert len(found) == programs.EPOCHS
    return {name: content(saved) for name, saved in found.items()}


@pytest.mark.parametrize("name", some(programs.EQUAL))
def test_a_program_is_that_of_stock_lightning(name: str, tmp_path: Path) -> None:
    plain, stock = programs.fitted(name, tmp_path / "plain", plain=True)
    trainer, ours = programs.fitted(name, tmp_path / "ours")
    assert float((flat(stock) - flat(ours)).norm() / flat(stock).norm()) < 1e-5
    assert trainer.global_step == plain.global_step
    assert {key: pytest.approx(float(value), rel=1e-4) for key, value in plain.callback_metrics.items()} == {
        key: float(value) for key, value in trainer.callback_metrics.items()
    }


@pytest.mark.parametrize("name", some(programs.NAMES))
def test_one_three_and_two_workers_with_a_death_have_one_hash(name: str, tmp_path: Path) -> None:
    programs.main(tmp_path, name)
    (alone,) = (path.read_text() for path in tmp_path.glob("end-*"))
    # Where there are several steps, the worker is lost between them: the others go back to the first one.
    end = "8-step" if name in ("gan", "frequencies") else "8"
    with job_of("lightning_programs.py", programs.SHARDS, args=(name,)) as job:
        for place in ("3", end):
            (job.root / f"hold-{place}").touch()

        def at(worker: int, place: str) -> bool:
            path = job.root / f"at-{job.children[f'w{worker}'].process.pid}"
            return path.exists() and path.read_text() == place

        job.prepare(0)
        job.generation(1, 0)
        until(lambda: at(0, "3"), "update 3")
        job.prepare(1, 2)
        job.generation(2, 0, 1, 2)
        (job.root / "hold-3").unlink()
        job.joined(2)
        until(lambda: all(at(worker, end) for worker in range(3)), f"place {end}")
        # The first of them writes checkpoints and logs.
        gone, *left = (0, 1, 2) if name == "classifier" else (1, 0, 2)
        job.kill(gone)
        (job.root / f"hold-{end}").unlink()
        for worker in left:
            job.expect(f"w{worker}", wire.Broken)
        job.generation(3, *left)
        job.joined(3)
        ended(job, *left)
        found = {path.read_text() for path in job.root.glob("end-*")}
        if name == "classifier":
            assert checkpoints(job.root) == checkpoints(tmp_path)
            rows = list(csv.DictReader((job.root / "logs/version_0/metrics.csv").open()))
            steps = [int(row["step"]) for row in rows if row["train_loss_step"]]
            assert steps == [step for step in range(12) if step != 8], "the row of update 8 is gone with its worker"
            assert [int(row["step"]) for row in rows if row["val_loss"]] == [3, 7, 11]
    assert found == {alone}


@pytest.mark.long
@pytest.mark.parametrize("name", ["classifier", "gan"])
def test_a_job_suspended_goes_on_from_its_checkpoint(name: str, tmp_path: Path) -> None:
    programs.main(tmp_path, name)
    (alone,) = (path.read_text() for path in tmp_path.glob("end-*"))
    with job_of("lightning_programs.py", programs.SHARDS, args=(name,)) as job:
        (job.root / "hold-5").touch()
        job.prepare(0, 1)
        job.generation(1, 0, 1)
        until(lambda: [path.read_text() for path in job.root.glob("at-*")] == ["5", "5"], "update 5")
        job.generation(2, told=(0, 1))
        (job.root / "hold-5").unlink()
        for worker in ("w0", "w1"):
            job.expect(worker, wire.Left)
            assert job.exit_code(worker) == 0, job.children[worker].text
        job.prepare(2)
        job.generation(3, 2)
        ended(job, 2)
        assert {path.read_text() for path in job.root.glob("end-*")} == {alone}


def test_the_guide_has_every_program() -> None:
    (section,) = re.findall(r"^## With Lightning.*?^(?=## )", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (.+?) \| trains right \|", section, re.MULTILINE)
    assert sorted(rows) == sorted(name.replace("_", " ") for name in programs.NAMES)
