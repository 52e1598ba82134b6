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
    named: dict[str, float | None] = {}
    tests = [
        test
        for test in metrics.validations(paths)
        if (training is None or test["training"] == training) and (epoch is None or test["epoch"] < epoch)
    ]
    for test in (each for each in tests if each["training"] == tests[-1]["training"]):
        # A script's own loop may have several evaluations, of which the others have their names before those of their
        # metrics.
        drawn, own = test.get("drawn", True), test.get("metrics", {})
        before = "test_" if drawn else f"{test['name']}_"
        named |= {f"{before}loss": test.get("loss"), f"{before}accuracy": test.get("accuracy")}
        named |= own if drawn else {f"{before}{name}": value for name, value in own.items()}
    if tests:
        return {name: value for name, value in named.items() if value is not None}
    written = [entry for entry in written_metrics.read(paths) if epoch is None or entry.step <= epoch]
    return written[-1].metrics if written else {}
