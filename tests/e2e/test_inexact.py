"""A program with weights that depend on the number of workers is told so, wherever the job is looked at."""

from __future__ import annotations

import pytest

from edt_sdk.display.card import progress_words
from tests.e2e.harness import Jobs
from tests.waiting import until

ANNEALED = """
import sys

import torch
from fabric_model import FabricModel


class Annealed(torch.nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * min(1.0, self.calls / 100)


def datasets():
    return torch.utils.data.TensorDataset(torch.randn(96, 4), torch.arange(96) % 3), None


if __name__ == "__main__":
    model = Annealed(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer).train(2, 8, 4)
"""


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_counter_in_the_model_is_found_and_said_everywhere(four_slots: Jobs, workers: int) -> None:
    job = four_slots.client.submit(ANNEALED, name="annealed", max_workers=workers, progress=False).wait(240)
    said = job.view.progress.inexact
    assert "so the weights depend on the number of workers" in said
    assert "the model: model.calls. Register it as a buffer" in said
    assert "not exact" in progress_words(job.view)
    assert f"edt: Not exact: {said}" in str(job.logs())
    until(lambda: "Not exact. In update" in str(job.story()), "the line of the story")
    assert str(job.story()).count("Not exact. In update") == 1
