"""Jobs in a terminal: the table that fits, the sheet of one job, the page of all of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from edt_sdk.display.cluster_view import Cluster
from edt_sdk.display.jobs_text import LISTED, WATCHED, changes_text, jobs_text, sheet
from edt_sdk.display.top_view import top_lines
from edt_sdk.formatting.number_words import duration
from edt_sdk.formatting.tables import text_table
from edt_sdk.schemas.job import JobProgress, JobState, Reason
from edt_sdk.schemas.search.views import SearchState

NOW = 1180.0
HALF = JobProgress(
    update=50, total_updates=100, loss=0.25, accuracy=0.5, test_accuracy=0.972, samples_per_second=1234.5
)
WHY = Reason(code="share", text="It has 2 of 4 slots.", details="4 ÷ 2 = 2.", held=2, entitled=2, asked=4)


@pytest.fixture
def views(make_view):
    return [
        make_view(id="b-2", name="b", state=JobState.FAILED, message="train.py raised ValueError: no.\nmore", slots=0),
        make_view(id="a-1", name="a", progress=HALF, reason=WHY, args=("--lr", "0.1", "a b"), tags=("t", "u")),
    ]


def test_a_pipe_gets_every_column(views):
    head, failed, runs = jobs_text(views, LISTED, NOW).splitlines()
    assert tuple(head.split()) == LISTED
    assert failed.split()[2:] == [
        *("FAILED", "-", "-", "5000", "ann", "3", "min", "-", "-", "-", "-"),
        *("train.py", "raised", "ValueError:", "no."),
    ]
    assert runs.split()[2:12] == ["RUNNING", "2/4", "50", "%", "5000", "ann", "3", "min", "0.25", "97.2"]
    assert "--lr 0.1 'a b'  t, u  It has 2 of 4 slots." in runs
    empty = jobs_text(views[:1], LISTED, NOW).splitlines()[0]
    assert tuple(empty.split()) == LISTED


def test_columns_go_where_a_terminal_is_narrow(views):
    shown = []
    for width in (200, 110, 80, 60, 40, 20):
        lines = jobs_text(views, LISTED, NOW, width=width).splitlines()
        assert max(map(len, lines)) <= width
        shown.append(set(lines[0].split()))
    assert all(later <= before | {"…"} for before, later in pairwise(shown))
    assert "ARGS" in shown[0]
    assert {"OWNER", "PRIORITY"} & shown[2] == set()
    assert {"ID", "STATE"} <= shown[4]
    # A column without any value takes no place.
    assert "TAGS" not in jobs_text(views[:1], LISTED, NOW, width=200)


def test_a_terminal_has_the_whole_reason_below_its_job(make_view):
    """As narrow as it may be: the reason is what people look for, and a column had 28 characters for it."""
    why = Reason(
        code="share",
        text="It has 2 of 4 slots: long-b has priority 10000 and this one 5000, so it gets two of three slots.",
        **dict.fromkeys(("held", "entitled", "asked"), 2),
    )
    views = [make_view(id="a-1", reason=why), make_view(id="b-2")]
    head, first, *reason, last = jobs_text(views, WATCHED, NOW, width=60).splitlines()
    assert "WHY" not in head
    assert (first.split()[0], last.split()[0]) == ("a-1", "b-2")
    assert " ".join(" ".join(reason).split()) == why.text
    assert all(line.startswith(5 * " ") and len(line) <= 60 for line in reason)


def test_a_search_is_a_row_in_place_of_its_trials(views, make_search):
    _, *rows = jobs_text([*views, make_search()], LISTED, NOW).splitlines()
    assert rows[2].split(maxsplit=14) == [
        *("digits-lr-1", "digits-lr", "RUNNING", "2/4", "50", "%", "5000", "ann", "5", "min", "-", "-", "-", "night"),
        "search · 40 of 80 trials · 2 of 4 slots",
    ]
    ended = make_search(state=SearchState.FAILED, message="Three trials failed:\nValueError")
    page = jobs_text([ended], WATCHED, NOW, width=100).splitlines()
    assert "│█████     │  50 %" in page[1]
    assert page[2].strip() == "search · 40 of 80 trials · Three trials failed:"


def test_a_change_is_named_with_what_was_before(make_view):
    before = make_view()
    assert changes_text(before, make_view(priority=10000)) == "priority 10000 (was 5000)"
    changed = make_view(max_workers=8, tags=("a", "b"), notes="long")
    assert changes_text(before, changed) == "max_workers 8 (was 4), notes, tags a, b (was none)"
    assert changes_text(before, before) == "nothing, it had these settings already"


def test_the_last_column_of_a_table_is_cut():
    assert text_table(("A", "B"), [("a", "x" * 40)], width=30) == f"A  B\na  {'x' * 26}…"
    assert text_table(("A", "B"), [("a", "x" * 40)]) == f"A  B\na  {'x' * 40}"
    assert text_table(("A", "B", "C"), [("a" * 20, "b", "c")], width=10, dropped=("A",)) == "B  C\nb  c"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (9000, "2.5 h"),
        (200_000, "2 d"),
    ],
)
def test_a_duration_has_one_unit(seconds, words):
    assert duration(seconds) == words


def test_a_sheet_has_everything(views, make_view):
    workers = [{"worker": 0, "slot": 1, "host": "h1", "pid": 4711}, {"worker": 1, "slot": 3, "host": "h2", "pid": 4712}]
    checkpoints = [{"name": "epoch-1", "time": 1100.0}, {"name": "epoch-2", "time": 1150.0}]
    text = sheet(views[1], NOW, workers=workers, checkpoints=checkpoints, width=80)
    lines = text.splitlines()
    assert lines[0] == "Job a-1 (a): running, 2 of at most 4 slots."
    facts = {line[2:14].strip(): line[14:] for line in lines[1:]}
    assert facts["State"] == "RUNNING since 1970-01-01 00:16:40 UTC (3 min)"
    assert facts["Why"] == WHY.text
    assert facts["Computed"] == WHY.details
    assert facts["Progress"] == "update 50 of 100, loss 0.25, accuracy 50.0 %, test accuracy 97.2 %"
    assert facts["Speed"] == "1,234 samples/s"
    assert facts["Arguments"] == "--lr 0.1 'a b'"
    assert facts["Submitted"] == "1970-01-01 00:16:30 UTC (3 min ago)"
    assert facts["Started"] == "1970-01-01 00:16:40 UTC (waited 10 s)"
    assert facts["Directory"] == views[1].result_dir
    assert facts["Workers"] == "0 in slot 1 (pid 4711), 1 in slot 3 (pid 4712)"
    assert facts["Hosts"] == "h1, h2"
    assert (facts["Group"], facts["Priority"], facts["Tags"]) == ("default", "5000", "t, u")
    assert facts["Checkpoint"] == "epoch-2 of 1970-01-01 00:19:10 UTC, the newest of 2"
    assert not {"Ended", "Error", "Notes", "Dataset"} & facts.keys()
    stopped = sheet(make_view(state=JobState.KILLED, ended=1060.0, notes="one\ntwo"), NOW)
    assert stopped.startswith("Job edt-1 (digits): stopped.")
    assert "Ended       1970-01-01 00:17:40 UTC (ran 60 s)" in stopped
    assert "  Notes       one\n              two" in stopped
    assert "KILLED" not in stopped


def test_an_error_stands_whole_and_once(views):
    lines = sheet(views[0], NOW, width=20).splitlines()
    assert lines[0] == "Job b-2 (b): failed."
    assert lines[-2:] == ["  Error       train.py raised ValueError: no.", "              more"]
    assert not any(line.startswith("  Why") for line in lines)


def test_the_page_of_all_jobs(views, make_view, make_search):
    slots = [
        {"id": at, "host": "h", "device": "cpu", "resource_group": "default", "job": job}
        for at, job in enumerate(("a-1", "a-1", None))
    ]
    machine = Cluster(slots=slots, resource_groups=[{"name": "default", "slots": 3, "free": 1}], groups=[], jobs=[])
    waits = make_view(id="c-3", name="c", state=JobState.PENDING, slots=0)
    lines = top_lines(machine, [*views, waits], NOW, width=140)
    assert lines[0] == "edt top 00:19:40   slots: 3, 1 free   jobs: 1 with slots, 1 waiting, 1 wanting more   q quits"
    assert lines[1:3] == ["default: 3 slots, 1 free", "  h  CPU  AA·"]
    rows = [line for line in lines[5:] if not line.startswith(5 * " ")]
    assert [line.split()[0] for line in rows] == ["A", "c-3", "b-2"], "jobs that have ended come last"
    assert lines[4].split() == [name for name in WATCHED if name != "WHY"]
    assert "│█████     │  50 %" in lines[5]
    assert lines[6].strip() == WHY.text
    machine["jobs"] = [{"id": "a-1", "search": "digits-lr-1"}]
    rows = top_lines(machine, [*views, make_search()], NOW, width=140)
    assert rows[0].endswith("jobs: 2 with slots, 0 waiting, 1 wanting more   q quits")
    assert [row.split()[:2] for row in rows if "digits-lr" in row] == [["A", "digits-lr-1"]], "as its trial in the bar"
    small = top_lines(machine, [*views, waits], NOW, width=50, height=7, trouble="Gone.\nAsk again.")
    assert small[1] == "Not renewed since then: Gone. Ask again."
    assert len(small) == 7
    assert max(map(len, small)) <= 50
    assert small[-1].startswith("… and 5 more lines")
    assert top_lines(machine, [], NOW, width=50)[-1] == "No jobs."
    ended = [make_view(id=f"e-{at}", state=JobState.FINISHED) for at in range(8)]
    page = top_lines(machine, [waits, *ended], NOW, width=140)
    assert [line.split()[0] for line in page if line.strip().startswith("e-")] == [f"e-{at}" for at in range(5)]
    assert page[-1] == "… and 3 that ended before: `edt list` shows them"
