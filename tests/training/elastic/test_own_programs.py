"""Real programs with their own loops: as plain training, and with one hash however many workers there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.training.elastic import programs
from tests.training.elastic.test_own_loop import ended, hold, job_of, let_go, lose
from tests.waiting import until

# One of each kind in `make test`: several models, what is kept of a batch, and what one worker makes for all.
SHORT = ("two_tasks", "contrast", "actor_and_critic")
IN_JOBS = [
    name if name in SHORT else pytest.param(name, marks=pytest.mark.long)  # three processes and three sizes each
    for name in programs.PROGRAMS
]
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def found_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def needs(name: str) -> None:
    if name == "timm_resnet":
        pytest.importorskip("timm", reason="timm is not installed, and with it torchvision")


@torch.no_grad()
def flat(models: tuple[nn.Module, ...]) -> torch.Tensor:
    return torch.cat([tensor.flatten().double() for model in models for tensor in model.state_dict().values()])


def result(name: str, *, plain: bool) -> tuple[nn.Module, ...]:
    *_, models = programs.begin(name, plain=plain)
    return models


@pytest.mark.parametrize("name", [each.__name__ for each in programs.EQUAL])
def test_a_loop_of_its_own_is_the_plain_loop(name: str) -> None:
    plain, ours = flat(result(name, plain=True)), flat(result(name, plain=False))
    assert float((plain - ours).norm() / plain.norm()) < 1e-5


@pytest.mark.parametrize("name", [each.__name__ for each in programs.DRAWING])
def test_the_plain_loop_of_a_program_that_draws_runs(name: str) -> None:
    needs(name)
    assert flat(result(name, plain=True)).isfinite().all()


@pytest.mark.parametrize("name", IN_JOBS)
def test_one_three_and_two_workers_with_a_death_have_one_hash(name: str, tmp_path: Path) -> None:
    needs(name)
    programs.run(tmp_path, name)
    (alone,) = (path.read_text() for path in tmp_path.glob("end-*"))
    with job_of("programs/__main__.py", programs.SHARDS, args=(name,)) as job:
        hold(job, 3, 8)

        def at(number: int) -> bool:
            path = job.root / f"at-{job.children['w0'].process.pid}"
            return path.exists() and path.read_text() == str(number)

        job.prepare(0)
        job.generation(1, 0)
        until(lambda: at(3), "update 3")
        job.prepare(1, 2)
        job.generation(2, 0, 1, 2)
        let_go(job, 3)
        job.joined(2)
        until(lambda: at(8), "update 8")
        lose(job, 3, 1, 0, 2, at=8)
        ended(job, 0, 2)
        found = {path.read_text() for path in job.root.glob("end-*")}
    assert found == {alone}
