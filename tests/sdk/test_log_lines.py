"""Lines of a log as HTML: cut, without escape sequences, the newest, and what is searched for marked."""

import pytest

from edt_sdk.display.log_line import LogLine
from edt_sdk.display.log_lines import LONGEST, LogLines, log_html, log_words, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("10 %\r20 %\r", "20 %"),
        ("a\x00b\tc", "ab\tc"),
        ("", ""),
        ("x" * LONGEST, "x" * LONGEST),
    ],
)
def test_a_line_is_what_a_terminal_would_show(text, shown):
    assert plain(text) == shown


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\x1b[0m" * 250_000, "x" * (LONGEST + 1)])
def test_a_long_line_is_cut_and_says_so(text):
    assert plain(text).endswith(f"… (cut; the line has {len(text):,} characters)")
    assert len(plain(text)) < LONGEST + 80


def test_of_many_lines_the_newest_are_kept():
    log = LogLines(10)
    log.add(LogLine(time=float(n), stream="worker", worker=n % 3, text=f"line {n}") for n in range(25))
    assert (len(log), log.dropped, log.workers) == (10, True, [0, 1, 2])
    html = log_html(log.matching(""), shown=4)
    assert html.count("\n") == 4
    assert "line 24" in html
    assert "The last 10 lines, of which the newest 4 are shown" in log_words(log, 10, "", shown=4)


def test_what_is_searched_for_is_marked_and_nothing_else_is_markup():
    log = LogLines()
    log.add([LogLine(time=0.0, stream="stdout", text="<i>Loss</i> [loss] 3", err=True)])
    html = log_html(log.matching("loss"), search="loss")
    assert html.count("<mark>") == 2
    assert "&lt;i&gt;" in html
    assert "✘" in html
    assert log.matching("[LOSS]")
    assert log_html(log.matching("[loss]"), search="[loss]").count("<mark>") == 1
