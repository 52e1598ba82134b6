"""Searches on a real service: trials are elastic jobs, and the best one needs no further training."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.job import JobSpec, JobState, JobView
from edt_sdk.schemas.search.space import choice, log
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import SearchState, SearchView, TrialState
from edt_server.searching.replay import difference, events, rebuild
from edt_server.service import Service, open_service
from tests.e2e.elastic import DATA, becomes, package, service, settings, weights
from tests.server.service.running import cleaned
from tests.waiting import until_async

__all__ = ["service", "settings"]
pytestmark = pytest.mark.asyncio
SCRIPT = f"""
{DATA}
import json, sys

lr, width = float(sys.argv[1]), int(sys.argv[2])
with open("config.json") as file:
    assert json.load(file) == {{"lr": lr, "width": width}}

def datasets():
    return data(64, 1), data(32, 2)

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
FabricModel(model, datasets, nn.functional.cross_entropy, optimizer, lr_scheduler=schedule).train(4, 8, 2)
"""
SPACE = {"lr": log(1e-4, 1.0), "width": choice(4, 8)}
EPOCHS = [1, 1, 2, 4]  # of the four trials of a halving


def halving(name: str = "digits-lr", max_workers: int = 1, **changes: Any) -> SearchSpec:
    job = JobSpec(name=name, main="train.py", max_workers=max_workers, args=("{lr}", "{width}"))
    given = {"metric": "test_loss", "trials": 4, "epochs": 4, "min_epochs": 1, "eta": 2, "space": SPACE}
    return SearchSpec(job=job, **{**given, **changes})


async def begin(service: Service, spec: SearchSpec, script: str = SCRIPT) -> SearchView:
    return await service.searches.start("ann", spec, package(service, script))


async def table(service: Service, search: str) -> list[Any]:
    """What two equal searches have in common: number, values, state, value; and each report."""
    trials = await service.searches.trials("ann", search)
    reports = await service.searches.reports("ann", search)
    return [
        [(each.number, each.params, each.state, each.value) for each in trials],
        sorted((each.trial, each.budget, sorted(each.metrics.items())) for each in reports),
    ]


async def test_the_best_of_a_halving_has_trained_through_and_the_others_have_given_their_slots_back(service):
    view = await becomes(
        service.searches.search, (await begin(service, halving(max_workers=2))).id, SearchState.FINISHED
    )
    trials = await service.searches.trials("ann", view.id)
    assert [rung.reported for rung in view.rungs] == [4, 2, 1]
    assert sorted(each.epochs for each in trials) == EPOCHS
    best = view.best
    assert best is not None
    assert (best.state, best.epochs) == (TrialState.FINISHED, 4)
    assert best.value == min(each.value for each in trials if each.epochs == 4)
    # The same values in a training of their own, without an interruption.
    words = tuple(str(best.params[each]) for each in ("lr", "width"))
    alone = JobSpec(name="alone", main="train.py", max_workers=1, args=words)
    job = (await service.submit("ann", alone, package(service, SCRIPT), config=best.params)).id

    async def ended() -> bool:
        state = (await service.job("ann", job)).state
        assert state is JobState.FINISHED or not state.final
        return state is JobState.FINISHED

    await until_async(ended, "the end of the training alone")
    assert await weights(service, best.job) == await weights(service, job)

    async def quiet() -> bool:
        return not service.busy

    # The others were stopped where they held, with the reason in their job.
    await until_async(quiet, "the last job's end")
    states = {each.job: (await service.job("ann", each.job)).state for each in trials}
    assert sorted(states.values()) == sorted([JobState.FINISHED] + [JobState.KILLED] * 3)
    recorded = await service.searches.decisions("ann", view.id)
    replayed = events(await service.searches.reports("ann", view.id), recorded)
    assert difference(recorded, rebuild(view.spec, replayed)[1]) == ""


async def test_a_search_goes_on_where_the_next_server_finds_it(settings):
    async with cleaned(settings):
        async with open_service(settings) as service:
            whole = (await begin(service, halving(seed=5))).id
            await becomes(service.searches.search, whole, SearchState.FINISHED)
            expected = await table(service, whole)
            again = (await begin(service, halving("again", seed=5))).id

            async def half_way() -> bool:
                return len(await service.searches.reports("ann", again)) >= 3

            await until_async(half_way, "some reports")
        async with open_service(settings) as service:
            view = await becomes(service.searches.search, again, SearchState.FINISHED)
            assert await table(service, again) == expected
            jobs = [each.job for each in await service.searches.trials("ann", again)]
            assert len(set(jobs)) == 4
            assert len(await service.jobs("ann")) == 8, "no trial was started twice"
            assert view.outside == 0


async def test_a_trial_that_a_person_stops_while_it_is_held_fails_when_it_is_chosen(service, tmp_path):
    gate = tmp_path / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.02)\n"
    spec = halving(trials=2, epochs=2, parallel=2)
    search = (await begin(service, spec, waits + SCRIPT.replace("train(4,", "train(2,"))).id

    async def jobs() -> Any:
        found = [each.job for each in await service.searches.trials("ann", search) if each.job]
        return found if len(found) == 2 else None

    async def compared() -> Any:
        trials = await service.searches.trials("ann", search)
        return next((each for each in trials if each.state is TrialState.PRUNED), None) and trials

    await until_async(jobs, "two jobs")
    await service.searches.pause("ann", search)
    gate.touch()
    (chosen,) = [each for each in await until_async(compared, "the comparison") if each.state is not TrialState.PRUNED]
    await becomes(service.job, chosen.job, JobState.SUSPENDED)
    await service.stop_job("ann", chosen.job)
    await becomes(service.job, chosen.job, JobState.KILLED)
    # Where the chosen one was the last to report it was never held for the search, which then ends at once.
    with suppress(Conflict):
        await service.searches.resume("ann", search)

    async def over() -> SearchView | None:
        view = await service.searches.search("ann", search)
        return view if view.state.final else None

    await until_async(over, "the end of the search")
    states = {each.number: (each.state, each.message) for each in await service.searches.trials("ann", search)}
    assert states[chosen.number] == (TrialState.FAILED, "Stopped by ann.")


async def test_a_trial_may_end_between_the_look_at_it_and_the_order_to_it(service, monkeypatch):
    set_budget, refused = service.set_budget, []

    async def late(user: str, job: str, budget: int | None) -> JobView:
        await becomes(service.job, job, JobState.FINISHED)
        try:
            return await set_budget(user, job, budget)
        except Conflict:
            refused.append(job)
            raise

    monkeypatch.setattr(service, "set_budget", late)
    search = (await begin(service, halving(algorithm="random", min_epochs=0, trials=2, parallel=1))).id
    await becomes(service.searches.search, search, SearchState.FINISHED)
    assert [each.state for each in await service.searches.trials("ann", search)] == [TrialState.FINISHED] * 2
    assert refused, "no order came too late, so this shows nothing"


async def test_a_stopped_search_goes_on_with_the_same_trials(service):
    search = (await begin(service, halving(seed=5))).id

    async def begun() -> bool:
        return any(each.state is TrialState.RUNNING for each in await service.searches.trials("ann", search))

    await until_async(begun, "a trial that trains")
    assert (await service.searches.stop_search("ann", search)).state is SearchState.STOPPED

    async def idle() -> bool:
        return not any(job.state is JobState.RUNNING for job in await service.jobs("ann"))

    await until_async(idle, "the end of what trained")
    await service.searches.resume("ann", search)
    view = await becomes(service.searches.search, search, SearchState.FINISHED)
    assert sorted(each.epochs for each in await service.searches.trials("ann", search)) == EPOCHS
    assert view.outside == 2


# Its sibling in `make test` is the test above.
@pytest.mark.long
async def test_a_trial_whose_job_a_person_stops_has_failed_from_outside(service):
    search = (await begin(service, halving(parallel=1))).id

    async def begun() -> str:
        return next((each.job for each in await service.searches.trials("ann", search) if each.job), "")

    await service.stop_job("ann", await until_async(begun, "the first trial's job"))
    view = await becomes(service.searches.search, search, SearchState.FINISHED)
    first, *others = await service.searches.trials("ann", search)
    assert (first.state, first.message) == (TrialState.FAILED, "Stopped by ann.")
    assert sorted(each.epochs for each in others) == [1, 2, 4]
    assert view.outside == 1


async def test_a_script_that_fails_for_every_value_pauses_its_search_with_the_error(service):
    # One after the other: where all four run at once the fourth may fail before the third, and then the search ends.
    search = (await begin(service, halving(parallel=1), "raise ValueError('no such data')\n" + SCRIPT)).id
    view = await becomes(service.searches.search, search, SearchState.PAUSED)
    assert "Your code, not the values" in view.message
    assert "no such data" in view.message


POPULATION = f"""
{DATA}
import sys

lr, decay = map(float, sys.argv[1:3])
epochs = int(sys.argv[3])

def datasets():
    return data(64, 1), data(32, 2)

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=decay)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
FabricModel(model, datasets, nn.functional.cross_entropy, optimizer, lr_scheduler=schedule).train(epochs, 8, 2)
"""


def population(name: str, epochs: int, max_workers: int = 1, **changes: Any) -> SearchSpec:
    job = JobSpec(name=name, main="train.py", max_workers=max_workers, args=("{lr}", "{decay}", str(epochs)))
    space = {"lr": log(1e-4, 1.0), "decay": log(1e-6, 1e-2)}
    given = {"metric": "test_loss", "epochs": epochs, "min_epochs": 2, "algorithm": "pbt", "space": space}
    return SearchSpec(job=job, **{**given, **changes})


@pytest.mark.parametrize(("trials", "epochs"), [(4, 6), pytest.param(8, 10, marks=pytest.mark.long)])
async def test_a_population_ends_equally_on_one_slot_and_across_two_servers(settings, trials, epochs):
    branches = (epochs // 2 - 1) * (trials // 4)
    async with cleaned(settings):
        async with open_service(settings) as service:
            whole = (await begin(service, population("one-by-one", epochs, trials=trials, parallel=1), POPULATION)).id
            view = await becomes(service.searches.search, whole, SearchState.FINISHED)
            expected = await table(service, whole)
            again = (await begin(service, population("together", epochs, trials=trials, max_workers=2), POPULATION)).id

            async def first_comparison() -> bool:
                return any(each.parent is not None for each in await service.searches.trials("ann", again))

            await until_async(first_comparison, "a branch")
        async with open_service(settings) as service:
            other = await becomes(service.searches.search, again, SearchState.FINISHED)
            assert await table(service, again) == expected
            assert await weights(service, view.best.job) == await weights(service, other.best.job)
            assert view.expected == trials + branches
            assert view.counts == {"FINISHED": trials, "PRUNED": branches}
            found = await service.searches.trials("ann", again)
            for each in found:
                job = await service.mine("ann", each.job)
                commits = [json.loads(line) for line in service.paths(job).commits(0).read_text().splitlines()]
                begins = commits[0]["update"]
                assert begins in ({0} if each.parent is None else range(8, 4 * epochs, 8))
                assert [line["update"] for line in commits] == list(range(begins, 4 * each.epochs)), "nothing twice"
                parent = "" if each.parent is None else found[each.parent].job
                assert (await service.job("ann", each.job)).warm_start == parent
            assert sum(each.parent is not None for each in found) == branches
            for search in (whole, again):
                recorded = await service.searches.decisions("ann", search)
                replayed = events(await service.searches.reports("ann", search), recorded)
                assert difference(recorded, rebuild(view.spec, replayed)[1]) == ""
