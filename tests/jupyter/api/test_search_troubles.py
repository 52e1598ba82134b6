"""A search whose server, suggester or time ends in the middle: nothing is asked twice, left over or hidden."""

from __future__ import annotations

import json

from msgspec.structs import replace

from edt_sdk.schemas.search.views import TrialState
from edt_server.searching.events import SearchStopped
from edt_server.service import search_run
from edt_server.store.searches import SearchWriter
from edt_server.suggestions import Suggestions
from tests.jupyter.api.test_searches import POINTS, SCRIPT, becomes, search
from tests.packages import SLEEPER, packed
from tests.server.suggestions.plugins import searching
from tests.waiting import until_async

__all__ = ["becomes", "search"]
PLAIN = {"algorithm": "random", "points": []}


async def log_of(call, name):
    return (await call("GET", f"searches/{name}/decisions")).json["decisions"]


async def test_a_question_is_asked_once_and_its_answer_is_one_event(search, call, becomes, monkeypatch):
    asked, answer = [], Suggestions.ask

    async def ask(self, question, *more):
        asked.append(question.numbers)
        return await answer(self, question, *more)

    monkeypatch.setattr(Suggestions, "ask", ask)
    name = (await search(**PLAIN, trials=6)).json["id"]
    await becomes(name, "FINISHED")
    assert asked == [(0, 1, 2, 3, 4, 5)]
    events = [each["event"] for each in await log_of(call, name) if each["event"]]
    (answered,) = [each for each in events if each["type"] == "Answered"]
    assert len(answered["values"]) == 6


async def test_a_suggester_that_cannot_be_started_pauses_the_search_with_the_reason(search, call, becomes, monkeypatch):
    asked = []

    async def ask(self, question, *more):
        asked.append(question.numbers)
        raise OSError("no process can be started")

    with monkeypatch.context() as patched:
        patched.setattr(Suggestions, "ask", ask)
        name = (await search(**PLAIN, trials=2)).json["id"]
        view = await becomes(name, "PAUSED")
    assert view["message"] == "The server made an error, which its log has."
    assert asked == [(0, 1)]
    await call("POST", f"searches/{name}/resume", body=b"")
    await becomes(name, "FINISHED")


async def test_what_a_plug_in_says_too_much_is_in_the_log(edt, search, call, becomes, tmp_path, jp_serverapp):
    package = tmp_path / "plugin.tar"
    package.write_bytes(packed({"optimizer.py": searching("return [{'x': 0.5}] * (n + 1)").encode()}))
    made = await search(name="first", job={"name": "first"})
    await edt.service.searches.plugins.install(made.json["owner"], "Mine", package)
    name = (await search(algorithm="Mine", points=[], trials=2)).json["id"]
    await becomes(name, "FINISHED")
    notes = [each["text"] for each in await log_of(call, name) if each["kind"] == "note"]
    assert notes == ["Mine returned 3 sets of values for 2 trials. The rest is dropped."]
    assert (await call("GET", f"searches/{name}/replay")).json == {"difference": ""}


async def running(call, name):
    """The trial that runs."""

    async def look():
        trials = (await call("GET", f"searches/{name}/trials")).json["trials"]
        return next((each for each in trials if each["state"] == "RUNNING"), None)

    return await until_async(look, "a trial that runs")


async def stopped_by_a_server_that_then_died(edt, name):
    run = edt.service.searches._runs.pop(name)
    await run.end()
    await run.take(SearchStopped())
    return run


async def killed(call, job):
    async def look():
        return (await call("GET", f"jobs/{job}")).json["state"] == "KILLED"

    await until_async(look, "the end of the job")


async def test_the_next_server_stops_the_jobs_of_a_search_that_has_ended(edt, search, call):
    name = (await search(SLEEPER, **PLAIN, trials=1)).json["id"]
    trial = await running(call, name)
    await stopped_by_a_server_that_then_died(edt, name)
    await edt.service.searches.adopt()
    await killed(call, trial["job"])
    await until_async(lambda: not edt.service.searches._runs, "the end of its work")


async def test_a_deleted_search_leaves_no_held_job(edt, search, call):
    name = (await search(SLEEPER, **PLAIN, trials=1)).json["id"]
    trial = await running(call, name)
    run = await stopped_by_a_server_that_then_died(edt, name)
    held = replace(run.trials[0], state=TrialState.HELD)
    await edt.service.change(lambda change: change.tx.searches.take(name, trials=[held]))
    assert (await call("DELETE", f"searches/{name}")).status == 204
    await killed(call, trial["job"])


async def test_a_search_that_goes_on_after_its_time_has_no_limit_any_more(edt, search, call, becomes):
    name = (await search(SLEEPER, **PLAIN, trials=2, max_time=0.2)).json["id"]
    view = await becomes(name, "FINISHED")
    assert view["message"] == "The search ended by its time limit."
    assert (await call("POST", f"searches/{name}/resume", body=b"")).json["state"] == "RUNNING"
    view = (await call("PATCH", f"searches/{name}", body={"parallel": 1})).json
    assert (view["state"], view["spec"]["max_time"], view["spec"]["parallel"]) == ("RUNNING", None, 1)
    await edt.service.searches._runs.pop(name).end()
    await edt.service.searches.adopt()
    await running(call, name)
    # A new limit counts from the start, so this one is over.
    await call("PATCH", f"searches/{name}", body={"max_time": 0.3})
    await becomes(name, "FINISHED")


async def test_what_a_script_wrote_is_one_transaction(search, call, becomes, monkeypatch):
    taken, take = [], SearchWriter.take

    def counted(self, name, *, reports=(), **more):
        taken.append(len(reports))
        take(self, name, reports=reports, **more)

    monkeypatch.setattr(SearchWriter, "take", counted)
    many = json.dumps([{"step": at, "loss": 1 / at} for at in range(1, 301)]).encode()
    script = SCRIPT.split(b"with open(os.path")[0] + b"import pathlib\n"
    script += (
        b"pathlib.Path(os.environ['RESULT_DIR'], 'val_dict_list.json').write_bytes(" + repr(many).encode() + b")\n"
    )
    name = (await search(script, points=POINTS[:1])).json["id"]
    view = await becomes(name, "FINISHED")
    assert (view["best"]["value"], view["best"]["epochs"]) == (1 / 300, 300)
    assert [each for each in taken if each] == [300]


async def test_an_ended_search_is_folded_once_for_its_pages_and_pictures(edt, search, call, becomes, monkeypatch):
    name = (await search()).json["id"]
    await becomes(name, "FINISHED")
    await until_async(lambda: not edt.service.searches._runs, "the end of its last job")
    folded, rebuild = [], search_run.replay.rebuild

    def counted(*arguments):
        folded.append(arguments)
        return rebuild(*arguments)

    monkeypatch.setattr(search_run.replay, "rebuild", counted)
    # As after a start: otherwise a request may have seen its end, or not.
    edt.service.searches._seen.clear()
    for _ in range(2):
        for path in ("pictures/slots", "pictures/history", "pictures/parallel", "pictures/rungs", "", "trials"):
            params = {"sort": "value"} if path == "trials" else {}
            assert (await call("GET", f"searches/{name}/{path}".rstrip("/"), params=params)).status == 200
    assert len(folded) == 1
