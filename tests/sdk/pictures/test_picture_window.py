"""A window of time of a job's pictures: asked for where they are over time, refused where it would mean nothing."""

from __future__ import annotations

import msgspec
import pytest

from edt_sdk.pictures.losses import Losses, draw_losses
from edt_sdk.schemas.errors import InvalidRequest


@pytest.fixture
def job(peer, client, make_view):
    peer.on("GET", "jobs/edt-1", msgspec.json.decode(msgspec.json.encode(make_view())))
    peer.on("GET", "jobs/edt-1/pictures/loss", lambda _: (200, draw_losses(Losses("digits", ())).encode()))
    return client.job("edt-1")


@pytest.mark.parametrize("window", [{"since": 10.0}, {"until": "14:30"}])
@pytest.mark.parametrize("x", ["samples", "updates"])
def test_a_loss_over_samples_has_no_times(peer, job, window, x):
    before = len(peer.requests)
    with pytest.raises(InvalidRequest, match=f"are times, and the loss is drawn over {x}") as raised:
        job.picture("loss", x=x, **window)
    assert 'x="time"' in raised.value.hint
    assert raised.value.to_json()["field"] == next(iter(window))
    assert len(peer.requests) == before


def test_a_loss_over_time_does(peer, job):
    job.picture(x="time", since=10.0, until=20.0)
    asked = peer.requests[-1].query
    assert (asked["x"], asked["start"], asked["end"]) == ("time", "10.0", "20.0")
