"""Requests that the kernel sends for a widget's page, and what it saves next to the notebook."""

import json

import pytest

from tests.sdk.monitor.hands import asked, tell

TIMEOUT = 30


def answered(monitor, **message):
    tell(monitor, id=7, **message)
    return monitor.sent.get(timeout=TIMEOUT)


def test_a_page_gets_what_the_server_answers(monitor, training):
    answer = answered(monitor, kind="ask", method="GET", path="jobs/edt-1?no_track_activity=1", body=None)
    assert (answer["id"], answer["status"]) == (7, 200)
    assert json.loads(answer["body"])["id"] == "edt-1"
    assert training.requests[-1].query == {"no_track_activity": "1"}


def test_a_change_travels_with_its_body(monitor, training):
    training.on("PATCH", "jobs/edt-1", lambda request: (200, json.loads(request.body)))
    body = json.dumps({"priority": 8000})
    answer = answered(monitor, kind="ask", method="PATCH", path="jobs/edt-1", body=body)
    assert json.loads(answer["body"]) == {"priority": 8000}


def test_a_refusal_keeps_its_status_and_its_hint(monitor, training):
    training.on("POST", "jobs/edt-1/stop", lambda _: (409, {"message": "No.", "code": "conflict", "hint": "Wait."}))
    answer = answered(monitor, kind="ask", method="POST", path="jobs/edt-1/stop", body="{}")
    assert answer["status"] == 409
    assert json.loads(answer["body"]) == {"message": "No.", "code": "conflict", "hint": "Wait."}


def test_a_server_that_is_away_is_one_to_the_page_too(monitor, training):
    training.on("GET", "jobs/edt-1", lambda _: (503, {"message": "", "reason": None}))
    answer = answered(monitor, kind="ask", method="GET", path="jobs/edt-1", body=None)
    assert answer["status"] == 503
    assert "answered 503" in json.loads(answer["body"])["message"]


def test_while_a_cell_runs_the_last_questions_are_answered_again(monitor, training):
    answered(monitor, kind="ask", method="GET", path="jobs/edt-1", body=None)
    answered(monitor, kind="ask", method="POST", path="jobs/edt-1/stop", body="{}")
    asked(training)
    monitor._relay.repeat()
    again = monitor.sent.get(timeout=TIMEOUT)
    assert (again["id"], again["path"], again["status"]) == (0, "jobs/edt-1", 200)
    assert asked(training) == ["GET jobs/edt-1"]


def test_a_result_is_saved_next_to_the_notebook(monitor, training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    training.on("GET", "jobs/edt-1/result", lambda _: (200, b"PK" + b"x" * 2000))
    answer = answered(monitor, kind="save", job="edt-1", part="model")
    assert answer["status"] == 200
    assert answer["body"] == f"Saved {tmp_path / 'edt-1-model.zip'} (2.0 kB)."
    assert (tmp_path / "edt-1-model.zip").stat().st_size == 2002


@pytest.mark.parametrize(
    ("part", "said"), [("everything", "part is one of"), ("model", "It cannot be saved here: No such file")]
)
def test_what_cannot_be_saved_is_refused_with_a_sentence(monitor, training, tmp_path, monkeypatch, part, said):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    training.on("GET", "jobs/edt-1/result", lambda _: (200, b"PK"))
    monkeypatch.setattr("pathlib.Path.resolve", lambda path: folder / path)
    folder.rmdir()
    answer = answered(monitor, kind="save", job="edt-1", part=part)
    assert answer["status"] != 200
    assert said in answer["body"]
