"""Searches over a model of the console: what a request becomes, and under which names it is shown."""

from __future__ import annotations

import pytest

from edt_sdk.schemas.errors import EdtError, InvalidRequest
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec
from edt_server.catalogue.training import with_values
from edt_server.wmla.console_hyperparameters import as_tuned, from_console, tuned
from edt_server.wmla.hypersearch import tuning, tuning_spec

JOB = JobSpec(name="model", main="main.py", framework=Framework.PYTORCH.value, max_workers=1)
RATE = {"name": "LearningRate", "type": "Range", "dataType": "double", "minDbVal": 0.001, "maxDbVal": 0.1}
RESOURCES = {"framework": "PyTorchOnElastic", "maxiteration": "9", "miniteration": "1", "batchsize": 4, "workerNum": 2}


def form(algorithm="Random", **changes):
    return {"hpoName": "t", "resDef": RESOURCES, "algoDef": {"algorithm": algorithm}, "hyperParams": [RATE]} | changes


def test_its_trials_train_as_the_resources_say():
    wanted, weights = tuning(form(resDef={**RESOURCES, "initWeightPath": "w.pth"}), group="batch")
    assert (wanted.framework, wanted.max_workers, wanted.instance_group) == ("edtPyTorch", 2, "batch")
    assert wanted.hyperparameters == {"epochs": 9, "train_batch_size": 4}
    assert weights == "w.pth"


def test_hyperband_compares_after_epochs_of_the_model():
    spec = tuning_spec(form("Hyperband"), JOB, name="", seed=1).check().resolved()
    assert (spec.resource, spec.min_epochs, spec.epochs, spec.eta) == ("epochs", 1, 9, 3)
    assert list(spec.space) == ["optimizer.lr"]
    assert spec.job.wmla is None


def test_its_trials_say_what_of_the_resources_has_no_meaning():
    spec = tuning_spec(form(resDef={**RESOURCES, "syncMode": "async"}), JOB, name="", seed=1)
    assert spec.job.wmla.remarks[0].startswith("syncMode ASYNC has no meaning here")


def test_a_number_of_workers_that_is_none_is_refused():
    with pytest.raises(InvalidRequest, match=r"resDef\.workerNum"):
        tuning(form(resDef={**RESOURCES, "workerNum": "two"}), group="")
    with pytest.raises(EdtError, match="-3"):
        tuning(form(resDef={**RESOURCES, "workerNum": -3}), group="")[0].check()


@pytest.mark.parametrize(
    ("objective", "framework", "metric"),
    [
        (None, Framework.PYTORCH, "loss"),
        ("maximize", Framework.PYTORCH, "accuracy"),
        ("Maximize", Framework.EDT, "test_accuracy"),
        ("minimize", Framework.EDT, "test_loss"),
    ],
)
def test_without_a_metric_it_is_the_loss_or_the_accuracy(objective, framework, metric):
    job = JobSpec(name="model", main="main.py", framework=framework.value, max_workers=1)
    given = form(algoDef={"algorithm": "Random", "maxJobNum": 2, "objective": objective})
    assert tuning_spec(given, job, name="", seed=1).metric == metric


def test_two_names_of_one_hyper_parameter_are_refused():
    names = [{**RATE, "name": name} for name in ("eps", "epsilon")]
    with pytest.raises(InvalidRequest, match="mean the same"):
        tuning_spec(form(hyperParams=names), JOB, name="", seed=1)


@pytest.mark.parametrize("name", ["learningrate", "momentum", "batchsize", "epoch", "stepsize", "mine"])
def test_a_value_of_a_trial_is_where_a_training_of_the_model_has_it(name):
    """As `from_console` puts it, which says what a training of a model finds."""
    assert as_tuned(tuned(name)) == name
    given = {name: 3} if name != "batchsize" else {}
    policy = {"lrpolicy": "step"} if name == "stepsize" else {}
    expected, _ = from_console({**given, **policy}, 3 if name == "batchsize" else None)
    assert with_values({}, {tuned(name): 3}) == expected
