"""Counts of a validation and what is made of them, against scikit-learn's own figures on its digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.validation.tally import Tally, Wanted, tally

ALL = ("accuracy", "top1", "top3", "precision", "recall", "f1", "iou", "confusion")


@pytest.fixture(scope="module")
def metrics():
    """Scikit-learn's, which each process of a suite would import if it were needed to find the tests."""
    from sklearn import metrics

    return metrics


@pytest.fixture(scope="module")
def digits():
    """Scores [n, 10] of a model that is often wrong, and labels."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    data = load_digits()
    model = LogisticRegression(max_iter=20, C=0.001).fit(data.data[:300, ::3], data.target[:300])
    return torch.tensor(model.decision_function(data.data[300:, ::3])), torch.tensor(data.target[300:])


def counted(outputs, labels, wanted, batch=97):
    """The tally of batches, added up."""
    total = Tally()
    for start in range(0, len(labels), batch):
        total = total + tally(outputs[start : start + batch], labels[start : start + batch], wanted)
    return total


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_classes_are_scored_as_scikit_learn_does(digits, metrics):
    scores, labels = digits
    wanted = Wanted(ALL)
    found = counted(scores, labels, wanted)
    said = scores.argmax(1)
    values = dict(found.values(wanted))
    assert values == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(labels, said),
            "top1": metrics.accuracy_score(labels, said),
            "top3": metrics.top_k_accuracy_score(labels, scores, k=3),
            "precision": metrics.precision_score(labels, said, average="macro", zero_division=0),
            "recall": metrics.recall_score(labels, said, average="macro"),
            "f1": metrics.f1_score(labels, said, average="macro"),
            "iou": metrics.jaccard_score(labels, said, average="macro"),
        },
        abs=1e-12,
    )
    assert 0.3 < values["accuracy"] < 0.95
    assert found.confusion.tolist() == metrics.confusion_matrix(labels, said).tolist()
    each = metrics.precision_recall_fscore_support(labels, said, zero_division=0)
    told = [(c.precision, c.recall, c.f1, c.samples) for c in found.per_class()]
    np.testing.assert_allclose(told, np.array(each).T, atol=1e-12)


def test_a_class_that_occurs_nowhere_is_in_no_mean(metrics):
    scores = torch.eye(5)[[0, 1, 1, 3]]
    labels = torch.tensor([0, 1, 2, 3])
    wanted = Wanted(("precision", "recall", "f1"))
    values = dict(tally(scores, labels, wanted).values(wanted))
    assert values == pytest.approx(
        {
            "precision": metrics.precision_score(labels, scores.argmax(1), average="macro", zero_division=0),
            "recall": metrics.recall_score(labels, scores.argmax(1), average="macro"),
            "f1": metrics.f1_score(labels, scores.argmax(1), average="macro"),
        }
    )


@pytest.mark.parametrize("threshold", [None, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("logits", [False, True])
def test_binary_outputs_are_compared_with_the_threshold(threshold, column, logits, metrics):
    generator = torch.Generator().manual_seed(4)
    outputs = torch.randn(500, generator=generator)
    labels = (outputs + torch.randn(500, generator=generator) > 0).float()
    chance = outputs.sigmoid()
    shown = (outputs if logits else chance)[:, None] if column else (outputs if logits else chance)
    loss = nn.BCEWithLogitsLoss() if logits else nn.BCELoss()
    wanted = Wanted(("accuracy", "precision", "recall", "f1", "iou", "confusion"), threshold, loss)
    found = counted(shown, labels[:, None] if column else labels, wanted)
    said = (chance >= (threshold or 0.5)).long()
    assert found.binary
    assert dict(found.values(wanted)) == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(labels, said),
            "precision": metrics.precision_score(labels, said),
            "recall": metrics.recall_score(labels, said),
            "f1": metrics.f1_score(labels, said),
            "iou": metrics.jaccard_score(labels, said),
        }
    )
    assert found.confusion.tolist() == metrics.confusion_matrix(labels, said).tolist()


def test_a_threshold_is_also_one_for_two_classes(metrics):
    scores = torch.randn(300, 2, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(0, 2, (300,), generator=torch.Generator().manual_seed(2))
    wanted = Wanted(("confusion",), 0.7)
    said = (scores.softmax(1)[:, 1] >= 0.7).long()
    assert tally(scores, labels, wanted).confusion.tolist() == metrics.confusion_matrix(labels, said).tolist()


@pytest.mark.parametrize("last", [False, True])
def test_each_pixel_counts_and_padding_does_not(last, metrics):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(6, 4, 5, 7, generator=generator)
    labels = torch.randint(-1, 4, (6, 5, 7), generator=generator)
    wanted = Wanted(("accuracy", "confusion"))
    found = tally(scores.movedim(1, -1) if last else scores, labels, wanted)
    valid = labels >= 0
    expected = metrics.confusion_matrix(labels[valid], scores.argmax(1)[valid])
    assert found.confusion.tolist() == expected.tolist()
    assert found.accuracy == pytest.approx(metrics.accuracy_score(labels[valid], scores.argmax(1)[valid]))


def test_soft_labels_of_a_cross_entropy_are_classes():
    scores, labels = torch.randn(50, 3, generator=torch.Generator().manual_seed(5)), torch.arange(50) % 3
    wanted = Wanted(("confusion",), loss_function=nn.functional.cross_entropy)
    soft = nn.functional.one_hot(labels, 3).float()
    assert tally(scores, soft, wanted).confusion.tolist() == tally(scores, labels, wanted).confusion.tolist()


def test_order_and_parts_make_no_difference(digits):
    scores, labels = digits
    wanted = Wanted(ALL)
    whole, parts = counted(scores, labels, wanted, batch=10_000), counted(scores.flip(0), labels.flip(0), wanted, 13)
    assert dict(whole.values(wanted)) == dict(parts.values(wanted))
    assert (whole.confusion == parts.confusion).all()


@pytest.mark.parametrize(
    ("outputs", "labels", "metrics_", "says"),
    [
        (torch.randn(8, 1), torch.randn(8, 1), ("accuracy",), r"no scores of classes for the labels \(float32"),
        (torch.randn(8, 3), torch.randn(8, 3), ("f1",), "no scores of classes"),
        (torch.randn(8, 3), torch.tensor([0, 1, 2, 3] * 2), ("f1",), "A label is 3, but .* for 3 classes"),
        (torch.rand(8), torch.tensor([0, 1] * 4), ("top2",), "top2 makes no sense here: .* one score a label"),
        (torch.rand(8, 3), torch.tensor([0, 1] * 4), ("top5",), "top5 makes no sense here: .* 3 classes"),
        (torch.rand(2, 1001), torch.tensor([0, 1]), ("confusion",), "1002001 cells"),
        ({"a": 1}, torch.tensor([0, 1]), ("accuracy",), "dict"),
    ],
)
def test_a_metric_that_makes_no_sense_is_refused_with_a_sentence(outputs, labels, metrics_, says):
    with pytest.raises(Unprocessable, match=says):
        tally(outputs, labels, Wanted(metrics_))


def test_outputs_of_two_kinds_are_refused():
    wanted = Wanted(("accuracy",))
    one = tally(torch.rand(2, 3), torch.tensor([0, 1]), wanted)
    with pytest.raises(Unprocessable, match="3 classes in one batch and for 4 in another"):
        one + tally(torch.rand(2, 4), torch.tensor([0, 1]), wanted)


def test_nothing_counted_is_no_number():
    wanted = Wanted(("accuracy", "top3", "f1"))
    assert dict(Tally().values(wanted)) == {"accuracy": None, "top3": None, "f1": None}
