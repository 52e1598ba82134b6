"""Lines of a log as HTML: cut, and without escape sequences."""

import pytest

from edt_sdk.display.log_text import LONGEST, LogLine, log_html, plain


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


def test_only_what_the_line_marks_is_markup():
    html = log_html([LogLine(time=0.0, stream="stdout", text="<i>Loss</i> 3", err=True)])
    assert "&lt;i&gt;Loss" in html
    assert "✘" in html
    assert "✘" not in log_html([LogLine(time=0.0, stream="stdout", text="3")])
