"""A living search: it tells its core what its jobs report, and makes true what the core decides.

An event of a search and everything that its core decides on it are one transaction. What follows (questions to the
suggester, jobs that start, go on or end) is not remembered but looked up in the core, again and again until it is so.
Hence a restarted server, a failed commit and a refused submission need no code of their own: the run reads the state
of its jobs and goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import Conflict, EdtError, NotFound
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec, JobState, JobView
from edt_sdk.schemas.search.space import Value
from edt_sdk.schemas.search.spec import MOST_EPOCHS, PLUG_IN, SearchSpec, filled
from edt_sdk.schemas.search.views import Decision, SearchState, TrialReport, TrialState
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import is_regular
from edt_sdk.schemas.wire.saved import SUFFIX
from edt_server.catalogue.training import with_values
from edt_server.ledger import STORE_AWAY, Change
from edt_server.searching import AskValues, PastTrial, Trial, replay
from edt_server.searching.core import SearchCore
from edt_server.searching.events import (
    Answered,
    Reported,
    SearchEvent,
    SearchPaused,
    SearchStarted,
    TimeUp,
    TrialEnded,
    TrialFailed,
)
from edt_server.service import written_metrics
from edt_server.store import StoreError
from edt_server.store.search_rows import SearchRow, TrialRow
from edt_server.suggestions import Ask, Suggestions, check_algorithm, seed_of

if TYPE_CHECKING:
    from edt_server.service.service import Service

log = logging.getLogger(__name__)
_OVER = frozenset({TrialState.FINISHED, TrialState.PRUNED, TrialState.FAILED})
# The columns of a search that follow from an event.
_FOLLOWING = ("spec", "state", "message", "ended", "best", "outside", "plugin_state")
WEIGHTS = "weights"  # beside the package of a search of a model
_READ = (kinds.VALIDATED, kinds.JOB_HELD)


class SearchRun:
    """One search from its start, or from the start of the server, until it has ended and its last job too."""

    def __init__(self, service: Service, suggestions: Suggestions, row: SearchRow, package: Path) -> None:
        self._service = service
        self._suggestions = suggestions
        self._package = package
        self._lock = asyncio.Lock()
        self._round = asyncio.Lock()
        self._work = asyncio.Event()
        self._asking: dict[AskValues, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self.row = row
        # None where the core has to be built from the store: at first, and after a commit in doubt.
        self.core: SearchCore | None = None
        self.trials: dict[int, TrialRow] = {}
        self._numbers: dict[str, int] = {}  # by job
        self._read_up_to: dict[str, int] = {}  # the number of the last event of a job that the core was told
        self._touched: set[str] = set()
        self._ended: set[str] = set()  # jobs that need no more of us
        self._ending: set[str] = set()  # those of them that have not ended yet
        self._over = False

    # --- from outside -------------------------------------------------------------------------------------------------

    def start(self, over: Callable[[], object]) -> None:
        """Begin to work, and look at the state of every job. Nothing is left to do when `over` is called."""
        self._task = asyncio.create_task(self._run(over), name=f"edt search {self.row.id}")
        self._work.set()

    async def stop(self) -> None:
        """Stop working. Jobs go on."""
        tasks = [each for each in (self._task, *self._asking.values()) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def end(self) -> None:
        """Stop working after the present round: a change that is cancelled may be committed without its effects."""
        async with self._round:
            await self.stop()

    def ring(self, jobs: Iterable[str]) -> None:
        """Look at these jobs, of which those of other searches are ignored."""
        if self.core is None:
            return  # it will look at all of them
        if mine := [job for job in jobs if job in self._numbers]:
            self._touched.update(mine)
            self._work.set()

    async def present(self) -> SearchCore:
        """Return the core."""
        async with self._lock:
            return await self._present()

    async def replay(self) -> str:
        """Decide everything again from the reports. Return the first difference to the log, "" where there is none."""
        # No event may come in between, whose decisions the log would not have.
        async with self._lock:
            row, reports, decisions, _ = await asyncio.to_thread(self._read)
        _, again = await asyncio.to_thread(replay.rebuild, row.spec, replay.events(reports, decisions))
        return replay.difference(decisions, again)

    async def change_spec(self, changes: Mapping[str, Any]) -> None:
        """Change settings that no decision depends on."""
        async with self._lock:
            await self._present()
            changed = replace(self.row, spec=msgspec.structs.replace(self.row.spec, **changes))
            await self._service.change(lambda change: change.tx.searches.update_search(changed.id, spec=changed.spec))
            self.row = changed
        self._work.set()

    async def take(
        self, *events: SearchEvent, sampler_states: Mapping[int, bytes] = {}, plugin_state: bytes = b""
    ) -> None:
        """Tell the core what happened, and commit together what it decides.

        Args:
            events: one, or the reports of one trial.
            sampler_states: what the sampler keeps with its new trials, by number.
            plugin_state: what a plug-in keeps for its next question.

        Raises:
            Conflict: the core refuses the event; nothing has changed.
            StoreError: it could not be committed.
        """
        async with self._lock:
            core = await self._present()
            steps = [(event, core.apply(event)) for event in events]
            reports = [
                TrialReport(trial=event.number, budget=event.budget, metrics=event.metrics, seq=step.seq)
                for event, step in steps
                if isinstance(event, Reported) and step.seq
            ]
            decisions = [each for _, step in steps for each in step.decisions]
            numbers = {number for _, step in steps for number in step.changed} | {each.trial for each in reports}
            trials = [self._trial_row(core, number, sampler_states.get(number)) for number in sorted(numbers)]
            row = self._next_row(core, decisions, plugin_state)

            def write(change: Change) -> None:
                change.tx.searches.take(self.row.id, reports=reports, decisions=decisions, trials=trials)
                fields = {name: getattr(row, name) for name in _FOLLOWING}
                change.tx.searches.update_search(self.row.id, **fields)

            try:
                if reports or decisions or trials:
                    await self._service.change(write)
            except BaseException:
                # Whether it was committed is not known here, and the core is ahead of the store if it was not.
                self.core = None
                raise
            self.row = row
            self.trials.update((each.number, each) for each in trials)
        self._work.set()

    # --- one round ----------------------------------------------------------------------------------------------------

    async def _run(self, over: Callable[[], object]) -> None:
        while not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._left()):
                    await self._work.wait()
            self._work.clear()
            await self._guarded(self._look())
        over()

    async def _look(self) -> None:
        async with self._round:
            if (await self.present()).state is SearchState.CREATED:
                await self.take(SearchStarted())
            if self._left() == 0:
                await self.take(TimeUp())
            await self._read_jobs()
            await self._make_true()
        # Nothing waits between this and the last step, so no event comes in between.
        self._over = self.row.state.final and not (
            self._touched or self._asking or self._ending or self._lock.locked() or self._work.is_set()
        )

    def _left(self) -> float | None:
        """Return the seconds until the time of the search is over, None where nothing ends it."""
        limit = self.row.spec.max_time
        if limit is None or self.row.state.final:
            return None
        return max(0.0, self.row.created + limit - self._service.now())

    async def _guarded(self, work: Awaitable[None]) -> None:
        """Do some work of the search. What stops it pauses the search, and a store that is away delays the next try."""
        try:
            try:
                await work
            except StoreError:
                raise
            except EdtError as wrong:
                await self._pause(str(wrong))
            except Exception:
                log.exception("search %s", self.row.id)
                await self._pause("The server made an error, which its log has.")
        except StoreError:  # the writer has logged it
            await asyncio.sleep(STORE_AWAY)
            self._work.set()

    async def _pause(self, message: str) -> None:
        try:
            await self.take(SearchPaused(message))
        except Conflict:
            log.warning("search %s is %s: %s", self.row.id, self.row.state, message)

    async def _present(self) -> SearchCore:
        """Return the core, built from the store where there is none."""
        if self.core is not None:
            return self.core
        self.row, reports, decisions, trials = await asyncio.to_thread(self._read)
        core, _ = await asyncio.to_thread(replay.rebuild, self.row.spec, replay.events(reports, decisions))
        self.core = core
        self.trials = {row.number: row for row in trials}
        self._numbers = {row.job: row.number for row in trials if row.job}
        self._touched = {row.job for row in trials if row.job and row.ended is None}
        # Their events are read again from the first: what was read may be what was not committed.
        self._read_up_to.clear()
        return core

    def _read(self) -> tuple[SearchRow, list[TrialReport], list[Decision], list[TrialRow]]:
        """Return what the store has of the search. Blocks."""
        stored, key = self._service.store.searches, self.row.id
        return stored.search(key) or self.row, stored.reports(key), stored.decisions(key), stored.trials(key)

    # --- from the jobs to the core ------------------------------------------------------------------------------------

    async def _read_jobs(self) -> None:
        while self._touched:
            job = self._touched.pop()
            try:
                await self._read_job(job, self._numbers[job])
            except BaseException:
                self._touched.add(job)
                raise

    async def _read_job(self, job: str, number: int) -> None:
        service, owner = self._service, self.row.owner
        new = await asyncio.to_thread(service.store.events, job=job, after=self._read_up_to.get(job, 0), kinds=_READ)
        # The state after the events: it may be newer than the last of them, and never older.
        if (view := await self._job(job)) is None or view.state.final:
            self._ending.discard(job)
        if view is None:
            return
        trained = [each.data for each in new if each.kind == kinds.VALIDATED and each.data["training"] == 0]
        if trained:
            await self.take(*(Reported(number, data["epoch"], _metrics(data)) for data in trained))
        if new:
            self._read_up_to[job] = new[-1].seq
        trial = await self._trial(number)
        # A trial that was stopped early and begun again has another job.
        if not trial.open or self.trials[number].job != job:
            return
        if view.state is JobState.FINISHED:
            await self._read_written(job, trial)
            # Its report may have been the one that its comparison waited for.
            if (await self._trial(number)).open:
                await self.take(TrialEnded(number))
        elif view.state in (JobState.FAILED, JobState.ERROR):
            # Without the folder of this one job, so that equal errors of several trials are equal.
            folder = JobPaths(service.settings.data_dir, owner, job).submitted
            message = view.message.replace(f"{folder}/", "")
            await self.take(TrialFailed(number, message, outside=view.state is JobState.ERROR))
        elif (
            view.state is JobState.KILLED
            and self.trials[number].state is TrialState.RUNNING
            and not self.row.state.final
        ):
            await self.take(TrialFailed(number, view.message, outside=True))
        elif new and new[-1].kind == kinds.JOB_HELD and new[-1].data["epoch"] >= trial.budget > 0:
            # Its report would have come before, and closed the trial's segment.
            message = f"It does not validate after {trial.budget} epochs, where trials are compared."
            await self.take(TrialFailed(number, message))

    async def _read_written(self, job: str, trial: Trial) -> None:
        """Tell the core what the script of a finished job wrote itself. The reports of an elastic job come first."""
        spec = self.row.spec
        if spec.job.framework == Framework.EDT and trial.reports:
            return
        paths = self._service.paths(await self._service.mine(self.row.owner, job))
        # The steps of its script come after the epochs that an elastic job has reported.
        reported = trial.taken
        found = written_metrics.reports(await asyncio.to_thread(written_metrics.read, paths), trial, spec)
        if found:
            await self.take(*(msgspec.structs.replace(each, budget=each.budget + reported) for each in found))

    async def _job(self, job: str) -> JobView | None:
        """Return the job of a trial, None for one that was deleted."""
        try:
            return await self._service.job(self.row.owner, job)
        except NotFound:
            return None

    async def _trial(self, number: int) -> Trial:
        async with self._lock:
            return (await self._present()).trials[number]

    # --- from the core to the jobs ------------------------------------------------------------------------------------

    async def _make_true(self) -> None:
        async with self._lock:
            core = await self._present()
            asks, runnable = core.asks(), core.runnable(self.row.spec.parallel or self._service.capacity + 1)
        # A plug-in answers the next question from the state that it has after this one.
        for ask in asks[:1] if self.row.spec.kind is PLUG_IN else asks:
            if ask not in self._asking:
                self._asking[ask] = asyncio.create_task(self._ask(core, ask), name=f"edt search {self.row.id}")
        # Branches take the state of their parent first, which it may not write once it has more budget.
        awaited = {row.parent for row in self.trials.values() if not row.job and row.ended is None}
        for trial in runnable:
            if trial.number not in awaited:
                await self._go(trial)
        for row in [each for each in self.trials.values() if each.job and each.job not in self._ended]:
            if row.ended is not None or (self.row.state.final and row.state is TrialState.RUNNING):
                await self._end(row)

    async def _go(self, trial: Trial) -> None:
        """Let a trial train to its budget: by a new job, or by the job that it has.

        One whose job was deleted begins again, and reports the same once more.
        """
        service, owner, row = self._service, self.row.owner, self.trials[trial.number]
        # With `resource` the script itself ends after so many epochs, or whatever else they are to it.
        budget = trial.budget or (0 if self.row.spec.resource else self.row.spec.epochs) or MOST_EPOCHS
        elastic = self.row.spec.job.framework == Framework.EDT
        view = await self._job(row.job) if row.job else None
        if view is None:
            await self._submit(trial, budget if elastic else None)
            return
        if row.state is TrialState.STOPPED and not view.state.final:
            return  # it is still ending: the search was stopped, and has been resumed
        if row.state is TrialState.STOPPED:
            if elastic and (await service.mine(owner, row.job)).shards is None:
                await self._submit(trial, budget)  # it was stopped before it had trained anything
                return
            self._ended.discard(row.job)
            try:
                view = await service.resume(owner, row.job)
            except Conflict as not_yet:
                log.info("trial %d of search %s waits: %s", trial.number, self.row.id, not_yet)
                asyncio.get_running_loop().call_later(STORE_AWAY, self._work.set)
                return
        if not view.state.final and elastic:
            try:
                await service.set_budget(owner, row.job, budget)
            except (Conflict, NotFound):  # it has ended, or was deleted, since it was looked at
                self._touched.add(row.job)
                self._work.set()
                return
        if row.state is not TrialState.RUNNING:
            await self._note(row, state=TrialState.RUNNING)
            if view.state.final:
                # It has ended while it was held, when nothing followed from that.
                self._touched.add(row.job)
                self._work.set()

    async def _submit(self, trial: Trial, budget: int | None) -> None:
        row, job, weights = self.trials[trial.number], job_of(self.row, trial), None
        if trial.branched:
            assert trial.parent is not None, "a branch has a parent"
            parent = self.trials[trial.parent].job
            if (weights := await self._state_to_go_on_from(parent, trial)) is None:
                return
            job = msgspec.structs.replace(job, warm_start=parent)
        elif job.registered is not None and job.registered.weights:
            weights = self._package.with_name(WEIGHTS)

        def entered(change: Change, job: str) -> None:
            # In the transaction of the submission, so that no server starts a trial twice.
            change.tx.searches.take(self.row.id, trials=[replace(row, job=job, state=TrialState.RUNNING)])

        view = await self._service.submit(
            self.row.owner,
            job,
            self._package,
            training=job.registered,
            weights=weights,
            budget=budget,
            config=dict(trial.values),
            search=self.row.id,
            entered=entered,
        )
        self.trials[trial.number] = replace(row, job=view.id, state=TrialState.RUNNING)
        self._numbers[view.id] = trial.number
        # No run was there when what it has done since the commit rang.
        self._touched.add(view.id)
        self._work.set()

    async def _state_to_go_on_from(self, parent: str, branch: Trial) -> Path | None:
        """Return the file with the state of a branch's parent (a job), None while it is being written."""
        row = await self._service.mine(self.row.owner, parent)
        path = self._service.paths(row).checkpoints(0) / f"epoch-{branch.branched}{SUFFIX}"
        if await asyncio.to_thread(is_regular, path):
            return path
        # Its workers leave after the file is written, or could not be.
        if row.state is JobState.SUSPENDED or row.state.final:
            message = f"Its parent has left no state after epoch {branch.branched}."
            await self.take(TrialFailed(branch.number, message, outside=True))
        return None

    async def _end(self, row: TrialRow) -> None:
        """Stop the job of a trial that shall not go on. One that has trained all its epochs ends by itself."""
        view = await self._job(row.job)
        if view is not None and not view.state.final:
            self._ending.add(row.job)
            if row.state is not TrialState.FINISHED:
                why = row.message or f"Its search {self.row.spec.job.name} has ended."
                with suppress(Conflict, NotFound):  # it has ended, or was deleted, in the meantime
                    await self._service.stop_job(self.row.owner, row.job, why=why)
        if row.state is TrialState.RUNNING:
            await self._note(row, state=TrialState.STOPPED)
        self._ended.add(row.job)

    async def _note(self, row: TrialRow, **changes: Any) -> None:
        changed = replace(row, **changes)
        await self._service.change(lambda change: change.tx.searches.take(self.row.id, trials=[changed]))
        self.trials[row.number] = changed

    # --- suggestions --------------------------------------------------------------------------------------------------

    async def _ask(self, core: SearchCore, ask: AskValues) -> None:
        try:
            await self._guarded(self._answered(core, ask))
        finally:
            del self._asking[ask]
            self._work.set()

    async def _answered(self, core: SearchCore, ask: AskValues) -> None:
        """Ask the suggester, and tell the core what it answers."""
        spec, plugin = self.row.spec, None
        if spec.kind is PLUG_IN:
            plugin = await self._service.searches.plugins.plugin(self.row.owner, spec.algorithm)
        question = Ask(
            search=self.row.id,
            algorithm=spec.sampler or spec.algorithm,
            options=sampler_options(spec) if plugin is None else spec.options,
            seed=spec.seed,
            space=spec.space,
            direction=spec.direction,
            numbers=ask.numbers,
            state=self.row.plugin_state or b"",
            upto=ask.upto,
            since=ask.since,
        )

        def history(since: int) -> list[PastTrial]:
            """Return the entries that the answer may see from number `since` on, each with the sampler's state."""
            return [
                msgspec.structs.replace(past, sampler_state=self.trials[past.number].sampler_state or b"")
                for past in core.past(ask.upto, since)
            ]

        said = await self._suggestions.ask(question, history, plugin)
        answer = Answered(ask.numbers[0], tuple(each.values for each in said.suggestions), said.note)
        states = {each.number: each.sampler_state for each in said.suggestions}
        with suppress(Conflict):  # it is not open any more
            # The state of a plug-in and its values together: a restarted server would else ask the same once more.
            await self.take(answer, sampler_states=states, plugin_state=said.state)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _trial_row(self, core: SearchCore, number: int, sampler_state: bytes | None) -> TrialRow:
        trial, now, before = core.trials[number], self._service.now(), self.trials.get(number)
        running = trial.open and before is not None and before.state is TrialState.RUNNING
        job, created, kept = ("", now, None) if before is None else (before.job, before.created, before.sampler_state)
        return TrialRow(
            search=self.row.id,
            number=number,
            state=TrialState.RUNNING if running else trial.state,
            rung=trial.rung,
            bracket=trial.bracket,
            params=trial.values,
            value=core.value(trial),
            epochs=trial.epochs,
            job=job,
            parent=trial.parent,
            created=created,
            ended=now if trial.state in _OVER else None,
            message=trial.message,
            sampler_state=sampler_state or kept,
        )

    def _next_row(self, core: SearchCore, decisions: Iterable[Decision], plugin_state: bytes) -> SearchRow:
        row, spec, ended, now = self.row, self.row.spec, self.row.ended, self._service.now()
        if core.state is not row.state:
            ended = now if core.state.final else None
        if row.state.final and not core.state.final and row.created + (spec.max_time or math.inf) <= now:
            # It was resumed after its time was over, and would end again at once.
            spec = msgspec.structs.replace(spec, max_time=None)
        return replace(
            row,
            spec=spec,
            state=core.state,
            message=core.message,
            ended=ended,
            best=None if core.best is None else core.best.number,
            outside=row.outside + sum(each.outside for each in decisions),
            plugin_state=plugin_state or row.plugin_state,
        )


def sampler_options(spec: SearchSpec) -> dict[str, Value]:
    """Return the options of what suggests the values, without those of the algorithm that compares trials.

    Raises:
        Unprocessable: an option does not exist or has no such value, or the sampler cannot search this space.
    """
    options = {name: value for name, value in spec.options.items() if name not in spec.kind.options}
    return check_algorithm(spec.sampler or spec.algorithm, options, spec.space, trials=spec.trials)


def job_of(row: SearchRow, trial: Trial) -> JobSpec:
    """Return the job of a trial: the search's template with the trial's values. Pure."""
    spec, number = row.spec.job, trial.number
    env = {
        "EDT_SEARCH": row.id,
        "EDT_TRIAL": str(number),
        "SUBID": str(number),  # WMLA's scripts give it to `emetrics`
        "EDT_PARAMS": json.dumps(trial.values),
    }
    seed = seed_of(row.spec.seed, number) if row.spec.job_seed == "per-trial" else spec.seed
    used = spec.registered
    if used is not None:
        used = msgspec.structs.replace(used, hyperparameters=with_values(used.hyperparameters or {}, trial.values))
    return msgspec.structs.replace(
        spec,
        name=f"{spec.name}-{number}",
        args=filled(spec.args, trial.values),
        command=filled(spec.command, trial.values),
        env={**spec.env, **env},
        seed=seed,
        registered=used,
    )


def _metrics(data: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the metrics of a validation by the names under which a search compares them."""
    # A loss without a value is NaN, which ranks last. An accuracy without one is that of no classification.
    accuracy = {} if data["accuracy"] is None else {"test_accuracy": data["accuracy"]}
    return {"test_loss": data["loss"], **accuracy, **data["metrics"]}
