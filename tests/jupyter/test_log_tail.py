"""The last lines of a log over REST, and what follows behind them."""

from __future__ import annotations

TALKER = {"train.py": b"for n in range(200): print('line', n)\n"}


async def test_the_last_lines_and_how_to_go_on(submit, call, until):
    job = (await submit(TALKER)).json["id"]

    async def ended():
        return (await call("GET", f"jobs/{job}")).json["state"] == "FAILED"  # it never called train()

    await until(ended, "the end of the job")
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
