"""A server that is away, a job that is gone, a mistake of ours: a sentence, and what was last seen stays."""

import time

import msgspec
import pytest

from tests.sdk.monitor.hands import PICTURES


def test_while_the_server_is_away_it_says_so_and_tries_again(monitor, training):
    monitor.turn()
    training.on("GET", "jobs/edt-1", lambda _: (503, {"message": "", "reason": None}))
    monitor.turn()
    assert not monitor.over
    assert "answered 503" in monitor.trouble
    training.on("GET", "jobs/edt-1", lambda _: (200, msgspec.to_builtins(training.view)))
    monitor.turn()
    assert monitor.trouble == ""


def test_a_server_that_stays_away_ends_it_with_what_was_last_seen(monitor, training, monkeypatch):
    monkeypatch.setattr("edt_sdk.monitor.base.PATIENCE", 0.0)
    monitor.turn()
    training.routes.clear()
    training.on("GET", "jobs/edt-1", lambda _: (503, {"message": "", "reason": None}))
    monitor.turn()
    time.sleep(0.01)
    monitor.turn()
    left = monitor._output.left[-1]
    assert "Last seen 20" in left["text/html"]
    assert "Run this cell again" in left["text/html"]
    assert "RUNNING" in left["text/html"]


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (404, {"message": "There is no job edt-1.", "code": "not_found", "hint": ""}, "There is no job edt-1."),
        (403, {"message": "Forbidden", "reason": None}, "does not accept this token. Give its token with EDT_TOKEN"),
    ],
)
def test_a_deleted_job_or_an_expired_token_ends_it_with_a_sentence(monitor, training, status, answer, said):
    training.on("GET", "jobs/edt-1", lambda _: (status, answer))
    monitor.turn()
    assert monitor.over
    assert said in monitor._output.left[-1]["text/html"]
    assert said in monitor._output.left[-1]["text/plain"]


def test_a_picture_that_cannot_be_fetched_is_left_out(monitor, training):
    for name in PICTURES:
        training.on("GET", f"jobs/edt-1/pictures/{name}", lambda _: (500, {"message": "Broken.", "code": "internal"}))
    training.end()
    monitor.turn()
    left = monitor._output.left[-1]["text/html"]
    assert "two" in left
    assert "<img alt" not in left
    assert "Metrics" not in left


def test_our_own_mistake_ends_one_monitor_and_not_the_thread(monitor, training, monkeypatch, caplog):
    monkeypatch.setattr(monitor, "_look", lambda: 1 / 0)
    monitor.turn()
    assert "This monitor failed: ZeroDivisionError" in monitor._output.left[-1]["text/html"]
    assert "the monitor failed" in caplog.text
