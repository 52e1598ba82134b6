"""A model that is divided among workers that come and go. The test plays the supervisor."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import edt_sdk.elastic as edt
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.wire import link as wire
from tests.training.elastic.test_own_loop import (
    ended,
    hold,
    job_of,
    let_go,
    lose,
    notes,
    reached,
    run_alone,
    without_pids,
)
from tests.training.stand_in import StandIn
from tests.waiting import until

SCRIPT, UPDATES = "sharded_loop.py", 25


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("alone")
    return run_alone(SCRIPT, folder), torch.load(folder / "best.pth")


@contextmanager
def sharded(interval: float = 1000) -> Iterator[StandIn]:
    with job_of(SCRIPT, 4) as job:
        job.job = msgspec.structs.replace(job.job, mode="fast", checkpoint_interval=interval)
        yield job


def last_attempt(told: list[Any]) -> list[Any]:
    """Return the notes without those of updates that were made once more."""
    return list({tuple(note[:2]): note for note in told}.values())


def check(job: StandIn, alone: Any) -> None:
    """Losses and weights are those of the plain training, but for rounding."""
    told, best = alone
    for ours, theirs in zip(last_attempt(without_pids(notes(job.root))), told, strict=True):
        assert ours[:1] + ours[1:] == theirs[:1] + [pytest.approx(value, rel=1e-4) for value in theirs[1:]]
    found = torch.load(job.paths.train_dir / "best.pth")
    assert list(found) == list(best)
    for name, tensor in best.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-5)
    assert torch.load(job.paths.final(0)).keys() == best.keys()
    commits = [json.loads(line) for line in job.paths.commits(0).read_text().splitlines()]
    assert [commit["update"] for commit in commits] == list(range(UPDATES))
    assert sorted(index for commit in commits[:5] for shard in commit["shards"] for index in shard["indices"]) == [
        *range(53)
    ]


def test_parts_move_from_one_worker_to_two_and_back(alone: Any) -> None:
    with sharded() as job:
        hold(job, 1, 3)
        job.prepare(0)
        job.generation(1, 0)
        job.joined(1)
        job.prepare(1)
        job.generation(2, 0, 1)
        let_go(job, 1)
        job.joined(2)
        job.generation(3, 1)
        let_go(job, 3)
        job.joined(3)
        assert ended(job, 1) == UPDATES
        check(job, alone)


@pytest.mark.long  # several processes and sizes
def test_four_workers_and_then_two(alone: Any) -> None:
    with sharded() as job:
        hold(job, 1, 3)
        job.prepare(0)
        job.generation(1, 0)
        job.joined(1)
        job.prepare(1, 2, 3)
        job.generation(2, 0, 1, 2, 3)
        let_go(job, 1)
        job.joined(2)
        job.generation(3, 3, 1)
        let_go(job, 3)
        job.joined(3)
        assert ended(job, 1, 3) == UPDATES
        check(job, alone)


@pytest.mark.long  # several processes and sizes
def test_where_a_worker_dies_the_others_go_back_to_the_newest_checkpoint(alone: Any) -> None:
    with sharded(interval=0) as job:
        hold(job, 2)
        job.prepare(0, 1, 2)
        job.generation(1, 0, 1, 2)
        job.joined(1)
        reached(job, "begin", 2, 10)
        lose(job, 2, 1, 0, 2, at=2)
        assert ended(job, 0, 2) == UPDATES
        assert "the job goes back from update 10" in job.children["w0"].text
        check(job, alone)


@pytest.mark.long  # several processes and sizes
def test_a_worker_that_dies_before_the_first_checkpoint_costs_all_updates(alone: Any) -> None:
    with sharded() as job:
        hold(job, 1)
        job.prepare(0, 1)
        job.generation(1, 0, 1)
        reached(job, "begin", 1, 5)
        lose(job, 2, 0, 1, at=1)
        assert ended(job, 1) == UPDATES
        check(job, alone)


@pytest.mark.long  # several processes and sizes
def test_a_job_suspended_goes_on_with_more_workers(alone: Any) -> None:
    with sharded() as job:
        hold(job, 2)
        job.prepare(0, 1)
        job.generation(1, 0, 1)
        reached(job, "begin", 2, 10)
        job.generation(2, told=(0, 1))
        let_go(job, 2)
        for name in ("w0", "w1"):
            job.expect(name, wire.Left)
            assert job.exit_code(name) == 0, job.children[name].text
        (folder,) = job.paths.checkpoints(0).glob("parts-*")
        as_torch_reads_it(folder)
        job.prepare(2, 3, 4)
        job.generation(3, 2, 3, 4)
        assert ended(job, 2, 3, 4) == UPDATES
        check(job, alone)
        final = as_torch_reads_it(job.paths.train_dir / "model_epoch_final_sharded")
        for name, tensor in torch.load(job.paths.final(0)).items():
            assert torch.equal(final["model"][name], tensor)


def as_torch_reads_it(folder: Path) -> dict[str, Any]:
    """Return a checkpoint as a program with torch alone reads it."""
    dcp_to_torch_save(folder, folder.with_suffix(".pth"))
    content: dict[str, Any] = torch.load(folder.with_suffix(".pth"))
    assert content["optimizers"]["optimizer"]["state"]["blocks.0.wide.weight"]["exp_avg"].shape == (24, 10)
    return content


@pytest.mark.long  # several processes and sizes
def test_a_worker_that_dies_while_it_joins_costs_nothing(alone: Any) -> None:
    with sharded() as job:
        hold(job, 1)
        job.prepare(0, 1)
        job.generation(1, 0, 1)
        reached(job, "begin", 1, 5)
        job.prepare(2, 3)
        job.kill(2)
        job.generation(2, 0, 1, 2, 3)
        let_go(job, 1)
        job.generation(3, 0, 1, 3)
        job.joined(3)
        assert ended(job, 0, 1, 3) == UPDATES
        check(job, alone)
        assert "goes back" not in job.children["w0"].text


@pytest.mark.long
def test_without_a_supervisor_workers_write_a_checkpoint_and_end(alone: Any) -> None:
    with sharded() as job:
        hold(job, 2)
        job.prepare(0, 1)
        job.generation(1, 0, 1)
        reached(job, "begin", 2, 10)
        for name in ("w0", "w1"):
            job.hang_up(name)
            until(lambda name=name: "the supervisor is gone" in job.children[name].text, "they know")
        let_go(job, 2)
        assert [job.exit_code(name) for name in ("w0", "w1")] == [1, 1]
        job.prepare(2)
        job.generation(2, 2)
        assert ended(job, 2) == UPDATES
        check(job, alone)


@pytest.mark.long
def test_workers_on_two_hosts_are_refused() -> None:
    with sharded() as job:
        job.prepare(0)
        job.prepare(1, interface="127.0.0.2")
        job.generation(1, 0, 1)
        until(lambda: "a resource group of one host" in job.children["w0"].text, "the refusal")
        assert job.exit_code("w0") == 1


class Layer(nn.Linear):
    """The block of the models below."""


class Whole(nn.Module):
    def __init__(self, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(3, 3), Layer(3, 3)])
        for name, part in parts.items():
            setattr(self, name, part)


class Average:
    def __init__(self, model: nn.Module) -> None:
        self.state_dict = lambda: {"weights": [p.detach().clone() for p in model.parameters()]}
        self.load_state_dict = print


def tied() -> Whole:
    model = Whole()
    model.layers[0].weight = model.layers[1].weight
    return model


def hooked() -> Whole:
    model = Whole()
    model.layers[0].weight.register_hook(lambda gradient: gradient)
    return model


def refused(model: nn.Module | None = None, blocks: Any = (Layer,), **things: Any) -> str:
    model = Whole() if model is None else model
    things.setdefault("opt", torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises((InvalidRequest, Unprocessable)) as error:
        edt.elastic(model=model, parallel=edt.Sharded(*blocks), **things)
    return str(error.value)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: refused(blocks=()), "edt.Sharded(Block)"),
        (lambda: refused(blocks=(nn.Conv2d,)), "has no Conv2d in it"),
        (lambda: refused(Whole(last=nn.Parameter(torch.tensor(1.0)))), "shape [1] in place of []"),
        (lambda: refused(tied()), "shared by two units"),
        (lambda: refused(hooked()), "layers.0.weight has a hook"),
        (lambda: refused(other=nn.Linear(1, 1)), "got model, other"),
        (lambda: refused(ema=torch.optim.swa_utils.AveragedModel(Whole())), "EMA"),
        (lambda: refused(mean=Average(Whole())), "EMA"),
        (lambda: refused(scaler=torch.amp.GradScaler("cpu", init_scale=2.0)), "bfloat16"),
        (lambda: refused(m := Whole(), opt=torch.optim.Adafactor(m.parameters())), "such as AdamW"),
    ],
)
def test_what_cannot_be_divided_is_refused_with_the_line_that_mends_it(made: Callable[[], str], why: str) -> None:
    assert why in made()


def test_a_job_in_mode_exact_is_refused_before_any_worker() -> None:
    with job_of(SCRIPT, 4) as job:
        job.start_driver()
        failed = job.expect("driver", wire.Failed)
        assert failed.final
        assert "mode='fast'" in failed.message
