"""Medians, ratios and verdicts of the benchmarks."""

import json

import pytest

from benchmarks import report
from benchmarks.changes import Change, Request
from benchmarks.rescale_figures import NAMES, WAYS, Measured, checks, rows
from benchmarks.summary import Check, Summary, ratio, summarize


def test_a_summary_is_median_and_worst():
    assert summarize([0.1, 0.9, 0.2]) == Summary(n=3, median=0.2, worst=0.9)
    assert summarize([]) is None
    assert Summary(3, 0.2, 1.25).text() == "200 ms, worst 1.25 s (n=3)"


def test_a_ratio_divides_by_no_less_than_a_millisecond():
    assert ratio(Summary(1, 2.0, 2.0), Summary(20, 0.05, 0.1)) == pytest.approx(40)
    assert ratio(Summary(1, 2.0, 2.0), Summary(20, -0.01, 0.1)) == pytest.approx(2000)
    assert ratio(None, Summary(20, 0.05, 0.1)) is None


def test_what_was_not_measured_is_not_reached():
    assert not Check("stall", None, 0.05, "at most").reached
    assert Check("stall", 0.05, 0.05, "at most").reached
    assert not Check("ratio", 39.0, 40.0, "at least").reached


def test_a_missed_target_is_the_exit_code(tmp_path, capsys):
    good, bad = Check("a", 1.0, 2.0, "at most"), Check("b", 3.0, 2.0, "at most")
    assert report.finish("one", {"n": 1}, [good], tmp_path) == 0
    assert report.finish("two", {"n": 1}, [good, bad], tmp_path) == 1
    written = json.loads((tmp_path / "two.json").read_text())
    assert [check["reached"] for check in written["checks"]] == [True, False]
    assert "MISS b: 3" in capsys.readouterr().out


def change(before, after, stall, delay=0.2):
    return Change(Request(0.0, before, after), stall, delay, repeated=0, steps=1)


def everything(own_growing):
    """A cycle of each side."""
    own = (change(1, 2, own_growing), change(2, 4, 0.02), change(4, 3, 0.01), change(3, 1, 0.01))
    theirs = tuple(change(a, b, 3.0, 3.0) for a, b in ((1, 2), (2, 4), (4, 3), (3, 1)))
    return [
        *(Measured(key, size, own) for key in ("warm", *WAYS, "cold") for size in (8, 150)),
        *(Measured("nothing", size, own[:2]) for size in (8, 150)),
        *(Measured(key, size, theirs) for key in ("best", "defaults") for size in (8, 150)),
    ]


def test_rescale_reaches_its_targets_or_says_which_it_misses():
    assert [check.what for check in checks(everything(0.02)) if not check.reached] == []
    missed = [check.what for check in checks(everything(0.06)) if not check.reached]
    assert len(missed) == 2 + len(WAYS)  # 8 MB
    assert all("stall, 8 MB" in what for what in missed)


def test_a_side_that_brought_nothing_misses():
    some = [one for one in everything(0.02) if one.key != "best"]
    assert sum(not check.reached for check in checks(some)) == 4
    assert all(check.reached for check in checks(some, [name for name in NAMES if name != "best"]))


def test_the_table_has_a_row_for_each_change():
    lines = rows(everything(0.02))
    assert len(lines) == 1 + 2 * (4 * (4 + len(WAYS)) + 2)
    assert lines[1][:5] == ["ours, warm", "8 MB", "1 → 2", "1", "20 ms"]
    assert len(report.table(lines).splitlines()) == len(lines) + 1
