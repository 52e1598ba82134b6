"""A job that is watched, at a small server that counts what it is asked for."""

import msgspec
import pytest

from edt_sdk.monitor import ClientMonitor, JobMonitor
from edt_sdk.schemas.job import JobProgress, JobState
from tests.sdk.monitor.hands import PICTURES, SVG, asked, line, opened


@pytest.fixture
def training(peer, make_view):
    """A job that makes progress, and ends when `training.end()` is called."""
    peer.view = make_view(progress=JobProgress(update=3, total_updates=9, loss=1 / 3))

    def end(state=JobState.FINISHED):
        peer.view = make_view(
            state=state, slots=0, progress=JobProgress(update=9, total_updates=9, loss=0.1, test_accuracy=0.97)
        )

    peer.end = end
    peer.on("GET", "jobs/edt-1", lambda _: (200, msgspec.to_builtins(peer.view)))
    peer.on("GET", "jobs", lambda _: (200, {"jobs": [msgspec.to_builtins(peer.view)]}))
    points = [{"update": n, "loss": 1.0 / (n + 1)} for n in range(9)]
    peer.on("GET", "jobs/edt-1/metrics", {"train": points, "test": [], "next": 9, "done": True})
    for name in PICTURES:
        peer.on("GET", f"jobs/edt-1/pictures/{name}", lambda _: (200, SVG))
    for name in ("timeline", "slots", "shares", "compare"):
        peer.on("GET", f"pictures/{name}", lambda _: (200, SVG))
    peer.on("GET", "jobs/edt-1/workers", {"workers": []})
    peer.on("GET", "jobs/edt-1/checkpoints", {"checkpoints": []})
    peer.on("GET", "jobs/edt-1/logs", {"lines": [line("one"), line("two", worker=1, err=True)], "next": "a"})
    return peer


@pytest.fixture
def monitor(training, client):
    made = opened(JobMonitor(client.job("edt-1")))
    training.requests.clear()
    yield made
    made._relay.close()
    made._widget.close()


@pytest.fixture
def overview(training, client):
    made = opened(ClientMonitor(client.connection))
    asked(training)
    yield made
    made._relay.close()
    made._widget.close()
