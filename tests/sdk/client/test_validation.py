"""Validations as a person asks for them and reads them: names of metrics, verbs at every surface, tables."""

from __future__ import annotations

import json

import msgspec
import pytest
from IPython.core.interactiveshell import InteractiveShell

from edt_sdk import Client, InvalidRequest
from edt_sdk.cli import main
from edt_sdk.display.validation import Validation
from edt_sdk.schemas.validation import ClassScores, Validated, named_metrics

RESULT = Validated(
    training="digits-abc",
    training_name="<digits>",
    samples=1234,
    metrics={"loss": 0.5, "accuracy": None},
    own={"mean error": 2.0},
    classes=2,
    threshold=0.3,
    confusion=((7, 1), (0, 4)),
    per_class=(ClassScores(label=0, samples=8, precision=1.0, recall=0.875, f1=14 / 15),),
    time=1.0,
)


@pytest.fixture
def validating(peer, make_view, monkeypatch):
    """A server with a training `edt-1` and its validation `edt-2`."""
    training = make_view()
    validation = msgspec.structs.replace(training, id="edt-2", validates="edt-1")
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(training))
    peer.on("GET", "jobs/edt-2", msgspec.to_builtins(validation))
    peer.on("POST", "jobs/edt-1/validations", lambda _: (201, msgspec.to_builtins(validation)))
    peer.on("GET", "jobs/edt-2/validation", msgspec.to_builtins(RESULT))
    monkeypatch.setenv("EDT_URL", peer.url)
    monkeypatch.setenv("EDT_TOKEN", peer.token)
    return peer


def asked(peer):
    return json.loads(next(r.body for r in reversed(peer.requests) if r.method == "POST"))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("loss,Accuracy", ("loss", "accuracy")),
        (["Top 5", "top-1", "F1-Score", "Confusion Matrix"], ("top5", "top1", "f1", "confusion")),
        (("ConfusionMatrix", "confusion", "IoU", "Top K"), ("confusion", "iou", "top5")),
        (" PRECISION , recall ,", ("precision", "recall")),
    ],
)
def test_metrics_have_many_spellings(given, names):
    assert named_metrics(given) == names


@pytest.mark.parametrize("given", ["mAP", "top0", "top", "losses", "", [], ["loss", "nothing"]])
def test_what_is_no_metric_is_refused_with_those_there_are(given):
    with pytest.raises(InvalidRequest, match=r"There are loss, accuracy, top<K> \(such as top5\)"):
        named_metrics(given)


def test_of_a_job(validating):
    with Client() as client:
        job = client.job("edt-1").validate(["Top 5", "loss"], threshold=0.25, name="seen", dataset="other")
        assert (job.id, job.view.validates) == ("edt-2", "edt-1")
        assert {key: value for key, value in asked(validating).items() if value is not None} == {
            "metrics": ["top5", "loss"],
            "threshold": 0.25,
            "name": "seen",
            "dataset": "other",
            "max_workers": 1,
        }
        found = job.validation()
    assert isinstance(found, Validation)
    assert (found.job, found["loss"], found["accuracy"]) == ("edt-2", 0.5, None)


def test_as_text_and_as_html():
    found = Validation.of("edt-2", msgspec.to_builtins(RESULT))
    text = repr(found)
    assert text.splitlines()[0] == (
        "Validation of <digits> (digits-abc): 1,234 samples, 2 classes; class 1 from a score of 0.3 on"
    )
    assert "accuracy    not a number" in text
    assert "mean error  2" in text
    assert "0      8       1.0000     0.8750  0.9333" in text
    assert "Rows are labels, columns what the model said:\n   0  1\n0  7  1\n1  0  4" in text
    html = found._repr_html_()
    assert "Validation of &lt;digits&gt;" in html
    assert html.count("<table") == 3
    assert '<th scope="row"' in html


def test_many_classes_are_left_out_and_said_so():
    many = 40
    cells = tuple(tuple(int(row == column) for column in range(many)) for row in range(many))
    found = Validation.of("edt-2", msgspec.to_builtins(msgspec.structs.replace(RESULT, classes=many, confusion=cells)))
    assert "and 10 more of 40, which are not shown here. validation.json has all of them.)" in repr(found)
    assert "and 10 more of 40" in found._repr_html_()


def test_at_a_shell(validating, capsys):
    assert main(["validate", "edt-1", "--metrics", "loss,Top 5", "--threshold", "0.25"]) == 0
    assert capsys.readouterr().out == "edt-2\n"
    assert (asked(validating)["metrics"], asked(validating)["threshold"]) == (["loss", "top5"], 0.25)
    assert main(["validation", "edt-2"]) == 0
    assert capsys.readouterr().out.startswith("Validation of <digits>")
    assert main(["validation", "edt-2", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["confusion"] == [[7, 1], [0, 4]]
    assert main(["validate", "edt-1", "--metrics", "mAP"]) == 2
    assert capsys.readouterr().err.startswith("edt: There is no metric 'mAP'. There are loss,")


def test_in_a_cell(validating):
    shell = InteractiveShell.instance()
    try:
        shell.extension_manager.load_extension("edt_sdk")
        shell.run_cell("job = %edt_validate edt-1 --metrics loss,confusion", store_history=False)
        assert shell.user_ns["job"].id == "edt-2"
        # The last job touched is the validation.
        shell.run_cell("found = %edt_validation", store_history=False)
        assert shell.user_ns["found"].metrics == RESULT.metrics
        session = shell.magics_manager.registry["EdtMagics"]._session
        session.client.close()
        shell.extension_manager.unload_extension("edt_sdk")
    finally:
        InteractiveShell.clear_instance()
