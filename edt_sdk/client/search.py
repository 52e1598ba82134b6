"""`Search` and its trials: one search for hyper-parameters, as seen from a notebook, a script or the command line.

It holds a connection and the last view of the search. The search itself lives in the server, so dropping the object,
interrupting a wait or ending the kernel does not end it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from edt_sdk.client.job import Job, fetch_what_if, is_id
from edt_sdk.client.study import importances, study_of, write_journal
from edt_sdk.display.picture import Picture, fetch_picture
from edt_sdk.display.readings import WhatIfAnswer
from edt_sdk.display.search_view import (
    SEARCH_HEAD,
    DecisionLog,
    after_text,
    bundle,
    search_cells,
    search_sentence,
    trials_html,
    trials_table,
    value_text,
    values_text,
)
from edt_sdk.formatting.tables import html_table, text_table
from edt_sdk.http.connection import Connection, Params
from edt_sdk.http.following import PATIENCE, Pause, over
from edt_sdk.schemas.errors import EdtError, InvalidRequest, JobFailed, WaitTimeout
from edt_sdk.schemas.fields import names_checked
from edt_sdk.schemas.job import JobState, convert_change, tags_of
from edt_sdk.schemas.search.space import Value
from edt_sdk.schemas.search.spec import SearchPatch
from edt_sdk.schemas.search.views import Decision, SearchState, SearchView, TrialReport, TrialState, TrialView
from edt_sdk.waiting.waiting import StoppedWaiting, patiently

if TYPE_CHECKING:
    import optuna
    import torch

_PAGE = 1000  # rows of one answer
_BEST = 10  # rows of a card
Row = TypeVar("Row", TrialView, TrialReport, Decision)


class SearchTrial:
    """One set of values that a search tries.

    Attributes:
        view: the trial as last seen.
    """

    def __init__(self, connection: Connection, view: TrialView) -> None:
        self._connection = connection
        self.view = view

    @property
    def number(self) -> int:
        """Return its number in the search, from 0."""
        return self.view.number

    @property
    def value(self) -> float | None:
        """Return the metric that is compared, None before the first report and where it is NaN or infinite."""
        return self.view.value

    @property
    def params(self) -> dict[str, Any]:
        """Return its values by name."""
        return self.view.params

    @property
    def state(self) -> TrialState:
        """Return its state as last seen."""
        return self.view.state

    @property
    def job(self) -> Job | None:
        """Return its job, None before it has one."""
        return Job(self._connection, self.view.job) if self.view.job else None

    def load_into(self, model: torch.nn.Module) -> torch.nn.Module:
        """Load the weights that it was trained to into `model`, in place, and return the model. See `Job.load_into`.

        Raises:
            NotFound: it has not trained all its epochs, so there is no final model.
        """
        job = self.job
        if job is None:
            raise InvalidRequest(f"Trial {self.number} has no job yet, and so no weights.", field="trial")
        if self.state is TrialState.FINISHED and job.view.state is not JobState.FINISHED:
            # The last report comes before the final weights are written.
            job.wait(progress=False)
        return job.load_into(model)

    def __repr__(self) -> str:
        value = value_text(self.view) + after_text(self.view)
        return f"Trial {self.number} is {self.state.value}: {value}, {values_text(self.params)}"


class TrialList(list[SearchTrial]):
    """Trials as they were when they were listed, by number. A table at the end of a cell."""

    def dataframe(self) -> Any:
        """Return them as a pandas.DataFrame, a column for each parameter. It needs pandas."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        rows = [
            {"trial": each.number, "state": each.state.value, "value": each.value, "epochs": each.view.epochs}
            | {"job": each.view.job}
            | each.params
            for each in self
        ]
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        return trials_table([each.view for each in self])

    def _repr_html_(self) -> str:
        return trials_html([each.view for each in self])


@names_checked
class Search:
    """One search. Made by `Client.search()`, `Client.search_named()` and `Client.searches()`."""

    def __init__(self, connection: Connection, view: SearchView) -> None:
        self._connection = connection
        self._view = view
        self._taken = time.time()

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def view(self) -> SearchView:
        """Return the search as last seen."""
        return self._view

    @property
    def id(self) -> str:
        """Return the id of the search, unique on the server."""
        return self._view.id

    @property
    def name(self) -> str:
        """Return the name of the search, unique among mine."""
        return self._view.spec.job.name

    @property
    def state(self) -> SearchState:
        """Fetch the search and return its state."""
        return self.refresh().view.state

    @property
    def best(self) -> SearchTrial | None:
        """Fetch the search and return its best trial, None before the first value."""
        best = self.refresh().view.best
        return None if best is None else SearchTrial(self._connection, best)

    @property
    def trials(self) -> TrialList:
        """Fetch the trials. A table at the end of a cell, and a list otherwise."""
        return TrialList(SearchTrial(self._connection, view) for view in self._views())

    def refresh(self) -> Search:
        """Ask the server for the present view and return self."""
        return self._answer("GET", "")

    def decisions(self) -> DecisionLog:
        """Return the log: each decision with its reason, and what came from outside."""
        return DecisionLog(self._pages("decisions", "after", Decision, lambda each: each.index))

    def reports(self) -> list[TrialReport]:
        """Return what the trials reported, in the order of arrival."""
        return list(self._pages("reports", "since", TrialReport, lambda each: each.seq))

    def picture(
        self, name: str = "history", *, x: str = "number", theme: str = "auto", width: int | None = None
    ) -> Picture:
        """Return a picture drawn by the server. It shows itself in a cell, and `save` writes it to a file.

        Args:
            name: "history" (the value of each trial, and the best so far), "parallel" (an axis for each
                hyper-parameter, a line for each trial), "rungs" (the trials in each comparison) or "slots" (which trial
                held how many of them, and when).
            x: the axis of the history: "number" of the trial, or "time" of its end.
            theme: as for `Job.picture`.
            width: pixels, 720 by default.

        Raises:
            NotFound: no such picture. The hint lists the pictures.
        """
        params: Params = {"x": x, "theme": theme, "width": width}
        return fetch_picture(self._connection, f"searches/{self.id}/pictures/{name}", params)

    def study(self) -> optuna.Study:
        """Return the search as a study of Optuna, in memory, for `optuna.visualization`. A copy: it is not followed."""
        return study_of(self._view.spec, self._views(), self.reports())

    def importance(self) -> dict[str, float]:
        """Return how much of the metric each hyper-parameter decides, the most important one first. The sum is 1.

        It is the PED-ANOVA of Optuna. Where trials are compared before their end, it takes their values after those
        epochs that the most of them reached.

        Raises:
            Conflict: the values are too few, or too much alike, to tell.
        """
        return importances(self._view.spec, self._views(), self.reports())

    def export(self, path: str | os.PathLike[str]) -> None:
        """Add the search as a study to a journal file of Optuna, which optuna-dashboard and jupyterlab-optuna open.

        Raises:
            Conflict: the file has a study with the name of this search.
        """
        write_journal(self.study(), path)

    def _views(self, after: int | None = None) -> Iterator[TrialView]:
        return self._pages("trials", "after", TrialView, lambda each: each.number, after)

    def _pages(
        self, what: str, cursor: str, kind: type[Row], place: Callable[[Row], int], after: int | None = None
    ) -> Iterator[Row]:
        while True:
            params: Params = {cursor: after, "limit": _PAGE}
            found = self._connection.json("GET", f"searches/{self.id}/{what}", params=params)[what]
            rows = msgspec.convert(found, list[kind])  # type: ignore[valid-type]
            yield from rows
            if len(rows) < _PAGE:
                return
            after = place(rows[-1])

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Search:
        """Wait for the end of the search, and return self when it is FINISHED.

        A lost connection is retried for up to two minutes. Ctrl-C ends the waiting, never the search.

        Args:
            timeout: seconds, None for no limit.

        Raises:
            JobFailed: it failed, was stopped, or is paused: its message says why.
            WaitTimeout: `timeout` seconds are over. The search goes on.
            ServerUnreachable: the connection could not be restored.
        """
        deadline = None if timeout is None else time.monotonic() + max(0.0, timeout)
        pause = Pause(PATIENCE)
        try:
            while True:
                view = patiently(lambda: self.refresh().view, None, deadline)
                if view.state.final or view.state is SearchState.PAUSED or over(None, deadline):
                    break
                pause.wait(None, deadline)
        except KeyboardInterrupt:
            raise StoppedWaiting(f"Stopped waiting. Search {self.name} goes on; end it with search.stop().") from None
        if view.state is SearchState.FINISHED:
            return self
        if view.state.final or view.state is SearchState.PAUSED:
            raise self._rests()
        text = f"Search {self.name} is still {view.state.value} after {timeout or 0:g} s."
        raise WaitTimeout(text, search=view.id, state=view.state.value)

    def _rests(self) -> JobFailed:
        """Return the error for waiting for a search that trains nothing now."""
        view = self._view
        hint = "" if view.state is SearchState.FAILED else "search.resume() lets it go on."
        text = f"Search {self.name} is {view.state.value}: {view.message or 'No message.'}"
        return JobFailed(text, hint=hint, search=view.id, state=view.state.value)

    # --- changing it --------------------------------------------------------------------------------------------------

    def pause(self) -> Search:
        """Start nothing new, and return self. What trains goes on to its next comparison."""
        return self._answer("POST", "/pause")

    def resume(self) -> Search:
        """Go on with the search when it is paused or stopped, and return self."""
        return self._answer("POST", "/resume")

    def stop(self) -> Search:
        """Stop the search and the trials that train, and return self. It can be resumed."""
        return self._answer("POST", "/stop")

    def again(self, *, name: str = "", seed: int | None = None) -> Search:
        """Start the search once more and return the new one: with the same seed it finds the same, to the bit.

        It has the code and the settings that this one has now. Values that were added later are not part of it.

        Args:
            name: of the new search, by default the name of this one with the next number.
            seed: another seed draws other values. Default: the same.

        Raises:
            Conflict: there is a search with this name.
        """
        body = {"name": name, "seed": seed}
        answer = self._connection.json("POST", f"searches/{self.id}/again", body=body)
        return Search(self._connection, msgspec.convert(answer, SearchView))

    def replay(self) -> str:
        """Let the server decide everything again from the reports.

        Returns:
            The first difference to the log in a sentence. It is "" where there is none, as there should be.
        """
        return str(self._connection.json("GET", f"searches/{self.id}/replay")["difference"])

    def delete(self, *, jobs: bool = False) -> None:
        """Remove the search when it has ended. The jobs of its trials stay, unless `jobs` is True.

        Raises Conflict when the search, or with `jobs` one of these, has not ended.
        """
        self._connection.json("DELETE", f"searches/{self.id}", params={"jobs": int(jobs)})

    def update(
        self,
        *,
        trials: int | None = None,
        parallel: int | None = None,
        max_time: float | None = None,
        priority: int | None = None,
        max_workers: int | None = None,
        instance_group: str | None = None,
        notes: str | None = None,
        tags: Sequence[str] | str | None = None,
        project: str | None = None,
        experiment: str | None = None,
    ) -> Search:
        """Change settings of the search and return self. Those of jobs are also changed in its jobs that live.

        Args:
            trials: how many trials, more than now. Where rungs decide, only before the first decision.
            parallel: most trials that run at once, 0 for as many as get slots.
            max_time: seconds after its start when it ends with what it has.
            priority: weight under fair share of each of its jobs.
            max_workers: most slots that a trial may hold.
            instance_group: the queue that its jobs move to.
            notes: text about its jobs, for those to come too.
            tags: words to find its jobs by.
            project: the project of its jobs.
            experiment: the experiment of its jobs in that project.

        Raises:
            Conflict: it would change what is decided already.
            Unprocessable: the value cannot be used here.
        """
        given: Mapping[str, Any] = locals()
        fields = {name: given[name] for name in SearchPatch.__struct_fields__}
        patch = convert_change({**fields, "tags": None if tags is None else tags_of(tags)}, SearchPatch)
        return self._answer("PATCH", "", patch.check().changes())

    def what_if(
        self, *, priority: int | None = None, max_workers: int | None = None, instance_group: str | None = None
    ) -> WhatIfAnswer:
        """Return how many slots each job and search would hold with these settings of the search's jobs.

        Changes nothing. Arguments and errors are those of `update`. When the search would end is not forecast.
        """
        fields = {"priority": priority, "max_workers": max_workers, "instance_group": instance_group}
        return fetch_what_if(self._connection, f"searches/{self.id}", fields)

    def add(self, *points: Mapping[str, Value]) -> Search:
        """Try these values next, and return self.

        Raises:
            Unprocessable: a point does not have exactly the parameters of the space.
            Conflict: the search has no place for more, or they would change what is decided already.
        """
        return self._answer("POST", "/trials", {"points": [dict(each) for each in points]})

    def evaluate(self, values: Mapping[str, Value], timeout: float | None = None) -> SearchTrial:
        """Try these values next, wait for the end of their trial, and return it.

        So an optimizer of your own asks with `algorithm="manual"`: its trials have no other values. Several threads may
        ask at once.

        Args:
            values: one for each parameter.
            timeout: seconds, None for no limit.

        Raises:
            JobFailed: the trial failed or was stopped, or the search was paused or has ended before it.
            WaitTimeout: `timeout` seconds are over. The trial goes on.
            Unprocessable, Conflict: as `add`.
        """
        point, known = self._view.spec.point(values), sum(1 for _ in self._views())
        self.add(values)
        deadline, pause = None if timeout is None else time.monotonic() + max(0.0, timeout), Pause(PATIENCE)
        while True:
            # The state first: a trial that ends afterwards is among those that are fetched then.
            state = patiently(lambda: self.refresh().view.state, None, deadline)
            views = patiently(lambda: list(self._views(known - 1)), None, deadline)
            mine = next((view for view in views if view.params == point), None)
            if mine is not None and mine.ended is not None:
                break
            trains = mine is not None and mine.state is TrialState.RUNNING
            if not trains and (state.final or state is SearchState.PAUSED):
                raise self._rests()
            if over(None, deadline):
                raise WaitTimeout(f"{dict(values)} has no result after {timeout or 0:g} s.", search=self.id)
            pause.wait(None, deadline)
        if mine.value is None:
            raise JobFailed(f"Trial {mine.number} is {mine.state.value}: {mine.message}", job=mine.job)
        return SearchTrial(self._connection, mine)

    def _answer(self, method: str, path: str, body: Any = None) -> Search:
        answer = self._connection.json(method, f"searches/{self.id}{path}", body=body)
        self._view = msgspec.convert(answer, SearchView)
        self._taken = time.time()
        return self

    def __repr__(self) -> str:
        return search_sentence(self._view)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return the card: the present state, and the same as HTML for readers without our front end."""
        trouble, best, pictures = "", [], []
        try:
            self.refresh()
            query: Params = {"sort": "value", "limit": _BEST}
            found = self._connection.json("GET", f"searches/{self.id}/trials", params=query)["trials"]
            best = msgspec.convert(found, list[TrialView])
            pictures = [self.picture(name) for name in ("history", "rungs")[: 1 + self._view.spec.kind.rungs]]
        except EdtError as refused:
            trouble = str(refused)
        url = self._connection.url
        return bundle(self._view, self._taken, url, pictures=pictures, best=best, trouble=trouble)


class SearchList(list[Search]):
    """Searches as they were when they were listed, newest first."""

    def __repr__(self) -> str:
        rows = [search_cells(each.view) for each in self]
        return text_table(SEARCH_HEAD, rows) if rows else "No searches."

    def _repr_html_(self) -> str:
        return html_table(SEARCH_HEAD, [search_cells(each.view) for each in self], empty="No searches.")


def fetch_searches(connection: Connection, **params: str | int | float | None) -> SearchList:
    """Return my searches, newest first."""
    views = msgspec.convert(connection.json("GET", "searches", params=params)["searches"], list[SearchView])
    return SearchList(Search(connection, view) for view in views)


def fetch_search(connection: Connection, search: str) -> Search:
    """Return my search with this name, or else the one with this id. NotFound."""
    if not is_id(search):
        raise InvalidRequest(f"{search!r} is not the name of a search.", field="search")
    if found := fetch_searches(connection, name=search):
        return found[0]
    return Search(connection, msgspec.convert(connection.json("GET", f"searches/{search}"), SearchView))
