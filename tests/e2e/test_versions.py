"""Versions of models that the elastic engine has trained: they load, and trained again they are equal to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edt_sdk import choice
from tests.e2e.elastic import DATA
from tests.e2e.harness import Jobs

SCRIPT = f"""
{DATA}
import sys

def datasets():
    return data(64, 1), data(32, 2)

torch.manual_seed(int(sys.argv[1]))
model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.2), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
FabricModel(model, datasets, nn.functional.cross_entropy, optimizer).train(3, 8, 2, checkpoint_freq=1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "net"
    made.mkdir()
    (made / "train.py").write_text(SCRIPT)
    return made


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 2))


def test_a_version_is_trained_again_on_another_number_of_workers_to_the_same_bits(
    four_slots: Jobs, folder: Path
) -> None:
    client = four_slots.client
    job = client.submit(folder, args=["1"], max_workers=2, progress=False).wait(300, progress=False)
    version = client.register(job, "repeated", alias="champion")
    assert job.view.progress is not None
    assert version.metrics["test_loss"] == job.view.progress.test_loss
    assert version.view.software["torch"] == str(torch.__version__)
    early = client.register(job, "repeated", epoch=1, tags="early")
    assert [each.id for each in client.versions("repeated")] == ["repeated/2", "repeated/1"]
    final, first = job.load_into(net()), early.load_into(net())
    four_slots.client.job(job.id).delete()
    loaded = client.version("repeated@champion").load_into(net())
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), final.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first.parameters(), final.parameters(), strict=True))
    again = client.version("repeated").reproduce()
    assert "is being trained again" in repr(again) or again.job.state.final
    again.job.update(max_workers=4)
    assert again.wait(300, progress=False).equal, again.comparison
    assert repr(again) == f"repeated/2 was trained again by {again.job.id}: equal, bit by bit."
    assert version.compare(again.job).equal, "the final weights too"
    other = client.submit(folder, args=["2"], max_workers=1, progress=False).wait(300, progress=False)
    assert version.compare(other).differences == ("the arguments",)
    assert not version.compare(other).equal
    # Another training begins with its weights, whatever the alias means later.
    more = client.submit(folder, args=["3"], max_workers=1, warm_start="repeated@champion", progress=False)
    assert more.view.warm_start == "repeated/1"
    version.remove_alias("champion")
    version.delete()
    more.wait(300, progress=False)
    begun, before = (four_slots.client.job(each.id).metrics().train[0]["loss"] for each in (more, other))
    assert begun < before
    assert more.clone(name="once more").wait(300, progress=False).view.warm_start == "repeated/1"


def test_the_best_trial_of_a_search_is_registered_with_its_values(four_slots: Jobs, folder: Path) -> None:
    client = four_slots.client
    (folder / "config.json").write_text("{}")
    (folder / "train.py").write_text(SCRIPT.replace("int(sys.argv[1])", 'json.load(open("config.json"))["seed"]'))
    (folder / "train.py").write_text("import json\n" + (folder / "train.py").read_text())
    search = client.search(
        folder, space={"seed": choice(1, 2)}, algorithm="grid", metric="test_loss", max_workers=1, progress=False
    ).wait(300)
    assert search.best is not None
    version = client.register(search.best, "best-net")
    assert version.view.search == search.id
    search.delete(jobs=True)
    assert version.reproduce().wait(300, progress=False).equal
