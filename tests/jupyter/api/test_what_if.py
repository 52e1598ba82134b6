"""What would be if, over REST: who may ask, what is refused, and that nothing is changed."""

import pytest

from tests.waiting import until_async


@pytest.mark.parametrize("edt_config", [{"local_slots": 1}])
async def test_the_answer(submit, call, edt_config):
    first, second = [(await submit(name=name, framework="edtPyTorch")).json["id"] for name in ("one", "two")]
    answer = await call("GET", f"jobs/{second}/what-if", params={"priority": "8000", "max_workers": "3"})
    assert answer.status == 200
    assert answer.json["priority"] == 8000
    assert answer.json["max_workers"] == 3
    assert [(each["job"], each["name"], each["now"]) for each in answer.json["shares"]] == [
        (first, "one", 1),
        (second, "two", 0),
    ]
    assert sum(each["then"] for each in answer.json["shares"]) == 1
    assert answer.json["ends_then"] is None
    view = (await call("GET", f"jobs/{second}")).json
    assert (view["priority"], view["max_workers"]) == (5000, 1)


@pytest.mark.parametrize(
    ("params", "status", "field"),
    [
        ({}, 400, "priority"),
        ({"priority": "high"}, 400, "priority"),
        ({"priority": "0"}, 422, "priority"),
        ({"max_workers": "0"}, 422, "max_workers"),
        ({"instance_group": "nowhere"}, 422, "instance_group"),
    ],
)
async def test_what_is_refused(submit, call, params, status, field):
    job = (await submit()).json["id"]
    answer = await call("GET", f"jobs/{job}/what-if", params=params)
    assert (answer.status, answer.json["field"]) == (status, field)


async def test_of_no_job_and_of_an_ended_one(submit, call):
    assert (await call("GET", "jobs/none/what-if", params={"priority": "8"})).status == 404
    job = (await submit()).json["id"]
    await call("POST", f"jobs/{job}/stop", body=b"")

    async def killed():
        return (await call("GET", f"jobs/{job}")).json["state"] == "KILLED"

    await until_async(killed, "the job's end")
    assert (await call("GET", f"jobs/{job}/what-if", params={"priority": "8"})).status == 409
