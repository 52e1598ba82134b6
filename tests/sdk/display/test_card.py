import base64
import re
import xml.etree.ElementTree as ET

import pytest

from edt_sdk.display.card import html_card, jobs_table, sentence, short_line, text_card
from edt_sdk.pictures.parts.card_pictures import curve, progress_bar
from edt_sdk.pictures.parts.paper import image
from edt_sdk.schemas.job import JobProgress, JobState, Reason

PROGRESS = JobProgress(
    update=120, total_updates=200, epoch=2, epochs=5, loss=0.1234, accuracy=0.95, test_loss=0.2, test_accuracy=0.972
)
WAITING = Reason(code="busy", text="Waiting for a slot: 4 of 4 are taken.", held=0, entitled=1, asked=4)
SUSPENDED = Reason(
    code="suspended", text="It is suspended. To go on: edt resume edt-1", held=0, entitled=0, asked=0, numbers={}
)
TAKEN = 50551.0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "Job edt-1 (digits): running, 2 of at most 4 slots."),
        (
            {"progress": PROGRESS},
            "Job edt-1 (digits): running, 2 of at most 4 slots, update 120 of 200, epoch 3 of 5, loss 0.1234, "
            "accuracy 95.0 %, test accuracy 97.2 %.",
        ),
        (
            {"state": JobState.PENDING, "slots": 0, "reason": WAITING},
            "Job edt-1 (digits): pending, 0 of at most 4 slots — Waiting for a slot: 4 of 4 are taken.",
        ),
        (
            {"state": JobState.FAILED, "message": "ValueError: no data\nTraceback …"},
            "Job edt-1 (digits): failed — ValueError: no data.",
        ),
        ({"state": JobState.FINISHED, "message": "done"}, "Job edt-1 (digits): finished."),
        (
            {"state": JobState.SUSPENDED, "slots": 0, "reason": SUSPENDED},
            "Job edt-1 (digits): suspended, 0 of at most 4 slots — It is suspended. To go on: edt resume edt-1.",
        ),
        (
            {"state": JobState.RECOVERING, "reason": WAITING, "message": "Worker 3 was killed by SIGKILL."},
            "Job edt-1 (digits): recovering, 2 of at most 4 slots — Worker 3 was killed by SIGKILL.",
        ),
    ],
)
def test_one_sentence_that_can_be_read_aloud(make_view, changes, text):
    assert sentence(make_view(**changes)) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"reason": WAITING}, "digits: running, 2 of 4 slots"),
        (  # its workers still leave
            {"reason": SUSPENDED},
            "digits: running, 2 of 4 slots — It is suspended. To go on: edt resume edt-1",
        ),
        (
            {"state": JobState.SUSPENDED, "slots": 0, "reason": SUSPENDED},
            "digits: suspended, 0 of 4 slots — It is suspended. To go on: edt resume edt-1",
        ),
        (
            {"state": JobState.RECOVERING, "message": "Worker 3 was killed by SIGKILL."},
            "digits: recovering, 2 of 4 slots — Worker 3 was killed by SIGKILL.",
        ),
        (
            {"reason": WAITING, "message": "ann is stopping it."},
            "digits: running, 2 of 4 slots — ann is stopping it.",
        ),
        (
            {"state": JobState.PENDING, "slots": 0, "reason": WAITING},
            "digits: pending, 0 of 4 slots — Waiting for a slot: 4 of 4 are taken.",
        ),
        (
            {"state": JobState.FAILED, "message": "ValueError: no data\nTraceback …"},
            "digits: failed — ValueError: no data",
        ),
    ],
)
def test_a_line_of_progress_explains_only_what_does_not_run(make_view, changes, text):
    assert short_line(make_view(**changes)) == text


def test_the_card(make_view):
    html = html_card(make_view(progress=PROGRESS), TAKEN)
    pictures = re.findall(r'<img src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]+" alt="([^"]*)"/>', html)
    assert pictures == ["60 % done, 2 of 4 slots"]
    assert re.sub(r"<img [^>]*/>", "<PICTURE>", html) == (
        '<div role="group" aria-label="Job edt-1 (digits): running, 2 of at most 4 slots, update 120 of 200, '
        'epoch 3 of 5, loss 0.1234, accuracy 95.0 %, test accuracy 97.2 %.">'
        '<span style="color: #4a8fd4"><b>▶ RUNNING</b></span> &nbsp; <b>digits</b> &nbsp; <code>edt-1</code><br/>'
        "2 of at most 4 slots · update 120 of 200 · epoch 3 of 5 · loss 0.1234 · accuracy 95.0 % · test accuracy 97.2 %"
        '<br/><PICTURE><br/><span style="color: #8a8a8a">Snapshot of 1970-01-01 14:02:31 UTC: '
        "what happened since is not in it.</span></div>"
    )


def test_the_card_says_whose_weights_the_job_began_with(make_view):
    assert "<br/>warm start from <code>edt-0</code><br/>" in html_card(make_view(warm_start="edt-0"), TAKEN)


def test_a_card_without_its_server_is_grey_and_says_since_when(make_view):
    html = html_card(make_view(), TAKEN, trouble="The server does not answer.")
    assert "Last seen 1970-01-01 14:02:31 UTC. The server does not answer." in html
    assert "#4a8fd4" not in html
    assert "Last seen 1970-01-01 14:02:31 UTC" in text_card(make_view(), TAKEN, trouble="x")


@pytest.mark.parametrize("state", list(JobState))
def test_no_card_has_what_an_untrusted_notebook_strips(make_view, state):
    view = make_view(state=state, name="<script>alert(1)</script>", progress=PROGRESS, reason=WAITING, message="<b>&")
    for html in (html_card(view, TAKEN, losses=[(0, 1.0), (1, 0.5)]), jobs_table([view])):
        tags = set(re.findall(r"</?([a-z]+)", html))
        assert tags <= {"div", "span", "b", "br", "code", "img", "table", "tr", "th", "td"}
        assert "on" not in re.findall(r" (on)\w+=", html)
        styles = [
            part.split(":")[0].strip() for text in re.findall(r'style="([^"]*)"', html) for part in text.split(";")
        ]
        assert set(styles) <= {"color", "text-align", "white-space"}


def parse(svg):
    return ET.fromstring(svg)


def test_pictures_are_well_formed_and_scaled():
    boxes = parse(progress_bar(0.25, 3, 8, width=200)).findall("{*}rect")
    assert float(boxes[1].get("width")) == pytest.approx(0.25 * 199, abs=0.1)
    filled = [box for box in boxes[2:] if box.get("fill") != "none"]
    assert (len(boxes) - 2, len(filled)) == (8, 3)
    line = parse(curve([(0, 2.0), (10, 1.0), (20, 0.0)], width=104, height=54)).find("{*}polyline")
    assert line.get("points") == "2.0,2.0 52.0,27.0 102.0,52.0"


@pytest.mark.parametrize("points", [[], [(0, 1.0)], [(0, float("nan")), (1, 2.0)]])
def test_no_curve_without_two_points(points):
    assert curve(points) == ""
    assert image("", "nothing") == ""


def test_an_image_keeps_its_svg():
    svg = progress_bar(1.5, 0, 0)
    data = re.search(r"base64,([^\"]+)", image(svg, 'says "this"'))[1]
    assert base64.b64decode(data).decode() == svg


def test_a_stopped_job_says_so_once(make_view):
    stopped = make_view(state=JobState.KILLED, slots=0, message="Stopped by root.")
    for line in (sentence(stopped), short_line(stopped)):
        assert "stopped by root" in line
        assert line.lower().count("stopped") == 1
    assert sentence(make_view(state=JobState.KILLED, slots=0, message="Its time is over.")).endswith(
        "Its time is over."
    )
