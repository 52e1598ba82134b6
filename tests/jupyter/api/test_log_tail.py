"""The last lines of a log over REST, and what follows behind them."""

from __future__ import annotations

import json

from tests.waiting import until_async

TALKER = {"train.py": b"for n in range(200): print('line', n)\n"}


async def test_the_last_lines_and_how_to_go_on(submit, call):
    job = (await submit(TALKER)).json["id"]

    async def ended():
        return (await call("GET", f"jobs/{job}")).json["state"] == "FAILED"  # it never called train()

    await until_async(ended, "the end of the job")
    told = {"stream": "stdout", "tail": 3}
    page = (await call("GET", f"jobs/{job}/logs", params=told)).json
    assert [line["text"] for line in page["lines"]] == ["line 197", "line 198", "line 199"]
    assert page["done"]
    after = {"stream": "stdout", "after": page["next"]}
    assert (await call("GET", f"jobs/{job}/logs", params=after)).json["lines"] == []
    everything = (await call("GET", f"jobs/{job}/logs", params=told | {"tail": 5000})).json["lines"]
    assert len(everything) == 200
    wrong = await call("GET", f"jobs/{job}/logs", params={"tail": "all"})
    assert (wrong.status, wrong.json["field"]) == (400, "tail")


async def test_a_stream_may_begin_with_the_last_lines_or_at_a_time(submit, call):
    job = (await submit(TALKER)).json["id"]

    async def ended():
        return (await call("GET", f"jobs/{job}")).json["state"] == "FAILED"

    await until_async(ended, "the end of the job")
    told = {"stream": "stdout", "tail": 3}
    lines = (await call("GET", f"jobs/{job}/logs", params=told)).json["lines"]
    stream = (await call("GET", f"jobs/{job}/logs", params=told | {"follow": 1})).body.decode()
    records = [record.split("\n") for record in stream.split("\n\n") if record.startswith("event: line")]
    assert [json.loads(data.removeprefix("data: "))["text"] for _, _, data in records] == [
        "line 197",
        "line 198",
        "line 199",
    ]
    resumed = {**told, "follow": 1, "after": records[0][1].removeprefix("id: ")}
    rest = (await call("GET", f"jobs/{job}/logs", params=resumed)).body.decode()
    assert (rest.count("event: line"), rest.count("line 197")) == (2, 0)
    text = (await call("GET", f"jobs/{job}/logs", params=told, headers={"Accept": "text/plain"})).body.decode()
    assert text == "line 197\nline 198\nline 199\n"
    later = {"stream": "stdout", "since": lines[-1]["time"] + 1}
    assert (await call("GET", f"jobs/{job}/logs", params=later)).json["lines"] == []
    wrong = await call("GET", f"jobs/{job}/logs", params={"since": "soon"})
    assert (wrong.status, wrong.json["field"]) == (400, "since")
