"""Read the metrics of a job's last validation: those that the engine has measured, else those the script wrote."""

from __future__ import annotations

from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.outputs import metrics
from edt_server.service import written_metrics


def last_metrics(paths: JobPaths, training: int | None = None, epoch: int | None = None) -> dict[str, float | None]:
    """Return the metrics of the last validation by name, nothing where there was none. Blocks.

    Args:
        paths: the places of the job's files.
        training: only of this `train()` call, from 0. None for the last one that was validated.
        epoch: only up to this epoch, from 1. None for all.
    """
    tests = [
        test
        for test in metrics.validations(paths)
        if (training is None or test["training"] == training) and (epoch is None or test["epoch"] < epoch)
    ]
    if tests:
        last = tests[-1]
        named = {"test_loss": last.get("loss"), "test_accuracy": last.get("accuracy"), **last.get("metrics", {})}
        return {name: value for name, value in named.items() if value is not None}
    written = [entry for entry in written_metrics.read(paths) if epoch is None or entry.step <= epoch]
    return written[-1].metrics if written else {}
