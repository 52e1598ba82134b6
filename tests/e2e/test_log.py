"""What a job's log has of its training: few lines for people, or WMLA's for each batch, next to what it prints."""

from __future__ import annotations

import pytest

from tests.e2e.harness import Jobs

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


@pytest.mark.parametrize("log", ["quiet", "batches"])
def test_what_a_script_prints_is_in_its_place(four_slots: Jobs, log: str) -> None:
    job = four_slots.client.submit(TALKING, name="talking", max_workers=1, log=log, progress=False).wait(300)
    own = [str(line) for line in job.logs(stream="stdout").lines]
    about = own[own.index("before the training") + 1 : own.index("after the training")]
    if log == "quiet":
        assert [line.partition(":")[0] for line in about] == ["Epoch 1 of 2", "Epoch 2 of 2"]
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
    options = {"name": "talking", "min_workers": 4, "max_workers": 4, "log": "batches", "progress": False}
    holder = four_slots.client.submit(
        TALKING, command="exec sleep 1000", framework="PyTorch", max_workers=4, progress=False
    )
    # They wait for the slots that another has: none of them runs.
    job = four_slots.client.submit(TALKING, **options)
    clones = job.clone(), job.clone(log="quiet")
    assert [clone.view.log for clone in clones] == ["batches", "quiet"]
    for each in (job, *clones, holder):
        each.stop()
