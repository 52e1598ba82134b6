"""How long a monitor watches, when it sends requests, and what it leaves."""

import time

import msgspec
import pytest

from edt_sdk.monitor.base import SIGNS
from edt_sdk.schemas.search.views import SearchState
from tests.sdk.monitor.hands import asked, tell


def test_it_looks_at_the_job_alone(monitor, training):
    monitor.turn()
    assert asked(training) == ["GET jobs/edt-1"]
    assert not monitor.over
    assert monitor.job.view.progress.update == 3


def test_the_end_leaves_a_picture_in_the_output(monitor, training):
    training.end()
    monitor.turn()
    assert monitor.over
    [left] = monitor._output.left
    assert "FINISHED" in left["text/html"]
    for words in ("Metrics", "Allocation", "Logs", "two", "Checkpoints"):
        assert words in left["text/html"]
    assert left["text/html"].count('alt="It goes down &amp; down."') == 3


def test_a_monitor_that_was_closed_leaves_the_card_of_a_job_that_goes_on(monitor):
    monitor.close()
    monitor.turn()
    [left] = monitor._output.left
    assert left["application/vnd.edt.job+json"]["id"] == "edt-1"
    assert "RUNNING" in left["text/html"]


def test_a_cell_that_is_run_again_ends_it_and_leaves_nothing(monitor):
    output = monitor._output
    monitor.cell_runs_again()
    monitor.turn()
    assert monitor.over
    assert output.left == []


def test_a_monitor_that_no_page_shows_any_more_sends_no_request(monitor, training):
    tell(monitor, kind="seen")
    monitor.turn()
    assert asked(training) == ["GET jobs/edt-1"]
    tell(monitor, kind="gone")
    monitor.turn()
    assert asked(training) == []
    training.end()
    tell(monitor, kind="seen")
    monitor.turn()
    assert "FINISHED" in monitor._output.left[-1]["text/html"]


@pytest.mark.parametrize(("expired", "listens"), [(1, True), (20, False), (None, False)])
def test_a_lease_that_expires_while_a_cell_runs_lasts_as_long_as_the_cell(monitor, monkeypatch, expired, listens):
    """No page can renew it then. One that expired before the cell began, or was given back, stays so."""
    tell(monitor, kind="gone" if expired is None else "seen")
    if expired is not None:
        monitor._lease = time.monotonic() - expired
    assert not monitor.watched
    monkeypatch.setattr(SIGNS, "_began_at", time.monotonic() - 10)
    assert monitor.watched == listens


def test_it_wakes_up_when_a_page_comes_back_and_not_at_each_sign_of_life(monitor):
    for message in ("seen", "gone", "seen", "seen", "seen"):
        tell(monitor, kind=message)
    assert monitor._wakes.qsize() == 2


def test_a_search_that_may_start_jobs_is_watched_too(overview, training, make_search):
    training.end()
    view = make_search()

    def searches(request):
        return 200, {"searches": [msgspec.to_builtins(view)] if request.query["state"] == view.state else []}

    training.on("GET", "searches", searches)
    overview.turn()
    assert not overview.over
    assert "digits-lr" in overview._snapshot("")["text/plain"]
    assert "Searches" in overview._snapshot("")["text/html"]
    view = make_search(state=SearchState.PAUSED)
    overview.turn()
    assert overview.over


def test_all_jobs_are_watched_until_none_is_active(overview, training):
    overview.turn()
    assert asked(training) == ["GET jobs", "GET searches", "GET searches"], "those that run, and those that will"
    assert not overview.over
    training.end()
    overview.turn()
    assert overview.over
    left = overview._output.left[-1]["text/html"]
    assert "0 hold slots, 0 wait, of 1 job." in left
    assert "It goes down" in left
