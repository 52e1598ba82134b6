"""Which labels are classes, and how many of them are right."""

import math

import pytest
import torch

from edt_sdk.training.update.accuracy import count_correct, eva


def test_one_label_a_sample():
    scores = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    assert float(count_correct(scores, torch.tensor([1, 0, 0]))) == 2
    assert eva(scores, torch.tensor([1, 0, 0], dtype=torch.uint8)) == 2.0


def test_many_labels_a_sample_count_as_a_fraction_and_padding_does_not():
    scores = torch.zeros(2, 3, 4)
    scores[:, 1] = 1  # class 1 everywhere
    labels = torch.tensor([[1, 1, 0, -100], [1, 1, 1, 1]])
    assert float(count_correct(scores, labels)) == pytest.approx(2 / 3 + 1)
    assert float(count_correct(scores.transpose(1, 2), labels)) == pytest.approx(2 / 3 + 1)
    assert float(count_correct(scores, torch.full((2, 4), -100))) == 0


@pytest.mark.parametrize(
    ("outputs", "labels"),
    [
        (torch.zeros(4, 2), torch.zeros(4)),  # regression
        (torch.zeros(4, 2), torch.zeros(4, 2)),  # soft labels
        (torch.zeros(4), torch.zeros(4, dtype=torch.int64)),  # one output: where the threshold lies is not known
        (torch.zeros(4, 2), torch.zeros(3, dtype=torch.int64)),
        ({"logits": torch.zeros(4, 2)}, torch.zeros(4, dtype=torch.int64)),
        (torch.zeros(4, 2), ["a"] * 4),
    ],
)
def test_what_is_no_class_is_not_counted(outputs, labels):
    assert count_correct(outputs, labels) is None
    assert math.isnan(eva(outputs, labels))
