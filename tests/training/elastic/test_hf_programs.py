"""Programs of Hugging Face's users: as the Trainer trains them, and with one hash however many workers there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from edt_sdk.schemas.wire import link as wire
from tests.training.elastic.test_own_loop import ended, hold, job_of, let_go
from tests.training.stand_in import StandIn
from tests.waiting import until

pytest.importorskip("transformers")
END = 99  # where programs are held at the end of the training
NAMES = ("causal_lm", "lora", "vision", "seq2seq")
# The first evaluates, saves, stops early and loads its best weights.
IN_JOBS = [name if name == NAMES[0] else pytest.param(name, marks=pytest.mark.long) for name in NAMES]


def flat(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])


def seen(history: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """What callbacks see, without times and without the operations, which depend on padding."""
    times = ("runtime", "per_second", "total_flos")
    return [
        (name, pytest.approx(value, rel=1e-4)) for line in history for name, value in line.items()
        if not name.endswith(times)
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_trainer(name: str, tmp_path: Path) -> None:
    from edt_sdk.transformers import ElasticTrainer
    from tests.training.elastic import hf_programs

    plain, result = hf_programs.begin(name, tmp_path / "plain", hf_programs.PlainTrainer)
    made, ours = hf_programs.begin(
        name, tmp_path / "ours", ElasticTrainer, global_batch_size=hf_programs.BATCH, shards=hf_programs.SHARDS
    )
    expected, found = flat(plain.model), flat(made.model)
    assert float((expected - found).norm() / expected.norm()) < 1e-5
    assert ours.global_step == result.global_step
    assert ours.training_loss == pytest.approx(result.training_loss, rel=1e-5)
    assert [(name, value) for name, value in seen(made.state.log_history)] == seen(plain.state.log_history)


def at(job: StandIn, worker: int, place: Any) -> bool:
    path = job.root / f"at-{job.children[f'w{worker}'].process.pid}"
    return path.exists() and path.read_text() == str(place)


def replace(job: StandIn, number: int, gone: int, left: int, new: int, *, at: int) -> None:
    """Kill a worker while the script is held there. One of the others goes on with a new one as generation `number`."""
    job.prepare(new)
    job.kill(gone)
    let_go(job, at)
    job.expect(f"w{left}", wire.Broken)
    job.generation(number, left, new)
    job.joined(number)


def ends(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob("end-*")]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", IN_JOBS)
def test_one_three_and_two_workers_with_a_death_have_one_hash(name: str, tmp_path: Path) -> None:
    """The worker that writes is killed where it is about to evaluate, and another one joins the others there."""
    from tests.training.elastic import hf_programs

    hf_programs.main(tmp_path, name)
    (alone,) = ends(tmp_path)
    with job_of("hf_programs.py", hf_programs.SHARDS, args=(name,)) as job:
        hold(job, 2, 8)
        job.prepare(0)
        job.generation(1, 0)
        until(lambda: at(job, 0, 2), "update 2")
        job.prepare(1, 2)
        job.generation(2, 0, 1, 2)
        let_go(job, 2)
        job.joined(2)
        until(lambda: at(job, 0, 8) and at(job, 1, 8) and at(job, 2, 8), "update 8")
        replace(job, 3, 0, 1, 3, at=8)
        ended(job, 1, 3)
        found = ends(job.root)
        written = (job.root / "seen").read_text().splitlines()
        folders = sorted(path.name for path in (job.root / "out").glob("checkpoint-*"))
    assert found == [alone, alone]
    # The line of the update at which it was killed is there already.
    assert written == (tmp_path / "seen").read_text().splitlines()
    assert folders == sorted(path.name for path in (tmp_path / "out").glob("checkpoint-*"))


@pytest.mark.long  # three processes again
def test_a_worker_that_joins_after_the_training_ends_it_for_the_one_that_is_lost(tmp_path: Path) -> None:
    """It is there for what the script does after `train()`, and has what `train()` returned."""
    from tests.training.elastic import hf_programs

    hf_programs.main(tmp_path, "causal_lm")
    (alone,) = ends(tmp_path)
    with job_of("hf_programs.py", hf_programs.SHARDS, args=("causal_lm",)) as job:
        hold(job, END)
        job.prepare(0, 1)
        job.generation(1, 0, 1)
        until(lambda: at(job, 0, END) and at(job, 1, END), "the end of the training")
        replace(job, 2, 0, 1, 2, at=END)
        ended(job, 1, 2)
        assert ends(job.root) == [alone, alone]
        ours, theirs = (folder / "final" / "model.safetensors" for folder in (job.root, tmp_path))
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.long
def test_a_job_suspended_goes_on_where_it_was(tmp_path: Path) -> None:
    """From the job's own checkpoint, between two of the Trainer's."""
    from tests.training.elastic import hf_programs

    hf_programs.main(tmp_path, "causal_lm")
    (alone,) = ends(tmp_path)
    with job_of("hf_programs.py", hf_programs.SHARDS, args=("causal_lm",)) as job:
        hold(job, 6)
        job.prepare(0, 1)
        job.generation(1, 0, 1)
        until(lambda: at(job, 0, 6) and at(job, 1, 6), "update 6")
        job.generation(2, told=(0, 1))
        let_go(job, 6)
        for name in ("w0", "w1"):
            job.expect(name, wire.Left)
            assert job.exit_code(name) == 0, job.children[name].text
        job.prepare(2)
        job.generation(3, 2)
        ended(job, 2)
        assert ends(job.root) == [alone]
