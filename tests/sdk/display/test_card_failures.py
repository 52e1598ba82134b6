"""What a card and a list say when something is wrong, or too much: a sentence, and what was last seen."""

import msgspec
import pytest

from edt_sdk.client import JobList
from edt_sdk.client.job import MIME, Job
from edt_sdk.schemas.job import JobProgress, JobState

GONE = {"message": "There is no job edt-1.", "code": "not_found", "hint": ""}
FORBIDDEN = {"message": "Forbidden", "reason": None}


@pytest.fixture
def job(peer, client, make_view):
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view(progress=JobProgress(update=3, total_updates=9))))
    return client.job("edt-1")


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (404, GONE, "There is no job edt-1."),
        (403, FORBIDDEN, "does not accept this token."),
        (503, {"message": "", "reason": None}, "answered 503"),
        (500, {"message": "Broken.", "code": "internal"}, "Broken."),
    ],
    ids=["deleted", "token expired", "server away", "server broken"],
)
def test_a_card_says_what_was_last_seen_and_why_it_is_not_newer(peer, job, status, answer, said):
    peer.on("GET", "jobs/edt-1", lambda _: (status, answer))
    bundle = job._repr_mimebundle_()
    for kind in ("text/html", "text/plain"):
        assert "Last seen 20" in bundle[kind]
        assert said in bundle[kind]
    assert "running" in bundle["text/plain"]
    assert bundle[MIME]["view"]["state"] == "RUNNING"  # how it was at `taken`; who shows it asks for the present
    assert said in repr(job)


@pytest.mark.parametrize(
    "answer", [(500, {"message": "Broken.", "code": "internal"}), (200, {"train": [], "test": []})]
)
def test_a_card_without_its_curve_is_a_card(peer, job, answer):
    peer.on("GET", "jobs/edt-1/metrics", lambda _: answer)
    html = job._repr_mimebundle_()["text/html"]
    assert "update 3 of 9" in html
    assert html.count("<img ") == 1


def test_losses_that_are_no_numbers_leave_the_card_whole(peer, job):
    points = [{"update": n, "loss": None if n % 2 else 1.0 / (n + 1)} for n in range(9)]
    peer.on("GET", "jobs/edt-1/metrics", {"train": points, "test": [], "next": 9, "done": False})
    assert job._repr_mimebundle_()["text/html"].count("<img ") == 2


def test_ten_thousand_jobs_are_a_table_of_the_newest(client, make_view):
    jobs = JobList(Job(client.connection, make_view(id=f"edt-{n}", state=JobState.FINISHED)) for n in range(10_000))
    assert len(repr(jobs).splitlines()) == 101
    assert "9,900 more of 10,000" in repr(jobs)
    html = jobs._repr_html_()
    assert html.count("<tr>") == 51
    assert "9,950 more of 10,000" in html
