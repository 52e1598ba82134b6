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
