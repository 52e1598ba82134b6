"""A server that is away, a job that is gone, a mistake of ours: a sentence, and what was last seen stays."""

import time

import msgspec
import pytest

from tests.sdk.monitor.hands import PICTURES, show


def test_while_the_server_is_away_it_says_so_and_tries_again(monitor, training):
    monitor.turn()
    training.on("GET", "jobs/edt-1", lambda _: (503, {"message": "", "reason": None}))
    monitor.turn()
    assert not monitor.over
    assert "⚠ Not renewed since" in monitor._trouble.value
    assert "Jobs do not need it" in monitor._trouble.value
    training.on("GET", "jobs/edt-1", lambda _: (200, msgspec.to_builtins(training.view)))
    monitor.turn()
    assert monitor._trouble.value == ""


def test_a_server_that_stays_away_ends_it_with_what_was_last_seen(monitor, training, monkeypatch):
    monkeypatch.setattr("edt_sdk.monitor.patience.PATIENCE", 0.0)
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


def test_a_tab_that_cannot_be_fetched_says_so_and_the_others_go_on(monitor, training):
    for name in PICTURES:
        training.on("GET", f"jobs/edt-1/pictures/{name}", lambda _: (500, {"message": "Broken.", "code": "internal"}))
    show(monitor, "Metrics")
    monitor.turn()
    assert "Broken." in monitor._trouble.value
    show(monitor, "Logs")
    monitor.turn()
    assert monitor._trouble.value == ""
    training.end()
    monitor.turn()
    assert "two" in monitor._output.left[-1]["text/html"]


def test_our_own_mistake_ends_one_monitor_and_not_the_thread(monitor, training, monkeypatch, caplog):
    monkeypatch.setattr(monitor, "_draw_head", lambda: 1 / 0)
    monitor.turn()
    assert "This monitor failed: ZeroDivisionError" in monitor._output.left[-1]["text/html"]
    assert "the monitor failed" in caplog.text
