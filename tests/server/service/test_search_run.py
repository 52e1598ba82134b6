"""What a living search takes from a validation."""

from __future__ import annotations

from edt_server.service.search_run import _metrics


def test_a_loss_that_is_not_a_number_is_a_report_and_not_a_missing_metric():
    assert _metrics({"loss": None, "accuracy": 0.5, "metrics": {"f1": None}}) == {
        "test_loss": None, "test_accuracy": 0.5, "f1": None,
    }  # fmt: skip
    assert _metrics({"loss": 0.25, "accuracy": None, "metrics": {}}) == {"test_loss": 0.25}
