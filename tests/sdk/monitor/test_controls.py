"""The controls of a monitor: they act at once, say what that comes to, and ask before something is lost."""

import zipfile
from html import unescape
from io import BytesIO
from types import SimpleNamespace

import msgspec

from edt_sdk.formatting.local_zone import local_zone
from edt_sdk.schemas.job import JobState, Reason
from tests.sdk.monitor.hands import asked, show


def test_a_changed_priority_counts_at_once_and_says_what_it_comes_to(monitor, training, make_view):
    def patch(request):
        training.view = make_view(**msgspec.json.decode(request.body))
        return 200, msgspec.to_builtins(training.view)

    training.on("PATCH", "jobs/edt-1", patch)
    monitor.turn()
    asked(training)
    monitor.pages[0]._settings._fields["priority"].value = 8000
    monitor.turn()
    assert asked(training)[:2] == ["GET jobs/edt-1/what-if", "PATCH jobs/edt-1"]
    said = monitor.pages[0]._settings._said.value
    assert "Priority is 8000 now. It goes from 2 to 3 slots; other from 2 to 1." in said
    assert "about 14:02:31 UTC, 5 min 49 s earlier, if nobody else comes." in said


def test_a_change_does_not_wait_for_a_forecast_that_takes_too_long(monitor, training, make_view):
    training.on("GET", "jobs/edt-1/what-if", lambda _: (503, {"message": "", "reason": None}))
    training.on("PATCH", "jobs/edt-1", msgspec.to_builtins(make_view(priority=8000)))
    monitor.pages[0]._settings._fields["priority"].value = 8000
    monitor.turn()
    assert "PATCH jobs/edt-1" in asked(training)
    assert "Priority is 8000 now. What it comes to takes" in monitor.pages[0]._settings._said.value


def test_of_values_typed_one_after_the_other_the_last_one_is_sent(monitor, training, make_view):
    training.on("PATCH", "jobs/edt-1", msgspec.to_builtins(make_view(max_workers=8)))
    for value in (5, 6, 7, 8):
        monitor.pages[0]._settings._fields["max_workers"].value = value
    monitor.turn()
    assert asked(training).count("PATCH jobs/edt-1") == 1


def test_a_refused_value_is_said_and_taken_back(monitor, training):
    told = {"message": "max_workers is too large.", "code": "unprocessable", "hint": "Say 4.", "field": "max_workers"}
    training.on("GET", "jobs/edt-1/what-if", lambda _: (422, told))
    field = monitor.pages[0]._settings._fields["max_workers"]
    field.value = 64
    monitor.turn()
    assert "max_workers is too large. Say 4." in monitor.pages[0]._settings._said.value
    assert field.value == 4


def test_stopping_asks_first_and_says_what_is_lost(monitor, training, make_view):
    training.on("POST", "jobs/edt-1/stop", msgspec.to_builtins(make_view(state=JobState.KILLED)))
    actions = monitor.pages[0]._actions
    actions._buttons["Stop"].click()
    monitor.turn()
    assert "POST jobs/edt-1/stop" not in asked(training)
    assert actions._said.value.startswith("It gives 2 slots back at update 3 of 9; 6 updates are left undone.")
    actions._buttons["Stop"].click()
    monitor.turn()
    assert "POST jobs/edt-1/stop" in asked(training)


def test_an_action_that_is_refused_is_said(monitor, training):
    training.on("POST", "jobs/edt-1/suspend", lambda _: (409, {"message": "It has ended.", "code": "conflict"}))
    monitor.pages[0]._actions._buttons["Suspend"].click()
    monitor.turn()
    assert "It has ended." in monitor.pages[0]._actions._said.value


def test_buttons_that_can_do_nothing_cannot_be_clicked(monitor, training, make_view):
    buttons = monitor.pages[0]._actions._buttons
    assert [button.disabled for button in buttons.values()] == [False, True, False, False]
    waits = Reason(code="suspended", text="It is suspended.", held=0, entitled=0, asked=0)
    training.view = make_view(state=JobState.SUSPENDED, slots=0, reason=waits)
    monitor.turn()
    assert [button.disabled for button in buttons.values()] == [True, False, False, False]


def test_a_clone_is_a_line_that_submits_it_again(monitor, training, make_view):
    training.view = make_view(priority=8000, args=("--lr", "0.1"))
    monitor.turn()
    monitor.pages[0]._actions._buttons["Clone"].click()
    assert "the code that came in with this one" in monitor.pages[0]._actions._said.value
    line = unescape(monitor.pages[0]._actions._line())
    job = SimpleNamespace(clone=lambda **settings: settings)
    given = eval(line, {"client": SimpleNamespace(job={training.view.id: job}.__getitem__)})
    assert given == {"name": "digits", "max_workers": 4, "priority": 8000, "args": ["--lr", "0.1"]}


def test_a_download_lies_beside_the_notebook_and_says_where(monitor, training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved = BytesIO()
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("model/x", "y" * 5000)
    training.on("GET", "jobs/edt-1/result", lambda _: (200, saved.getvalue()))
    downloading = monitor.pages[0]._downloading
    downloading._save("model")
    assert downloading._said.value == f"✔ Saved {tmp_path}/edt-1-model.zip (5.1 kB)."
    training.on("GET", "jobs/edt-1/result", lambda _: (404, {"message": "No model yet.", "code": "not_found"}))
    downloading._save("model")
    assert "No model yet." in downloading._said.value
    assert not downloading._button.disabled


def test_up_to_five_jobs_are_compared(monitor, training, make_view):
    others = [msgspec.to_builtins(make_view(id=f"edt-{n}", name=f"job {n}")) for n in range(1, 8)]
    training.on("GET", "jobs", {"jobs": others})
    show(monitor, "Metrics")
    monitor.turn()
    comparing = monitor.page._comparing
    assert len(comparing._others.options) == 6
    comparing._others.value = ("edt-2", "edt-3", "edt-4", "edt-5")
    monitor.turn()
    assert training.requests[-2].query["jobs"] == "edt-1,edt-2,edt-3,edt-4,edt-5"
    assert training.requests[-2].query["zone"] == local_zone()
    assert "It goes down" in comparing._picture.value
    comparing._others.value = ("edt-2", "edt-3", "edt-4", "edt-5", "edt-6")
    monitor.turn()
    assert "5 are chosen; at most 4 fit" in comparing._said.value
