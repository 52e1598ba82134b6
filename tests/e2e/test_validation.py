"""A trained model is validated: the numbers that the training itself said, more of them, and sentences where not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from sklearn import metrics
from sklearn.datasets import load_digits
from torch import nn

from edt_sdk import Conflict, InvalidRequest, Job, JobFailed, NotFound, Unprocessable
from tests.e2e.harness import Jobs
from tests.waiting import until

ALL = "loss, Accuracy, top-3, precision, recall, F1 score, confusion matrix"


@pytest.fixture(scope="module")
def trained(four_slots: Jobs) -> Job:
    """A classifier of digits."""
    return four_slots.submit("digits.py", "classes", name="digits", max_workers=1).wait(300)


@pytest.fixture(scope="module")
def validated(trained: Job) -> Job:
    """Its validation by one worker, with every metric."""
    return trained.validate(ALL).wait(300)


def last_test(job: Job) -> tuple[float, float]:
    """Loss and accuracy of a job's last validation."""
    record = job.metrics().test[-1]
    return record["loss"], record["accuracy"]


def own_figures(job: Job, output: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and labels as torch alone finds them, from the final weights of a job."""
    model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, output))
    job.load_into(model)
    model.eval()
    digits = load_digits()
    with torch.no_grad():
        return model(torch.tensor(digits.data[1400:] / 16, dtype=torch.float32)), torch.tensor(digits.target[1400:])


def test_it_says_what_the_training_said_and_what_scikit_learn_says(four_slots: Jobs, trained: Job, validated: Job):
    validating = validated
    assert (validating.view.validates, validating.view.name) == (trained.id, "digits-validation")
    result = validating.validation()
    # To the bit: the same steps over the same data with the same weights.
    assert (result["loss"], result["accuracy"]) == last_test(trained) == last_test(validating)
    outputs, labels = own_figures(trained, 10)
    said = outputs.argmax(1)
    assert result.metrics == pytest.approx(
        {
            "loss": float(nn.functional.cross_entropy(outputs, labels)),
            "accuracy": metrics.accuracy_score(labels, said),
            "top3": metrics.top_k_accuracy_score(labels, outputs, k=3),
            "precision": metrics.precision_score(labels, said, average="macro"),
            "recall": metrics.recall_score(labels, said, average="macro"),
            "f1": metrics.f1_score(labels, said, average="macro"),
        },
        abs=1e-6,
    )
    assert [list(row) for row in result.confusion] == metrics.confusion_matrix(labels, said).tolist()
    assert (result.samples, result.classes, result.training) == (397, 10, trained.id)
    # It trained nothing, and its job ended with the weights that it began with.
    assert four_slots.commits(validating) == []
    assert four_slots.final_hash(validating) == four_slots.final_hash(trained)
    # The script runs on behind train(), and a person finds the result in the log and as a file.
    log = str(validating.logs())
    assert "the script goes on" in log
    assert repr(result) in log
    written = json.loads(Path(validating.view.result_dir, "validation.json").read_text())
    assert written["metrics"] == result.metrics
    assert f"It validates the training digits ({trained.id})" in str(validating.story())
    assert "finished, test step 7 of 7, test accuracy" in repr(validating)
    assert f"validates <code>{trained.id}</code>" in validating.bundle()["text/html"]
    assert validating.view.message == "Finished: the test data were gone over once."
    assert validating.picture("loss").says == "digits-validation: it trains nothing; job.validation() has its result."
    assert validating.view.progress.update == validating.view.progress.total_updates == 7


def test_any_number_of_workers_and_a_suspension_give_the_same(trained: Job, validated: Job):
    alone = validated.validation()
    many = trained.validate(ALL, max_workers=4, name="many")
    many.suspend()
    until(lambda: many.refresh().view.state in ("SUSPENDED", "FINISHED"), "its suspension")
    if many.view.state == "SUSPENDED":
        many.resume()
    found = many.wait(300).validation()
    assert (found.metrics, found.confusion) == (alone.metrics, alone.confusion)


@pytest.mark.long
def test_a_death_in_the_middle_costs_nothing(four_slots: Jobs):
    trained = four_slots.submit("digits.py", "slow", "1").wait(300)
    validating = trained.validate(ALL, max_workers=2)

    def under_way() -> list[int]:
        progress, pids = validating.refresh().view.progress, [worker["pid"] for worker in validating.workers()]
        return pids if progress is not None and progress.update and len(pids) == 2 else []

    os.kill(until(under_way, "two workers that test")[0], signal.SIGKILL)
    result = validating.wait(300).validation()
    assert (result["loss"], result["accuracy"]) == last_test(trained)
    assert sum(map(sum, result.confusion)) == 397


@pytest.mark.long
def test_binary_outputs_and_a_threshold(four_slots: Jobs):
    trained = four_slots.submit("digits.py", "binary", "6", max_workers=1).wait(300)
    result = trained.validate(("accuracy", "precision", "recall", "f1"), threshold=0.3).wait(300).validation()
    outputs, labels = own_figures(trained, 1)
    said, truth = outputs[:, 0].sigmoid() >= 0.3, labels == 5
    assert result.metrics == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(truth, said),
            "precision": metrics.precision_score(truth, said, zero_division=0),
            "recall": metrics.recall_score(truth, said),
            "f1": metrics.f1_score(truth, said),
        }
    )
    assert (result.threshold, result.classes) == (0.3, 2)


def test_a_script_with_an_own_test_is_tested_by_it(four_slots: Jobs, trained: Job):
    own = four_slots.submit("digits.py", "own-test", max_workers=1).wait(300)
    result = own.validate("loss,accuracy").wait(300).validation()
    assert result["loss"] == own.metrics().test[-1]["loss"]
    assert result["accuracy"] == last_test(trained)[1]


@pytest.mark.long
def test_of_two_trainings_in_a_script_the_last_one_is_validated(four_slots: Jobs):
    twice = four_slots.submit("digits.py", "two", max_workers=1).wait(300)
    validating = twice.validate().wait(300)
    assert tuple(validating.validation().metrics.values()) == last_test(twice)
    assert "train() call 1 of the script is passed over; call 2 is validated" in str(validating.logs())


@pytest.mark.long
def test_a_loss_is_all_there_is_of_a_regression(four_slots: Jobs):
    trained = four_slots.submit("digits.py", "regression", max_workers=1).wait(300)
    refused = trained.validate("loss,accuracy")
    with pytest.raises(JobFailed, match=r"accuracy cannot be computed: the model's outputs .* Ask for loss alone"):
        refused.wait(300)
    with pytest.raises(NotFound, match=r"ended as FAILED and has no result\."):
        refused.validation()
    loss = trained.validate("loss").wait(300).validation()
    assert loss.metrics == {"loss": trained.metrics().test[-1]["loss"]}
    assert (loss.classes, loss.confusion, loss.per_class) == (None, None, ())


def test_what_cannot_be_validated_is_refused_with_a_sentence(four_slots: Jobs, trained: Job, validated: Job):
    with pytest.raises(Unprocessable, match=f"is a validation itself. Validate the training, {trained.id}"):
        validated.validate()
    with pytest.raises(Unprocessable, match="is a training, no validation"):
        trained.validation()
    with pytest.raises(InvalidRequest, match=r"no metric 'mAP'\. There are loss, accuracy, top<K>"):
        trained.validate(["loss", "mAP"])
    with pytest.raises(Unprocessable, match="threshold lies between 0 and 1"):
        trained.validate(threshold=1.5)
    with pytest.raises(NotFound, match="no data set 'none'"):
        trained.validate(dataset="none")
    waiting = four_slots.submit("forever.py", max_workers=1)
    with pytest.raises(Conflict, match=r"has written no weights yet\. Validate it when it has finished"):
        waiting.validate()
    waiting.stop()
    plain = four_slots.submit("last_words.py", framework="PyTorch", max_workers=1)
    with pytest.raises(Unprocessable, match=r"runs its script as it is \(PyTorch\)"):
        plain.validate()
    untested = four_slots.submit("digits.py", "untested", "1", max_workers=1).wait(300).validate()
    with pytest.raises(JobFailed, match="nothing to validate with"):
        untested.wait(300)


def test_it_outlives_its_training_and_a_clone_validates_again(trained: Job, validated: Job):
    """The last test, for it deletes the training."""
    expected = last_test(trained)
    trained.delete()
    assert (validated.validation()["loss"], validated.validation()["accuracy"]) == expected
    again = validated.clone()
    assert again.view.validates == trained.id
    assert again.wait(300).validation().metrics == validated.validation().metrics
