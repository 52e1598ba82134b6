"""`what_if` as the SDK asks it and shows it."""

import re
import time

import msgspec
import pytest

from edt_sdk import InvalidRequest, Unprocessable
from edt_sdk.display.readings import WhatIfAnswer
from edt_sdk.schemas.forecast import WhatIfShare
from edt_sdk.schemas.job import Reason

TOLD = {
    "job": "edt-1",
    "priority": 8000,
    "max_workers": 8,
    "instance_group": "default",
    "shares": [
        {"job": "edt-1", "name": "mine", "now": 4, "then": 5},
        {"job": "edt-2", "name": "other", "now": 4, "then": 3},
    ],
    "ends_now": 1_700_000_900.0,
    "ends_then": 1_700_000_300.0,
    "reason": None,
}


@pytest.fixture
def job(peer, client, make_view):
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view()))
    return client.job("edt-1")


def test_the_question_and_the_answer(peer, job):
    peer.on("GET", "jobs/edt-1/what-if", TOLD)
    answer = job.what_if(priority=8000)
    assert peer.requests[-1].query == {"priority": "8000"}
    assert answer.shares[0] == WhatIfShare(job="edt-1", name="mine", now=4, then=5)
    head, mine, other, ends = repr(answer).splitlines()
    assert head.split() == ["JOB", "NAME", "NOW", "THEN"]
    assert mine.split() == ["edt-1", "mine", "4", "5"]
    assert other.split() == ["edt-2", "other", "4", "3"]
    assert ends.startswith("Its training would end about ")


def test_what_needs_no_server_to_be_refused(peer, job):
    with pytest.raises(InvalidRequest):
        job.what_if()
    with pytest.raises(Unprocessable):
        job.what_if(priority=0)
    assert peer.requests == [] or "what-if" not in peer.requests[-1].path


def test_the_client_takes_a_job_or_its_id(peer, client, job):
    peer.on("GET", "jobs/edt-1/what-if", TOLD)
    assert client.what_if(job, max_workers=2) == client.what_if("edt-1", max_workers=2)


def test_of_what_is_not_known():
    answer = WhatIfAnswer(job="a", priority=1, max_workers=1, instance_group="default", shares=())
    assert repr(answer).splitlines()[-1] == "When it would end is not known yet."
    answers = [
        WhatIfAnswer(job="a", priority=1, max_workers=1, instance_group="x", shares=(), **known)
        for known in ({"ends_now": 1e9}, {"ends_then": 1e9})
    ]
    ends = [repr(each).splitlines()[-1] for each in answers]
    assert ends[0].endswith("when it would end then is not known.")
    assert ends[1].endswith("when it ends as things are is not known.")


def test_a_change_that_moves_no_slot_is_said_with_the_reason():
    shares = (WhatIfShare(job="a", name="a", now=1, then=1),)
    settings = {"job": "a", "priority": 8000, "max_workers": 4, "instance_group": "default"}
    why = Reason(code="share", text="It has 1 of 4 slots: two exist.", held=1, entitled=1, asked=4)
    told = repr(WhatIfAnswer(**settings, shares=shares, reason=why)).splitlines()[-1]
    assert told == "No slot would change its job now: It has 1 of 4 slots: two exist."
    told = repr(WhatIfAnswer(**settings, shares=shares)).splitlines()[-1]
    assert told == "No slot would change its job now: this one has all it can use."


def test_a_time_far_away_has_no_seconds():
    near, far = time.time() + 30, time.time() + 3600
    told = repr(msgspec.convert({**TOLD, "ends_now": near, "ends_then": far}, WhatIfAnswer))
    assert re.search(r"would end about \w{3} \d\d:\d\d; as things are, about \w{3} \d\d:\d\d:\d\d\.", told), told
