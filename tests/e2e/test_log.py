"""What a job's log has of its training: few lines for people, or WMLA's for each batch, next to what it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.harness import Jobs

QUICKSTART = Path(__file__).parents[2] / "notebooks" / "digits"
TALKING = """
import torch
from fabric_model import FabricModel


def datasets():
    data = torch.utils.data.TensorDataset(torch.randn(16, 2), torch.zeros(16, dtype=torch.long))
    return data, data


if __name__ == "__main__":
    print("before the training")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer).train(2, 4, 2)
    print("after the training")
"""


def test_the_quickstart_s_log_is_one_that_people_read(four_slots: Jobs) -> None:
    job = four_slots.client.submit(QUICKSTART, main="train.py", max_workers=4, progress=False).wait(240)
    lines = str(job.logs()).splitlines()
    assert len(lines) <= 60, "\n".join(lines)
    epochs = [line for line in lines if "Epoch " in line]
    assert [int(re.search(r"Epoch (\d+) of 20, ", line)[1]) for line in epochs][::19] == [1, 20]
    assert "ccuracy: 0.0" not in str(job.logs())
    # The last line has what the page shows.
    assert f"accuracy {100 * job.metrics().test_accuracy:.1f} %; " in epochs[-1]
    assert f"update {job.view.progress.total_updates} of {job.view.progress.total_updates}: " in epochs[-1]
    assert job.view.log == "quiet"


@pytest.mark.parametrize("log", ["quiet", "batches"])
def test_what_a_script_prints_is_in_its_place(four_slots: Jobs, log: str) -> None:
    job = four_slots.client.submit(TALKING, name="talking", max_workers=1, log=log, progress=False).wait(120)
    own = [str(line) for line in job.logs(stream="stdout").lines]
    about = own[own.index("before the training") + 1 : own.index("after the training")]
    if log == "quiet":
        assert [line.partition(",")[0] for line in about] == ["Epoch 1 of 2", "Epoch 2 of 2"]
        assert len(own) == 4
    else:
        assert about[0] == "--------START TRAINING--------"
        assert sum(line.startswith("Iteration 0: tag train_loss, simple_value ") for line in about) == 2
    # Merged with the workers' lines by time, the driver's keep their order.
    merged = [str(line) for line in job.logs().lines]
    assert [line for line in merged if line in own] == own
    micro_batches = [line for line in job.logs("worker").lines if line.text.startswith("batches :")]
    assert len(micro_batches) == (8 if log == "batches" else 0)


def test_a_clone_logs_like_its_job_unless_it_is_told_otherwise(four_slots: Jobs) -> None:
    job = four_slots.client.submit(TALKING, name="talking", max_workers=1, log="batches", progress=False)
    assert job.clone().view.log == "batches"
    assert job.clone(log="quiet").view.log == "quiet"
    for each in four_slots.client.jobs()[:3]:
        each.wait(120)
