"""The `.pth` files: names, content, atomicity."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from edt_sdk.training.checkpoints import model_files as checkpoint


def model() -> nn.Module:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4, bias=False))
    net[2].weight = net[0].weight
    flat = torch.randn(10_000)
    with torch.no_grad():
        net[0].bias.set_(flat[:4])
    return net


def test_files_are_state_dicts_that_load_safely_and_hold_no_foreign_memory(tmp_path: Path) -> None:
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    folder = tmp_path / "model" / "train"
    checkpoint.save(folder, 5, net, optimizer)
    assert sorted(p.name for p in folder.iterdir()) == ["model_epoch_5.pth", "model_epoch_5_optimizer_state.pth"]
    state = torch.load(folder / "model_epoch_5.pth", weights_only=True)
    assert state.keys() == net.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in net.state_dict().items())
    assert state["0.weight"].data_ptr() == state["2.weight"].data_ptr()
    assert state._metadata == net.state_dict()._metadata
    assert (folder / "model_epoch_5.pth").stat().st_size < 10_000
    again = torch.optim.Adam(net.parameters())
    again.load_state_dict(torch.load(folder / "model_epoch_5_optimizer_state.pth", weights_only=True))
    assert again.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()


def test_the_final_weights_come_back_in_place(tmp_path: Path) -> None:
    trained, net = model(), model()
    with torch.no_grad():
        trained[0].weight.fill_(3)
    checkpoint.save(tmp_path, checkpoint.FINAL, trained, torch.optim.SGD(trained.parameters(), lr=1))
    weight = net[0].weight
    checkpoint.load(tmp_path / "model_epoch_final.pth", net)
    assert net[0].weight is weight
    assert net[2].weight is weight
    assert weight.unique().tolist() == [3]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    checkpoint.save(tmp_path, 1, net, optimizer)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with torch.no_grad():
        net[0].weight.zero_()
    with pytest.raises(OSError, match="space"):
        checkpoint.save(tmp_path, 1, net, optimizer)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


class Both(torch.optim.Optimizer):
    """Two optimizers in one, whose groups it shares."""

    def __init__(self, net: nn.Sequential) -> None:
        self.parts = [
            torch.optim.SGD([net[0].weight], lr=0.1, momentum=0.9),
            torch.optim.AdamW([net[0].bias], lr=0.01),
        ]
        super().__init__([net[0].weight, net[0].bias], {})
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: None = None) -> None:
        for part in self.parts:
            part.step()


def both(net: nn.Sequential) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = Both(net)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)


def adam(net: nn.Sequential) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    schedules = torch.optim.lr_scheduler
    return optimizer, schedules.SequentialLR(
        optimizer, [schedules.LinearLR(optimizer), schedules.CosineAnnealingLR(optimizer, 10)], [3]
    )


@pytest.mark.parametrize("make", [both, adam])
def test_an_optimizer_and_its_scheduler_continue_from_the_final_files(tmp_path: Path, make) -> None:
    def train(net: nn.Module, optimizer: torch.optim.Optimizer, scheduler: torch.optim.lr_scheduler.LRScheduler):
        for number in range(5):
            optimizer.zero_grad()
            net(torch.sin(torch.arange(12.0) * (number + 1)).view(3, 4)).square().mean().backward()
            optimizer.step()
            scheduler.step()

    expected, net = model(), model()
    whole = make(expected)
    train(expected, *whole)
    checkpoint.save(tmp_path, checkpoint.FINAL, expected, whole[0])
    checkpoint.save_schedule(tmp_path, *whole)
    train(expected, *whole)
    second = make(net)
    checkpoint.load(tmp_path / checkpoint.MODEL, net)
    checkpoint.load_optimizer(tmp_path, *second)
    train(net, *second)
    assert all(torch.equal(one, other) for one, other in zip(net.parameters(), expected.parameters(), strict=True))
    # A next training without a scheduler must not find that of this one.
    checkpoint.save_schedule(tmp_path, torch.optim.SGD(net.parameters()), None)
    assert not (tmp_path / checkpoint.SCHEDULE).exists()


def test_an_optimizer_without_its_files_says_that_it_begins_with_what_it_has(tmp_path: Path, capsys) -> None:
    checkpoint.load_optimizer(tmp_path, torch.optim.SGD(model().parameters(), lr=1), None)
    assert "the optimizer has not got its final state" in capsys.readouterr().err
