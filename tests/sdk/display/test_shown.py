"""What a job answers with, at the end of a cell: a table or a picture, whatever the figures are, never a flood."""

import re

import pytest

from edt_sdk.display.log_text import LogLine, LogText
from edt_sdk.display.readings import Checkpoints, Metrics, Story, Timeline, Workers
from edt_sdk.formatting.number_words import size
from edt_sdk.formatting.tables import html_table, left_out
from edt_sdk.schemas.events import Event

HARMLESS = {"div", "span", "b", "br", "code", "img", "table", "tr", "th", "td", "p", "pre", "details", "summary"}


def point(update, loss=0.5, world=1):
    return {"update": update, "epoch": 0, "samples": 8, "loss": loss, "accuracy": None, "world": world, "time": 1.0}


def validation(epoch, loss=0.4):
    return {"epoch": epoch, "update": 9, "loss": loss, "accuracy": 0.9, "time": 2.0}


def checkpoint(number, kind="exact"):
    return {"name": f"epoch-{number}", "kind": kind, "epoch": number, "update": 7, "bytes": 7800, "time": float(number)}


def event(text):
    return Event(seq=1, time=50551.0, job="edt-1", kind="state", data={}, cause=None, text=text)


ROW = {"time": 50551.0, "slots": {"a": 1}, "leaving": {}, "free": 1, "capacity": 2, "cause": "", "text": "<grew>"}
WORKER = {"worker": 0, "rank": None, "slot": 3, "host": "gpu-1", "pid": 99, "generation": 2}


def everything():
    log = [
        LogLine(time=1.0, stream="stdout", text="<b>hello</b>"),
        LogLine(time=2.0, stream="worker", worker=1, text="x"),
    ]
    return [
        Metrics(train=[point(0), point(1, world=2)], test=[validation(0)]),
        Story([event("Submitted <now>.")]),
        Timeline(capacity=2, rows=[ROW], names={"a": "mine"}, until=50651.0),
        Checkpoints([checkpoint(1), checkpoint(2, "weights")]),
        Workers([WORKER]),
        LogText(log),
    ]


def test_metrics_say_which_tests_they_leave_out():
    metrics = Metrics(train=[point(0)], test=[validation(epoch) for epoch in range(12)])
    assert "… the tests of 2 earlier validations are in .test\n  test, epoch 3: " in repr(metrics)
    assert "… and 2 more of 12, which are not shown here." in metrics._repr_html_()
    assert "earlier" not in repr(Metrics(train=[point(0)], test=metrics.test[:10]))


@pytest.mark.parametrize("shown", everything(), ids=lambda shown: type(shown).__name__)
def test_it_is_html_that_an_untrusted_notebook_keeps(shown):
    html = shown._repr_html_()
    assert set(re.findall(r"</?([a-z]+)", html)) <= HARMLESS
    assert not re.search(r"<(now|grew)>|<b>hello", html)
    assert "<table" in html or "<img" in html or "<pre" in html


@pytest.mark.parametrize(
    ("empty", "said"),
    [
        (Metrics(train=[], test=[]), "No figures yet"),
        (Story(), "Nothing has happened yet."),
        (Timeline(capacity=2, rows=[], names={}), "No slot has been given to a job yet."),
        (Checkpoints(), "No checkpoint yet: one is written at the end of an epoch"),
        (Workers(), "No worker runs now."),
        (LogText([]), "Nothing has been written yet."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_of_nothing_there_is_a_sentence(empty, said):
    assert said in empty._repr_html_()
    assert repr(empty)


def test_losses_that_are_no_numbers_are_counted_and_drawn():
    metrics = Metrics(train=[point(0), point(1, None), point(2, None)], test=[validation(0, None)])
    said = "2 of 3 training points are no numbers (NaN or infinite): try a smaller learning rate"
    assert said in metrics._repr_html_()
    assert said in repr(metrics)
    assert "<img" in Metrics(train=[point(0, None), point(1, None)], test=[])._repr_html_()


def test_a_flood_is_cut_and_says_so():
    log = LogText(LogLine(time=1.0, stream="stdout", text="x" * 1_000_000) for _ in range(3))
    assert len(repr(log)) < 10_000
    assert len(log._repr_html_()) < 20_000
    many = LogText(LogLine(time=1.0, stream="stdout", text=str(n)) for n in range(3000))
    assert "2,000 more of 3,000" in repr(many)
    assert repr(many).endswith("2999")
    assert "the newest 300" in many._repr_html_()
    assert len(many) == len("".join(f"{n}\n" for n in range(3000)))
    assert "900 more of 1,000" in Story([event("It grew.")] * 1000)._repr_html_()
    assert "900 more of 1,000" in Checkpoints(checkpoint(n) for n in range(1000))._repr_html_()


def test_checkpoints_are_newest_first_and_have_sizes():
    html = Checkpoints([checkpoint(1), checkpoint(2)])._repr_html_()
    assert html.index("epoch-2") < html.index("epoch-1")
    assert "7.8 kB" in html


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 B"), (999, "999 B"), (1200, "1.2 kB"), (5e9, "5.0 GB"), (3e15, "3000.0 TB")]
)
def test_sizes(count, said):
    assert size(count) == said


def test_a_table_says_when_it_is_empty_and_what_it_leaves_out():
    assert html_table(("A",), [], empty="None <yet>.") == "<p>None &lt;yet&gt;.</p>"
    assert html_table(("A",), []) == ""
    assert left_out(3, 3) == ""


def test_metrics_show_each_evaluation_and_draw_one():
    other = {**validation(0, loss=None), "accuracy": None, "name": "hard", "drawn": False, "metrics": {"f1": 0.5}}
    metrics = Metrics(train=[point(0)], test=[validation(0), other])
    assert metrics.test_loss == 0.4
    assert repr(metrics).endswith("  hard, epoch 1: f1 0.5")
    assert re.search(r">hard</td><td[^>]*>f1 0.5</td>", metrics._repr_html_())
