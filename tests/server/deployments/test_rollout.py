"""When a revision that answers a part of the callers is given up, and how revisions follow each other."""

from __future__ import annotations

import msgspec
import pytest

from edt_sdk.schemas.serving.deployments import DeploymentSettings
from edt_sdk.schemas.serving.edge_file import Counters
from edt_server.deployments import DeploymentRecord, RevisionRecord, verdict


def counted(answers: int, errors: int = 0, milliseconds: int = 10) -> Counters:
    bounds = (0.005, 0.01, 0.02, 0.05, 0.1)
    latency = {bound: answers if bound * 1000 >= milliseconds else 0 for bound in bounds}
    return Counters(requests={200: answers - errors, 500: errors}, latency=latency)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (counted(49, errors=49), ""),
        (counted(50, errors=1), ""),
        (counted(50, errors=2), "errors"),
        (counted(200), ""),
        (counted(200, milliseconds=20), ""),
        (counted(200, milliseconds=50), "50 ms"),
    ],
)
def test_more_errors_or_much_slower_answers_speak_against_it(new, why):
    found = verdict(counted(1000), new)
    assert why in found
    assert bool(found) == bool(why)


def test_errors_that_the_one_before_has_too_speak_against_nobody():
    assert verdict(counted(1000, errors=500), counted(100, errors=51)) == ""


def test_what_only_the_caller_did_wrong_is_no_error_of_a_revision():
    assert verdict(counted(1000), Counters(requests={200: 50, 400: 100}, latency={0.01: 150})) == ""


def revision(number: int, version: str) -> RevisionRecord:
    return RevisionRecord(
        number=number, version=version, job=f"j{number}", created=0.0, by="ann", max_batch=1, exact=False, deadline=1.0
    )


def test_revisions_follow_each_other():
    record = DeploymentRecord(instance_group="default", settings=DeploymentSettings())
    assert (record.last, record.before) == (None, None)
    record = record.added(revision(1, "digits/1")).has_answered(1)
    assert (record.active, record.coming, record.before) == (1, 0, None)
    record = record.added(revision(2, "digits/2"))
    assert [each.version for each in record.answering] == ["digits/1", "digits/2"]
    assert record.promoted(3) == record.aborted(3, "It raised.") == record, "no such revision comes"
    record = record.promoted(2).has_answered(2)
    assert (record.active, record.coming) == (2, 0)
    assert record.before == record.revisions[0]
    assert record.revisions[0].outcome == "It answered until revision 2 took over."
    record = record.added(revision(3, "digits/3")).aborted(3, "It raised.")
    assert (record.active, record.coming, record.before) == (2, 0, record.revisions[0])
    record = record.added(revision(4, "digits/4")).stopped("It answered until it was stopped by ann.")
    assert (record.active, record.coming, record.answering) == (0, 0, ())
    assert record.last.version == "digits/2"
    assert record.revisions[3].outcome == "It was stopped before it took over."
    restarted = record.restarted(2, "j6")
    assert (restarted.active, restarted.revisions[1].job, restarted.revisions[1].outcome) == (2, "j6", "")
    record = record.added(revision(5, "digits/5"))
    assert record.active == 5
    assert record.before == record.revisions[1]
    record = record.added(revision(6, "digits/6")).promoted(6)
    assert record.revisions[4].outcome == "It never answered, and revision 6 took over."
    assert record.before == record.revisions[1], "one that never answered is nothing to go back to"
    assert msgspec.convert(msgspec.to_builtins(record), DeploymentRecord) == record
