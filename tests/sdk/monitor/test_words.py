"""What a monitor says, and how long it bears a silent server: pure functions."""

import pytest

from edt_sdk.display.log_line import LogLine
from edt_sdk.display.log_lines import LONGEST, LogLines, log_html, log_words, plain
from edt_sdk.monitor.consequence import consequence
from edt_sdk.monitor.overview import rows
from edt_sdk.monitor.pace import Pace
from edt_sdk.monitor.parts import lasting
from edt_sdk.monitor.patience import LONGEST_PAUSE, PATIENCE, Silence
from edt_sdk.schemas.forecast import WhatIf, WhatIfShare
from edt_sdk.schemas.job import JobProgress, JobState, Reason


def answer(*shares, **more):
    told = [WhatIfShare(job=job, name=job, now=now, then=then) for job, now, then in shares]
    return WhatIf(job="mine", priority=1, max_workers=1, instance_group="g", shares=tuple(told), **more)


NOTHING = Reason(code="busy", text="All slots are taken.", held=0, entitled=0, asked=1)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (answer(("mine", 2, 3), ("a", 2, 1)), "It goes from 2 to 3 slots; a from 2 to 1."),
        (answer(("mine", 2, 2), ("a", 1, 1)), "It stays at 2 slots."),
        (
            answer(("mine", 0, 5), *((f"j{n}", 2, 1) for n in range(5))),
            "It goes from 0 to 5 slots; j0 from 2 to 1, j1 from 2 to 1, j2 from 2 to 1, 2 more jobs change too.",
        ),
        (answer(("mine", 1, 0), reason=NOTHING), "It goes from 1 to 0 slots. All slots are taken."),
        (answer(("mine", 1, 2), reason=NOTHING), "It goes from 1 to 2 slots."),
        (
            answer(("mine", 1, 2), ends_now=50551.0, ends_then=50641.0),
            "It goes from 1 to 2 slots. Its training would end about 14:04:01 UTC, 1 min 30 s later, "
            "if nobody else comes.",
        ),
        (answer(), ""),
    ],
)
def test_the_sentence_of_a_consequence(told, said):
    assert consequence(told) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_how_long_something_lasts(seconds, said):
    assert lasting(seconds) == said


def test_a_silent_server_is_asked_less_and_less_often_and_not_for_ever():
    silence = Silence(100.0)
    pauses = []
    for _ in range(8):
        pauses.append(silence.pause)
        silence = silence.again()
    assert pauses == [1, 2, 4, 8, *[LONGEST_PAUSE] * 4]
    assert not silence.over(100.0 + PATIENCE)
    assert silence.over(100.1 + PATIENCE)


def test_when_it_ends_at_this_pace(make_view):
    pace = Pace()

    def at(now, update, **changes):
        view = make_view(progress=JobProgress(update=update, total_updates=100), **changes)
        pace.saw(view, now)
        return pace.ends(view)

    assert [at(100.0, 0), at(102.0, 4)] == [None, None]
    assert at(110.0, 20) == 150.0
    assert at(111.0, 22, slots=4) is None  # faster or slower from now on
    assert at(121.0, 62, slots=4) == 130.5
    assert at(122.0, 62, slots=4, state=JobState.RECOVERING) is None


def test_figures_without_numbers_and_units(make_view):
    known = dict(rows(make_view(progress=JobProgress(update=3, loss=None)), 1100.0, None))
    assert known["Update"] == "3"
    assert known["Training"] == "no figures"
    assert known["Validation"] == "none yet"
    assert known["Since its start"] == "1 min 40 s"
    ended = make_view(state=JobState.FINISHED, ended=1010.0, warm_start="edt-0")
    assert dict(rows(ended, 9999.0, None)) == {
        "Instance group": "default, priority 5000",
        "Since its start": "10 s",
        "Began with the weights of": "edt-0",
    }


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
