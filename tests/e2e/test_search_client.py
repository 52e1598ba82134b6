"""A search by a notebook's client, from the folder to the weights of the best trial in a model."""

from __future__ import annotations

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from edt_sdk import choice, log
from tests.e2e.elastic import DATA
from tests.e2e.test_search import EPOCHS, SCRIPT


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "net"
    made.mkdir()
    (made / "train.py").write_text(SCRIPT)
    return made


def test_the_best_of_a_halving_is_in_a_model_without_another_training(four_slots, folder):
    client = four_slots.client
    search = client.search(
        folder, args=["{lr}", "{width}"], space={"lr": log(1e-4, 1.0), "width": choice(4, 8)},
        metric="test_loss", trials=4, epochs=4, min_epochs=1, eta=2, max_workers=1, seed=5, progress=False,
    )  # fmt: skip
    assert (search.view.spec.algorithm, search.view.spec.order) == ("halving", "rungs")
    search.wait(300)
    best = search.best
    assert (best.state, best.view.epochs) == ("FINISHED", 4)
    assert "best test_loss" in repr(search)
    assert "after 4 epochs" in repr(search)
    width = best.params["width"]
    net = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))
    assert best.load_into(net) is net
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(32, 6, generator=generator)
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(net(x), (x.sum(1) > 0).long())
    assert float(loss) == pytest.approx(best.value, rel=1e-5)
    # Its script, which reads its values from a file, runs once more.
    assert best.job.validate("loss").wait(300).validation().metrics["loss"] == pytest.approx(best.value, rel=1e-5)
    trials = search.trials
    assert sorted(each.view.epochs for each in trials) == EPOCHS
    # Every decision has its reason, and none came from outside.
    assert [each for each in search.decisions() if each.outside] == []
    assert {each.kind for each in search.decisions()} >= {"start", "suggest", "promote", "prune", "end"}
    assert sorted({each.budget for each in search.reports()}) == [1, 2, 3, 4]
    search.delete()


# What a cell has: the functions that `fit` uses are taken along.
CELL = f"""
{DATA}
def datasets():
    return data(64, 1), data(32, 2)

def net(width):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))

def fit(lr, width):
    model = net(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    FabricModel(model, datasets, nn.functional.cross_entropy, optimizer).train(2, 8, 2)
"""


def test_a_function_of_a_notebook_is_searched(four_slots):
    shell = InteractiveShell.instance()
    try:
        shell.user_ns["client"] = four_slots.client
        shell.run_cell(CELL, store_history=True).raise_error()
        search = """search = client.search(fit, space="lr=0.01|1.0 width=4|8", metric="test_loss", algorithm="grid")"""
        shell.run_cell(
            f"{search}\nsearch.wait(300)\nsearch.best.load_into(net(search.best.params['width']))"
        ).raise_error()
        best = shell.user_ns["search"].best
    finally:
        InteractiveShell.clear_instance()
    assert best.params["lr"] == 1.0
    assert best.state == "FINISHED"
