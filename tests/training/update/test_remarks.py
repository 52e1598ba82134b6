"""What is worth a line in the log."""

import torch
from torch import nn

from edt_sdk.training.exchange.layout import Layout
from edt_sdk.training.sampling.order import Order
from edt_sdk.training.update.remarks import label_remarks, remarks


def test_parameters_that_nobody_trains_are_named():
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(5)])
    model[4].requires_grad_(False)  # frozen on purpose: no word
    layout = Layout(model, torch.optim.SGD(model[0].parameters(), lr=0.1))
    (line,) = remarks(model, layout, Order(8, (2, 2), 2, 0, 1))
    assert line.startswith("6 parameters of the model need a gradient")
    assert "1.weight, 1.bias, 2.weight, 2.bias, 3.weight, …" in line


def test_a_batch_larger_than_the_data_set_works_and_is_said():
    model = nn.Linear(2, 2)
    layout = Layout(model, torch.optim.SGD(model.parameters(), lr=0.1))
    order = Order(5, (4, 4, 4), 4, 0, 2)
    (line,) = remarks(model, layout, order)
    assert "12 samples" in line
    assert "only 5" in line
    assert order.updates_per_epoch == 1


def test_batch_norms_over_a_part_of_a_batch_are_said():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.SyncBatchNorm(2)))
    layout = Layout(model, torch.optim.SGD(model.parameters(), lr=0.1))
    (line,) = remarks(model, layout, Order(64, (16,) * 4, 16, 0, 1))
    assert line.startswith("In BatchNorm1d and SyncBatchNorm each part of a batch, here 16 samples,")
    assert "and not all 64 of an update together" in line
    assert remarks(model, layout, Order(64, (16,), 16, 0, 1)) == []


def test_a_first_update_that_compiles_is_said():
    model = torch.compile(nn.Linear(2, 2), backend="eager")
    layout = Layout(model, torch.optim.SGD(model.parameters(), lr=0.1))
    (line,) = remarks(model, layout, Order(4, (2, 2), 2, 0, 1))
    assert "compiled in each worker: the first update takes longer" in line


def test_nothing_to_say():
    model = nn.Linear(2, 2)
    layout = Layout(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert remarks(model, layout, Order(4, (2, 2), 2, 0, 1)) == []


def test_padded_labels_and_a_validation_over_mixed_samples_are_said():
    padded = torch.tensor([[1, 2, -100], [3, -100, -100]])
    (line,) = label_remarks(padded, mixes_tests=False)
    assert 'reduction="sum"' in line
    mixed = torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.5, 0.5]])
    (line,) = label_remarks(mixed, mixes_tests=True)
    assert "fn_test_collate=torch.utils.data.default_collate" in line
    assert label_remarks(mixed, mixes_tests=False) == []


def test_other_labels_are_nothing_to_say():
    one_hot, numbers = torch.eye(3), torch.tensor([[0.2], [7.5]])
    for labels in (
        torch.tensor([1, 2]),
        torch.tensor([[1, 2]]),
        one_hot,
        numbers,
        torch.tensor([1j]),
        torch.rand(4, 3),
    ):
        assert label_remarks(labels, mixes_tests=True) == []
