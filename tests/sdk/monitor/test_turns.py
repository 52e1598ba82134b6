"""What one turn of a monitor asks for and shows: of one job, of all of them, and of ten at once."""

import threading
import time

import msgspec

from edt_sdk.monitor import JobMonitor
from edt_sdk.monitor.base import SIGNS
from edt_sdk.monitor.rounds import ROUNDS
from edt_sdk.schemas.job import JobProgress
from tests.sdk.monitor.hands import asked, line, opened, show, text, text_of


def test_only_what_is_shown_is_fetched(monitor, training):
    view = "GET jobs/edt-1"
    monitor.turn()
    assert asked(training) == [view, f"{view}/pictures/spark"]
    monitor.turn()
    assert asked(training) == [view]
    for title, paths in {
        "Metrics": [view, f"{view}/pictures/loss", "GET jobs"],
        "Allocation": [view, f"{view}/pictures/allocation", f"{view}/pictures/efficiency", f"{view}/workers"],
        "Logs": [view, f"{view}/logs"],
        "Checkpoints": [view, f"{view}/checkpoints"],
    }.items():
        show(monitor, title)
        monitor.turn()
        assert asked(training) == paths
        assert "Fetching" not in text_of(monitor.page)


def test_while_a_cell_runs_the_other_tabs_have_their_turns_too(monitor, training, monkeypatch):
    monitor.turn()
    asked(training)
    monkeypatch.setattr(SIGNS, "_began_at", time.monotonic() - 10)
    found = []
    for _ in range(4):
        monitor.turn()
        found += asked(training)
    for path in ("pictures/loss", "pictures/allocation", "logs", "checkpoints"):
        assert found.count(f"GET jobs/edt-1/{path}") == 1


def test_a_picture_is_fetched_again_only_when_there_is_something_new(monitor, training, make_view):
    show(monitor, "Metrics")
    monitor.turn()
    monitor.page._looked_at = float("-inf")
    asked(training)
    monitor.turn()
    assert asked(training) == ["GET jobs/edt-1"]
    training.view = make_view(progress=JobProgress(update=4, total_updates=9, loss=0.3))
    monitor.turn()
    assert asked(training) == ["GET jobs/edt-1", "GET jobs/edt-1/pictures/loss"]


def test_what_is_shown_has_units_and_age(monitor):
    monitor.turn()
    said = text(monitor)
    for words in ("RUNNING", "as of 20", "3 of 9", "loss 0.3333", "2 of at most 4", "Since its start"):
        assert words in said


def test_a_monitor_that_nobody_sees_asks_for_nothing_until_it_is_seen_again(monitor, training):
    monitor._shown({"new": 1})
    monitor.turn()
    asked(training)
    monitor._shown({"new": 0})
    monitor.turn()
    assert (asked(training), monitor.due) == ([], float("inf"))
    training.end()
    monitor._shown({"new": 1})
    monitor.turn()
    assert "FINISHED" in monitor._output.left[-1]["text/html"]


def test_the_end_leaves_a_picture_in_the_output_and_in_the_widget(monitor, training):
    training.end()
    monitor.turn()
    assert monitor.over
    left = monitor._output.left[-1]["text/html"]
    assert [widget.value for widget in monitor._box.children] == [left]
    assert "lines" not in monitor._output.left[-1]


def test_its_cell_run_again_ends_it_and_leaves_nothing(monitor):
    output = monitor._output
    monitor.cell_runs_again()
    monitor.turn()
    assert monitor.over
    assert output.left == []


def test_a_log_of_long_lines_and_progress_bars_is_shown(monitor, training):
    lines = [line("x" * 1_000_000), line("\r10 %\r20 %"), line("\x1b[31mred\x1b[0m <b>")]
    training.on("GET", "jobs/edt-1/logs", {"lines": lines, "next": "a"})
    show(monitor, "Logs")
    monitor.turn()
    html = monitor.page._lines.value
    assert len(html) < 10_000
    assert "cut; the line has 1,000,000 characters" in html
    assert "20 %" in html
    assert "10 %" not in html
    assert "red &lt;b&gt;" in html


def test_the_log_is_followed_searched_and_one_workers(monitor, training):
    both = [line("one"), line("two", worker=1, err=True)]
    training.on("GET", "jobs/edt-1/logs", lambda r: (200, {"lines": [] if "after" in r.query else both, "next": "a"}))
    show(monitor, "Logs")
    monitor.turn()
    page = monitor.page
    assert training.requests[-1].query == {"stream": "all", "tail": "500"}
    page._search.value = "TWO"
    monitor.turn()
    assert "<mark>two</mark>" in page._lines.value
    assert "1 of 2 lines contain “TWO”" in page._said.value
    assert training.requests[-1].query == {"stream": "all", "after": "a", "limit": "2000"}
    page._search.value = "nowhere"
    monitor.turn()
    assert "“nowhere” is not in" in page._said.value
    page._search.value = ""
    page._whose.value = ("worker", 1)
    monitor.turn()
    assert training.requests[-1].query == {"stream": "worker", "worker": "1", "tail": "500"}
    page._follow.value = False
    monitor.turn()
    asked(training)
    monitor.turn()
    assert asked(training) == ["GET jobs/edt-1"]


def test_all_jobs_are_listed_found_and_counted(overview, training, make_view):
    views = [msgspec.to_builtins(make_view(id=f"edt-{n}", name=f"job {n}")) for n in range(200)]
    training.on("GET", "jobs", {"jobs": views, "next": "…"})
    overview.turn()
    assert training.requests[-1].query == {"limit": "200"}
    assert "200 hold slots, 0 wait, of the newest 200 jobs; client.jobs() lists older ones." in overview._head.value
    assert "150 more" in overview._table.value
    overview._search.value = "job 17"
    overview.turn()
    assert overview._table.value.count("<code>") == 11


def test_its_tabs_are_pictures(overview, training):
    for title, path in {"Allocation": "timeline", "Machine": "shares"}.items():
        show(overview, title)
        overview.turn()
        assert asked(training)[-1] == f"GET pictures/{path}"
    assert "It goes down" in overview._timeline.value


def test_ten_monitors_share_one_thread_and_ask_no_more_often_than_four(training, client):
    monitors = [opened(JobMonitor(client.job("edt-1"))) for _ in range(10)]
    for monitor in monitors:
        ROUNDS.add(monitor)
    assert ROUNDS.interval() == 2.5
    assert sum(1 for thread in threading.enumerate() if thread.name == "edt-monitor") == 1
    training.end()
    for monitor in monitors:
        ROUNDS.wake(monitor)
        assert monitor.join(30)
    for thread in [thread for thread in threading.enumerate() if thread.name == "edt-monitor"]:
        thread.join(30)
    assert ROUNDS.watchers() == []
