"""The verbs of a service for searches. `search_run.py` is what a search does while it lives."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edt_sdk.schemas.errors import Conflict, EdtError, NotFound, Unprocessable
from edt_sdk.schemas.fields import did_you_mean
from edt_sdk.schemas.forecast import Forecast, WhatIf
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobPatch, JobSpec, JobState
from edt_sdk.schemas.registered import Registered
from edt_sdk.schemas.search.space import Value
from edt_sdk.schemas.search.spec import ALGORITHMS, PLUG_IN, SearchPatch, SearchSpec
from edt_sdk.schemas.search.views import (
    Decision,
    SearchPreview,
    SearchState,
    SearchView,
    TrialReport,
    TrialState,
    TrialView,
)
from edt_server.files import keep, new_id, unpack
from edt_server.jobs import main_file
from edt_server.ledger import Change
from edt_server.searching import preview
from edt_server.searching.core import SearchCore
from edt_server.searching.events import (
    PointsAdded,
    SearchEvent,
    SearchPaused,
    SearchResumed,
    SearchStarted,
    SearchStopped,
    TrialsRaised,
)
from edt_server.service import access, what_if
from edt_server.service.plugins import Plugins
from edt_server.service.search_run import WEIGHTS, SearchRun, sampler_options
from edt_server.settings import Settings
from edt_server.store import StoreError
from edt_server.store.search_rows import SearchRow, TrialRow, named
from edt_server.suggestions import Suggestions
from edt_server.system.private_files import make_private_dir

if TYPE_CHECKING:
    from edt_server.service.service import Service

_PACKAGE = "package"
_NUMBERED = re.compile(r"-[1-9]\d{0,5}$")
_LIVING = [state for state in JobState if not state.final]
_MOST_SEEN = 1000  # as many as one answer lists
_MOST_FOLDED = 4  # ended searches whose core stays for their pictures and pages


class Searches:
    """The verbs of a service for searches, and the searches that live."""

    def __init__(self, service: Service, suggestions: Suggestions) -> None:
        self._service = service
        self._suggestions = suggestions
        self.plugins = Plugins(service, suggestions)
        self._runs: dict[str, SearchRun] = {}  # until nothing is left to do
        self._seen: OrderedDict[str, tuple[SearchRow, SearchView]] = OrderedDict()  # of ended searches
        self._folded: OrderedDict[str, SearchRun] = OrderedDict()  # ended searches that are looked at

    # --- their life ---------------------------------------------------------------------------------------------------

    async def adopt(self) -> None:
        """Go on with the searches that live, and with those that have ended and whose jobs have not."""
        for row in await asyncio.to_thread(self._unfinished):
            self._begin(row)

    def _unfinished(self) -> list[SearchRow]:
        """Return the searches that have something to do. Blocks."""
        store = self._service.store
        rows = store.searches.searches(states=[state for state in SearchState if not state.final])
        others = {job.spec.search for job in store.jobs(states=_LIVING)} - {row.id for row in rows}
        return rows + [row for each in sorted(others) if (row := store.searches.search(each)) is not None]

    async def stop(self) -> None:
        """Stop working on searches. Their jobs go on."""
        await asyncio.gather(*(run.stop() for run in [*self._runs.values()]))
        await self._suggestions.close()

    def ring(self, jobs: Iterable[str]) -> None:
        """Look at the trials with these jobs."""
        for run in self._runs.values():
            run.ring(jobs)

    def _begin(self, row: SearchRow) -> SearchRun:
        run = self._runs[row.id] = self._at_rest(row)
        run.start(lambda: self._runs.pop(row.id, None))
        return run

    def _kept(self, row: SearchRow) -> SearchRun | None:
        """Return the ended search with its core, None where none is kept that is as the store has it."""
        run = self._folded.get(row.id)
        return run if run is not None and run.row == row else None

    def _at_rest(self, row: SearchRow) -> SearchRun:
        return SearchRun(self._service, self._suggestions, row, self._folder(row.id) / _PACKAGE)

    def _folder(self, search: str) -> Path:
        return self._service.settings.data_dir / "searches" / search

    # --- verbs --------------------------------------------------------------------------------------------------------

    async def start(
        self,
        user: str,
        spec: SearchSpec,
        package: Path,
        *,
        training: Registered | None = None,
        weights: Path | None = None,
    ) -> SearchView:
        """Start a search whose trials are made of a package (a file, left where it is).

        Trials that train a model of the catalogue use `training` of it, and begin with the file `weights`.
        """
        spec, _ = await self._accepted(user, spec)
        row = SearchRow(
            id=new_id(spec.job.name),
            name=spec.job.name,
            owner=user,
            spec=msgspec.structs.replace(spec, job=msgspec.structs.replace(spec.job, registered=training)),
            state=SearchState.CREATED,
            message="",
            created=self._service.now(),
            ended=None,
        )
        folder = self._folder(row.id)
        await asyncio.to_thread(_keep_package, package, folder, row.spec.job, self._service.settings, weights)
        try:
            await self._service.change(lambda change: _enter(change, row))
        except StoreError:
            raise  # it may have been committed all the same, so its package stays
        except EdtError:
            await asyncio.to_thread(shutil.rmtree, folder)
            raise
        # Where this fails, the living search tries it again.
        await self._begin(row).take(SearchStarted())
        return await self.search(user, row.id)

    async def preview(self, user: str, spec: SearchSpec) -> SearchPreview:
        """Return how much such a search would train, and when it would begin. Raises what `start` would."""
        spec, forecast = await self._accepted(user, spec)
        rungs = await asyncio.to_thread(preview.play, spec)
        text, epochs = preview.summary(spec, rungs), preview.epochs(spec, rungs)
        return SearchPreview(
            text=text, trials=spec.trials, epochs=epochs, rungs=rungs, notes=spec.notes(), forecast=forecast
        )

    async def search(self, user: str, search: str) -> SearchView:
        """Return a search as it is now. NotFound, NotAllowed."""
        return await self._look(await self._mine(user, search), await self._service.standing())

    async def searches(self, user: str, **chosen: object) -> list[SearchView]:
        """Return the user's searches, newest first. For `chosen` see `SearchReader.searches`."""
        rows = await asyncio.to_thread(lambda: self._service.store.searches.searches(owner=user, **chosen))  # type: ignore[arg-type]
        standing = await self._service.standing() if rows else {}
        return [await self._look(row, standing) for row in rows]

    async def known(self, user: str, search: str) -> tuple[SearchCore, Mapping[int, TrialRow]]:
        """Return what the core of a search knows, and its trials by number. NotFound, NotAllowed."""
        row = await self._mine(user, search)
        if row.id in self._runs or not row.state.final:
            run = self._run(row)
        else:
            run = self._folded[row.id] = self._kept(row) or self._at_rest(row)
            self._folded.move_to_end(row.id)
            if len(self._folded) > _MOST_FOLDED:
                self._folded.popitem(last=False)
        return await run.present(), run.trials

    async def ranked(
        self,
        user: str,
        search: str,
        *,
        skip: int = 0,
        states: Sequence[TrialState] | None = None,
        numbers: Collection[int] | None = None,
        limit: int = 500,
    ) -> list[TrialView]:
        """Return the trials of a search, the best first: of those compared after the most epochs, the best value.

        `states` and `numbers`, where given, restrict them.
        """
        core, trials = await self.known(user, search)
        chosen = [
            core.trials[number]
            for number, row in trials.items()
            if (states is None or row.state in states) and (numbers is None or number in numbers)
        ]
        ranked = sorted(chosen, key=core.standing)[skip : skip + limit]
        return [_trial_view(trials[each.number]) for each in ranked]

    async def trials(
        self, user: str, search: str, *, after: int = -1, states: Sequence[TrialState] | None = None, limit: int = 500
    ) -> list[TrialView]:
        """Return the trials of a search with a number above `after`, by number."""
        await self._mine(user, search)
        reader = self._service.store.searches
        rows = await asyncio.to_thread(lambda: reader.trials(search, after=after, states=states, limit=limit))
        return [_trial_view(row) for row in rows]

    async def submitted(self, user: str, search: str) -> dict[str, float]:
        """Return when each job of a search was submitted, by its id."""
        row = await self._mine(user, search)
        return await asyncio.to_thread(self._service.store.submitted, row.owner, search)

    async def reports(self, user: str, search: str, *, since: int = 0, limit: int | None = None) -> list[TrialReport]:
        """Return what trials reported after report number `since`, in the order of arrival."""
        await self._mine(user, search)
        reader = self._service.store.searches
        return await asyncio.to_thread(lambda: reader.reports(search, since=since, limit=limit))

    async def decisions(self, user: str, search: str, *, after: int = 0, limit: int | None = None) -> list[Decision]:
        """Return the log of a search above an index, in order."""
        await self._mine(user, search)
        reader = self._service.store.searches
        return await asyncio.to_thread(lambda: reader.decisions(search, after=after, limit=limit))

    async def replay(self, user: str, search: str) -> str:
        """Decide a search again from its reports. Return its first difference to the log, "" for none."""
        row = await self._mine(user, search)
        return await (self._runs.get(row.id) or self._at_rest(row)).replay()

    async def again(self, user: str, search: str, *, name: str = "", seed: int | None = None) -> SearchView:
        """Start a search once more, with its package and its settings of now. By default with a new name, NAME-2."""
        row = await self._mine(user, search)
        taken = {each.name for each in await asyncio.to_thread(self._service.store.searches.searches, owner=user)}
        base = _NUMBERED.sub("", row.name)
        free = (f"{base}-{number}" for number in count(2))
        job = msgspec.structs.replace(row.spec.job, name=name or next(each for each in free if each not in taken))
        core, _ = await self.known(user, search)
        spec = msgspec.structs.replace(
            row.spec, job=job, trials=core.wanted, seed=row.spec.seed if seed is None else seed
        )
        used, folder = spec.job.registered, self._folder(row.id)
        weights = folder / WEIGHTS if used is not None and used.weights else None
        return await self.start(user, spec, folder / _PACKAGE, training=used, weights=weights)

    async def pause(self, user: str, search: str) -> SearchView:
        """Start nothing new. What trains goes on to its next comparison."""
        return await self._told(user, search, SearchPaused("Paused by a person."))

    async def resume(self, user: str, search: str) -> SearchView:
        """Go on with a search that is paused or stopped."""
        return await self._told(user, search, SearchResumed())

    async def stop_search(self, user: str, search: str) -> SearchView:
        """Stop a search and the trials that train. Those that are held may go on when it is resumed."""
        return await self._told(user, search, SearchStopped())

    async def stop_all(self, user: str) -> None:
        """Stop all searches of the user that start jobs."""
        states = [SearchState.CREATED, SearchState.RUNNING]
        for row in await asyncio.to_thread(lambda: self._service.store.searches.searches(owner=user, states=states)):
            with contextlib.suppress(Conflict):  # it ended by itself in the meantime
                await self._run(row).take(SearchStopped())

    async def add(self, user: str, search: str, points: Sequence[Mapping[str, Value]]) -> SearchView:
        """Try these values next."""
        row = await self._mine(user, search)
        fitted = tuple(row.spec.point(each) for each in points)
        return await self._told(user, search, PointsAdded(fitted))

    async def change_settings(self, user: str, search: str, patch: SearchPatch) -> SearchView:
        """Change settings of a search by a patch that was checked already."""
        row = await self._mine(user, search)
        run = self._run(row)
        changes = patch.changes()
        of_jobs = JobPatch(**{name: changes.pop(name) for name in JobPatch.__struct_fields__ if name in changes})
        if of_jobs.changes():
            changes["job"] = template = msgspec.structs.replace(row.spec.job, **of_jobs.changes())
            # What a submission would refuse is refused before anything has changed.
            await self._service.forecast(user, template.check())
        if (trials := changes.pop("trials", None)) is not None:
            await run.take(TrialsRaised(trials))
        if changes:
            await run.change_spec(changes)
        if "job" in changes:
            for trial in list(run.trials.values()):
                if trial.job and trial.ended is None:
                    # One that has ended in the meantime keeps what it had, if it is there at all.
                    with contextlib.suppress(Conflict, NotFound):
                        await self._service.change_settings(user, trial.job, of_jobs)
        return await self.search(user, search)

    async def what_if(self, user: str, search: str, patch: JobPatch) -> WhatIf:
        """Return who would hold how many slots with this change of a search's jobs. Changes nothing."""
        row = await self._mine(user, search)
        template = msgspec.structs.replace(row.spec.job, **patch.check().changes())
        if row.state.final:
            raise Conflict(f"Search {row.name} is {row.state.value}.", hint="A change has no effect.", search=search)
        await self._service.forecast(user, template.check())  # raises what a change would
        return await asyncio.to_thread(what_if.answer_of_search, await self._service.looked(), search, template, patch)

    async def delete(self, user: str, search: str, *, jobs: bool = False) -> None:
        """Remove an ended search. Its jobs stay. With `jobs` they go too, for which they must have ended."""
        row = await self._mine(user, search)
        if not row.state.final:
            raise Conflict(
                f"Search {row.name} is {row.state.value}.", hint="Stop it first, then delete it.", search=search
            )
        store = self._service.store
        if jobs:
            await self._delete_jobs(user, row)
        if (run := self._runs.pop(search, None)) is not None:
            await run.end()
        # Nothing can resume what is held, and a run that was just stopped had no time to stop what trains. A finished
        # trial ends by itself.
        finished = await asyncio.to_thread(store.searches.trials, search, states=[TrialState.FINISHED])
        left = {each.job for each in finished}
        for job in await asyncio.to_thread(lambda: store.jobs(owner=row.owner, search=search, states=_LIVING)):
            if job.id not in left:
                with contextlib.suppress(Conflict):
                    await self._service.stop_job(user, job.id, why=f"Its search {row.name} is deleted.")
        self._seen.pop(search, None)
        self._folded.pop(search, None)
        await self._suggestions.forget(search)
        await self._service.change(lambda change: change.tx.searches.delete_search(search))
        await asyncio.to_thread(shutil.rmtree, self._folder(search), ignore_errors=True)

    async def _delete_jobs(self, user: str, row: SearchRow) -> None:
        made = await asyncio.to_thread(lambda: self._service.store.jobs(owner=row.owner, search=row.id))
        if living := [job.id for job in made if not job.state.final]:
            raise Conflict(
                f"{living[0]} of search {row.name} has not ended.", hint="Wait for it, or stop it.", search=row.id
            )
        for job in made:
            # Each one is gone for good. A server that ends in between leaves the search with the others.
            with contextlib.suppress(NotFound):
                await self._service.delete(user, job.id)

    async def _accepted(self, user: str, spec: SearchSpec) -> tuple[SearchSpec, Forecast]:
        """Return a search with its defaults, and when it would begin. What could not run is refused."""
        whole = spec.check().resolved()
        if whole.kind is PLUG_IN:
            try:
                await self.plugins.shelf.row(user, spec.algorithm)
            except NotFound as missing:
                known = (*ALGORITHMS, *(row.name for row in await self.plugins.shelf.rows(user)))
                hint = did_you_mean(spec.algorithm, known)
                raise Unprocessable(missing.message, hint=hint, field="algorithm") from None
        else:
            _check_runs(whole)
        job = whole.job
        if Framework(job.framework).elastic:
            # All trials together ask for slots as one job.
            together, exist = job.max_workers * (whole.parallel or whole.trials), self._service.capacity
            most = min(together, max(job.max_workers, exist - exist % job.slots_per_unit))
            job = msgspec.structs.replace(job, max_workers=most)
        return whole, await self._service.forecast(user, job)

    # --- one search ---------------------------------------------------------------------------------------------------

    async def _mine(self, user: str, search: str) -> SearchRow:
        row = await asyncio.to_thread(self._service.store.searches.search, search)
        if row is None:
            raise NotFound(f"There is no search {search!r}.", hint="client.searches() lists them.", search=search)
        return access.checked(user, row)

    def _run(self, row: SearchRow) -> SearchRun:
        return self._runs.get(row.id) or self._begin(row)

    async def _look(self, row: SearchRow, standing: Mapping[str, Any]) -> SearchView:
        """Return the view of a search. Of one that has ended nothing else stays in memory."""
        if row.id in self._runs or not row.state.final:
            return await _view(self._run(row), standing)
        known, view = self._seen.get(row.id, (None, None))
        if view is None or known != row:
            run = self._kept(row) or self._at_rest(row)
            view = await _view(run, standing)
            self._seen[row.id] = run.row, view
        self._seen.move_to_end(row.id)
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)
        return view

    async def _told(self, user: str, search: str, event: SearchEvent) -> SearchView:
        await self._run(await self._mine(user, search)).take(event)
        return await self.search(user, search)


def _enter(change: Change, row: SearchRow) -> None:
    change.tx.searches.add_search(row)
    change.ledger.names[row.id] = named(row.name)


def _check_runs(spec: SearchSpec) -> None:
    """Raise for a search that has nothing to suggest its values. `spec` has its defaults filled in."""
    if spec.algorithm not in ("grid", "list", "manual"):
        sampler_options(spec)


def _keep_package(package: Path, folder: Path, job: JobSpec, settings: Settings, weights: Path | None) -> None:
    """Keep the package of a search. PackageError for one that no job could be made of, with nothing left."""
    make_private_dir(folder.parent)
    make_private_dir(folder)
    tried = folder / "tried"
    limits = {"max_files": settings.max_package_files, "max_bytes": settings.max_package_bytes}
    try:
        unpack(package, tried, main=main_file(job), code_dir=job.code_dir, **limits)
        shutil.rmtree(tried)
        keep(package, folder / _PACKAGE, settings.data_dir)
        if weights is not None:
            keep(weights, folder / WEIGHTS, settings.data_dir)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


async def _view(run: SearchRun, standing: Mapping[str, Any]) -> SearchView:
    core = await run.present()
    row, trials = run.row, run.trials
    best = None if core.best is None else trials.get(core.best.number)
    jobs = {each.job for each in trials.values() if each.ended is None and each.job}
    queues = {group["name"]: group["slots"] for group in standing["groups"]}
    return SearchView(
        id=row.id,
        owner=row.owner,
        spec=msgspec.structs.replace(row.spec, trials=core.wanted),
        state=row.state,
        message=row.message,
        created=row.created,
        ended=row.ended,
        counts=dict(Counter(each.state.value for each in trials.values())),
        rungs=core.rungs(),
        best=None if best is None else _trial_view(best),
        outside=row.outside,
        budgets=core.budgets,
        slots=sum(slot["job"] in jobs for slot in standing["slots"]),
        usable_slots=queues.get(row.spec.job.instance_group, len(standing["slots"])),
        expected=core.expected,
    )


def _trial_view(row: TrialRow) -> TrialView:
    return TrialView(**{name: getattr(row, name) for name in TrialView.__struct_fields__})
