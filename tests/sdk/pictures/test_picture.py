"""A picture as a value: what is asked for, what it shows in a cell, and what it is where only text can be shown."""

from __future__ import annotations

import re
from base64 import b64decode

import msgspec
import pytest

from edt_sdk.display.picture import Picture, local_zone
from edt_sdk.pictures.losses import Losses, draw_losses
from edt_sdk.schemas.errors import InvalidRequest, NotFound, ServerUnreachable


@pytest.fixture
def running(peer, client, make_view):
    peer.on("GET", "jobs/edt-1", msgspec.json.decode(msgspec.json.encode(make_view())))
    return client.job("edt-1")


SVG = draw_losses(Losses("digits <a>", ()))
SAYS = "digits <a>: no update yet: the curve begins with the first one."


def test_it_is_an_image_in_html_and_a_sentence_in_text(tmp_path):
    picture = Picture(SVG, SAYS)
    assert repr(picture) == SAYS
    found = re.fullmatch(r'<img src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]+)"/>', picture._repr_html_())
    assert found is not None
    assert b64decode(found[1]).decode() == SVG
    assert found[2] == "digits &lt;a&gt;: no update yet: the curve begins with the first one."
    assert picture.save(tmp_path / "loss.svg").read_text() == SVG


@pytest.mark.parametrize(
    ("ask", "path", "query"),
    [
        (lambda job, _: job.picture(), "jobs/{id}/pictures/loss", {"x": "samples", "theme": "auto"}),
        (
            lambda job, _: job.picture("loss", x="time", smooth=0.5, theme="dark", width=320),
            "jobs/{id}/pictures/loss",
            {"x": "time", "smooth": "0.5", "theme": "dark", "width": "320"},
        ),
        (
            lambda job, _: job.picture("allocation", since=10.0, until=20.0),
            "jobs/{id}/pictures/allocation",
            {"x": "samples", "theme": "auto", "start": "10.0", "end": "20.0"},
        ),
        (lambda _, client: client.picture(), "pictures/timeline", {"theme": "auto"}),
        (lambda job, client: client.picture("slots", job=job), "pictures/slots", {"theme": "auto", "job": "{id}"}),
        (
            lambda job, client: client.compare([job, "other"], x="updates"),
            "pictures/compare",
            {"jobs": "{id},other", "x": "updates", "theme": "auto"},
        ),
    ],
)
def test_what_is_asked_for(peer, client, running, make_view, ask, path, query):
    job = running
    peer.on("GET", "jobs/other", msgspec.to_builtins(make_view(id="other")))
    fill = lambda text: text.replace("{id}", job.id)  # noqa: E731
    peer.on("GET", fill(path), lambda _: (200, SVG.encode()))
    picture = ask(job, client)
    assert (picture.svg, picture.says) == (SVG, SAYS)
    sent = peer.requests[-1].query
    assert sent.pop("zone") == local_zone()
    assert sent == {key: fill(value) for key, value in query.items()}


def test_a_refusal_is_its_error(peer, client, running):
    peer.on("GET", f"jobs/{running.id}/pictures/x", lambda _: (404, {"message": "no", "code": "not_found", "hint": ""}))
    with pytest.raises(NotFound):
        running.picture("x")
    with pytest.raises(InvalidRequest):
        running.picture("allocation", since="the day before")


@pytest.mark.parametrize("body", [b"<html><p>log in</html>", b"", b"\xff\xfe"])
def test_what_is_no_picture_is_said_to_be_none(peer, running, body):
    peer.on("GET", "jobs/edt-1/pictures/loss", lambda _: (200, body))
    with pytest.raises(ServerUnreachable, match="did not send a whole picture"):
        running.picture()
