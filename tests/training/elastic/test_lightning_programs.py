"""Real programs of Lightning: as with its own strategy, and with one hash however many workers there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from edt_sdk.schemas.wire import link as wire
from tests.training.elastic import lightning_programs as programs
from tests.training.elastic.test_own_loop import ended, job_of
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own advice

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "programs.md"
# One of each kind of optimization in `make test`.
SHORT = ("classifier", "gan")


def some(names: tuple[str, ...]) -> list[object]:
    # Three processes, each of which imports Lightning, and three sizes.
    return [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in names]


def flat(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([tensor.flatten().double() for tensor in module.state_dict().values()])


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
        job.kill(1)
        (job.root / f"hold-{end}").unlink()
        for worker in (0, 2):
            job.expect(f"w{worker}", wire.Broken)
        job.generation(3, 0, 2)
        job.joined(3)
        ended(job, 0, 2)
        found = {path.read_text() for path in job.root.glob("end-*")}
    assert found == {alone}


def test_the_guide_has_every_program() -> None:
    (section,) = re.findall(r"^## With Lightning.*?^(?=## )", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (.+?) \| trains right \|", section, re.MULTILINE)
    assert sorted(rows) == sorted(name.replace("_", " ") for name in programs.NAMES)
