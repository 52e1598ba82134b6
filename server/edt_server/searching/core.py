"""Decide which trial of a search trains how far. This is the search's state machine.

`apply` takes one event and returns what to do and what to write into the log. What it does not know it waits for: a
report, an answer of the suggester. It never decides by what happened to come first, but under the order `free`. The
state is a fold of the events, so a restarted server applies those of its rows again (`replay.py`), and then reads
`asks()` and `runnable()` for what is still open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.search.spec import ALGORITHMS, SearchSpec
from edt_sdk.schemas.search.views import Decision, RungView, SearchState, TrialState
from edt_server.searching import events
from edt_server.searching.batches import Batches
from edt_server.searching.book import Book, Trial, epochs, shown
from edt_server.searching.events import SearchEvent
from edt_server.searching.lanes import Lanes
from edt_server.searching.past import AskValues, PastTrial
from edt_server.searching.population import Population, replaced
from edt_server.searching.rungs import Rungs, budgets

Strategy = Rungs | Batches | Lanes | Population
_CREATED = SearchState.CREATED
_FIRST = (0, 1, 2)  # the trials whose common failure pauses a search


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from one event.

    Attributes:
        seq: the report's place in the log. 0 for another event, and for a report that changes nothing.
        changed: the numbers of the trials that are another way now, in the order of the changes.
    """

    seq: int
    changed: tuple[int, ...]
    decisions: tuple[Decision, ...]


# What a search cannot do now, and what a person can do about it.
_REFUSED = {
    events.SearchPaused: ("be paused", ""),
    events.SearchResumed: ("go on", ""),
    events.SearchStopped: ("be stopped", ""),
    events.TrialsRaised: ("have that many trials", "The number grows. A grid and a list have those of their values."),
    events.PointsAdded: (
        "try these values",
        "Give them as points= at its start. With order='free' there is a place for each trial that has no values yet, "
        "and a higher number of trials gives more places.",
    ),
}


class SearchCore:
    """One search. `spec` is checked; its defaults are filled in here."""

    def __init__(self, spec: SearchSpec) -> None:
        # As it is read from a row, where eta=3 is 3.0: equal searches have equal hashes.
        self.spec = msgspec.convert(msgspec.to_builtins(spec), SearchSpec).resolved()
        self.state = SearchState.CREATED
        self.message = ""
        self._book = book = Book(self.spec)
        self.trials = book.trials  # by number
        self._strategy = _strategy(self._book)
        self._fail_fast = spec.fail_fast
        self._begun = False

    # --- reading it ---------------------------------------------------------------------------------------------------

    def asks(self) -> tuple[AskValues, ...]:
        """Return the questions that the suggester has not answered. Empty while the search does not run."""
        return tuple(self._book.questions) if self.state is SearchState.RUNNING else ()

    def runnable(self, most: int) -> list[Trial]:
        """Return the trials that may train now, the most urgent first. Empty while the search does not run."""
        return self._book.runnable(most) if self.state is SearchState.RUNNING else []

    def past(self, upto: int, since: int = 0) -> list[PastTrial]:
        """Return the entries that an answer to `AskValues(…, upto)` may see, from entry number `since` on."""
        return self._book.past(upto, since)

    @property
    def wanted(self) -> int:
        """How many trials the search shall have."""
        return self._book.wanted

    @property
    def expected(self) -> int:
        """How many trials there are to be: those wanted, and in a population the branches too."""
        if not isinstance(self._strategy, Population):
            return self.wanted
        return max(len(self.trials), self.wanted + (len(self.budgets) - 1) * replaced(self.spec))

    @property
    def best(self) -> Trial | None:
        """The trial with the best value among those with the most epochs."""
        return None if self._book.best is None else self._book.trials[self._book.best]

    def value(self, trial: Trial) -> float | None:
        """Return the value of a trial so far."""
        return self._book.value(trial.reports)

    def standing(self, trial: Trial) -> tuple[bool, int, float, int]:
        """Return by what trials are listed, the best first."""
        return self._book.standing(trial)

    def rungs(self) -> tuple[RungView, ...]:
        """Return how far the trials are."""
        return self._book.rungs()

    @property
    def budgets(self) -> tuple[int, ...]:
        """The epochs at which its trials are compared, and at last those of a whole trial."""
        return tuple(budgets(self.spec))

    # --- one event ----------------------------------------------------------------------------------------------------

    def apply(self, event: SearchEvent) -> Step:
        """Take an event, and return what follows. Conflict for one that the state does not allow; nothing changes."""
        if isinstance(event, events.Reported | events.TrialEnded | events.TrialFailed):
            return self._trained(event)
        self._check(event)
        # What may be refused is looked at before anything changes.
        if isinstance(event, events.Answered):
            event = msgspec.structs.replace(event, values=tuple(map(self.spec.point, event.values)))
        elif isinstance(event, events.PointsAdded):
            event = events.PointsAdded(tuple(map(self.spec.point, event.points)))
        elif isinstance(event, events.TrialsRaised):
            msgspec.structs.replace(self.spec, trials=event.trials).check()
        self._book.begin_event(event)
        match event:
            case events.Answered():
                self._answered(event)
            case events.PointsAdded(points=points):
                self._book.guesses.extend(points)
                given = "; ".join(map(shown, points[:3])) + ("; …" if len(points) > 3 else "")
                self._book.log("points", f"values were given to try: {given}", outside=self.state is not _CREATED)
                if self.state is not _CREATED:
                    self._strategy.start()
            case events.TrialsRaised(trials=trials):
                before, self._book.wanted = self._book.wanted, trials
                self._raise(before)
            case events.SearchStarted():
                self._move("start", f"the search starts: {self._book.wanted} trials by {self.spec.algorithm}")
                self._begin()
            case events.SearchPaused(message=message):
                self._move("pause", "the search is paused", SearchState.PAUSED, message, outside=True)
            case events.SearchResumed():
                self._move("resume", "the search goes on", outside=True)
                self._begin()
            case events.SearchStopped():
                self._move("stop", "the search is stopped", SearchState.STOPPED, outside=True)
            case events.TimeUp():
                message = "The search ended by its time limit."
                self._move("limit", "the time of the search is over", SearchState.FINISHED, message, outside=True)
        return self._end()

    def _check(self, event: SearchEvent) -> None:
        """Raise Conflict for an event that the search cannot take now."""
        free = self.spec.order == "free"
        match event:
            case events.SearchStarted():
                refused = self.state is not _CREATED
            case events.Answered(number=number, values=values):
                question = self._book.asked(number)
                missing = 0 if question is None else len(question.numbers) - len(values)
                refused = question is None or missing < 0 or (missing > 0 and not isinstance(self._strategy, Batches))
            case events.SearchPaused():
                refused = self.state is not SearchState.RUNNING
            case events.SearchResumed():
                refused = self.state in (_CREATED, SearchState.RUNNING, SearchState.FAILED) or self._strategy.done
            case events.PointsAdded(points=points):
                refused = self.state.final or not (free or self.state is _CREATED)
                asked = sum(len(question.numbers) for question in self._book.questions)
                new = self._book.wanted - len(self._book.trials) - asked - len(self._book.guesses)
                refused = refused or self.spec.algorithm in ("grid", "list") or len(points) > new
            case events.TrialsRaised(trials=trials):
                refused = self.state.final or trials <= self._book.wanted or self.spec.algorithm in ("grid", "list")
            case _:
                refused = self.state.final
        if refused:
            what, hint = _REFUSED.get(type(event), (f"take {event!r:.200}", ""))
            raise Conflict(f"A search that is {self.state.value.lower()} cannot {what} now.", hint=hint)

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._strategy.start()

    def _raise(self, before: int) -> None:
        text = f"the search gets {self._book.wanted} trials, not {before}"
        if self.state is _CREATED:
            self._strategy = _strategy(self._book)
        else:
            try:
                self._strategy.raised()
            except Conflict:
                self._book.wanted = before
                raise
        self._book.log("trials", text, outside=self.state is not _CREATED)

    def _answered(self, event: events.Answered) -> None:
        question = self._book.asked(event.number)
        assert question is not None
        if event.note:
            self._book.log("note", event.note)
        found = self._book.answer(question, event.values)
        if len(found) == len(question.numbers):
            self._strategy.answered(found)
            return
        number = question.numbers[len(found)]
        self._book.log("exhausted", f"there are no values for trial {number}: no more trials start")
        assert isinstance(self._strategy, Batches)
        self._strategy.answered(found)
        self._strategy.exhausted()

    # --- a trial ------------------------------------------------------------------------------------------------------

    def _trained(self, event: events.Reported | events.TrialEnded | events.TrialFailed) -> Step:
        trial = self._book.trials.get(event.number)
        if trial is None:
            raise Conflict(f"There is no trial {event.number}.")
        if isinstance(event, events.Reported):
            return self._report(trial, event)
        self._book.begin_event(event)
        whole = trial.budget in (0, self.spec.epochs)
        if trial.open and isinstance(event, events.TrialFailed):
            self._fail(trial, event.message, outside=event.outside)
        elif trial.open:
            if trial.reports and whole:
                self._book.log("end", f"trial {trial.number} has ended by itself", trial)
                self._conclude(trial)
            else:
                at = f"before its comparison at {epochs(trial.budget)}" if not whole else "without a report"
                self._fail(trial, f"Its script ended {at}: {self._seen()}")
        return self._end()

    def _report(self, trial: Trial, event: events.Reported) -> Step:
        budget = event.budget
        metrics = {name: x if x is not None and math.isfinite(x) else None for name, x in event.metrics.items()}
        value = metrics.get(self.spec.metric)
        if budget in trial.reports:
            self._book.begin_event(events.Reported(trial.number, budget, metrics))
            if trial.reports[budget] != value:
                before = f"{trial.reports[budget]} before, which counts"
                text = f"trial {trial.number} is not reproducible: after {epochs(budget)} {value}, and {before}"
                self._book.log("differs", text, trial, outside=True)
            return self._end()
        if not trial.open or budget <= trial.taken or 0 < trial.budget < budget:
            return Step(0, (), ())
        self._book.begin_event(None)
        seq, trial.taken = self._book.seq, budget
        self._book.metrics.update(metrics)
        at_rung = budget == trial.budget != 0
        if self.spec.metric in metrics:
            trial.reports[budget] = value
            if at_rung:
                self._conclude(trial)
        elif at_rung:
            self._fail(trial, f"No {self.spec.metric!r} at {epochs(budget)}: it reported {', '.join(sorted(metrics))}.")
        return self._end(seq)

    def _seen(self) -> str:
        return f"the search has seen {', '.join(sorted(self._book.metrics)) or 'no metric'}."

    def _conclude(self, trial: Trial) -> None:
        whole = trial.budget in (0, self.spec.epochs)
        self._book.conclude(trial, TrialState.FINISHED if whole else TrialState.HELD)
        self._strategy.concluded(trial)

    def _fail(self, trial: Trial, message: str, *, outside: bool = False) -> None:
        self._book.log("fail", f"trial {trial.number} failed: {message}", trial, outside=outside)
        self._book.conclude(trial, TrialState.FAILED, message)
        self._strategy.concluded(trial)
        first = [self._book.trials[number] for number in _FIRST if number in self._book.trials]
        alike = {(each.state, each.message) for each in first}
        if self._fail_fast and len(first) == len(_FIRST) and alike == {(TrialState.FAILED, message)}:
            self._fail_fast = False
            if self.state is SearchState.RUNNING and not self._strategy.done:
                text = "the first three trials failed alike"
                self._move("pause", text, SearchState.PAUSED, f"Your code, not the values: {message}")

    # --- the search ---------------------------------------------------------------------------------------------------

    def _move(
        self, kind: str, text: str, state: SearchState = SearchState.RUNNING, message: str = "", outside: bool = False
    ) -> None:
        self.state, self.message = state, message
        self._book.log(kind, f"{text}: {message}" if message else text, outside=outside)

    def _end(self, seq: int = 0) -> Step:
        if self._strategy.done and self.state in (SearchState.RUNNING, SearchState.PAUSED, SearchState.STOPPED):
            self._finish()
        return Step(seq, tuple(self._book.changed), tuple(self._book.decisions))

    def _finish(self) -> None:
        for trial in self._book.trials.values():
            if trial.state is TrialState.HELD:
                inputs = self._book.seal("finish", trial.number, upto=len(self._book.history))
                self._book.prune(trial, ": the search has ended", inputs)
        best = self.best
        if best is None:
            failed = [trial for _, trial in sorted(self.trials.items()) if trial.state is TrialState.FAILED]
            message = f"No trial has a finite {self.spec.metric!r}: {len(failed)} of {len(self.trials)} failed"
            message += f"; {self._seen()}"
            if failed and "the search has seen" not in failed[0].message:
                message += f" Trial {failed[0].number}: {failed[0].message}"
            self._move("end", "the search failed", SearchState.FAILED, message)
        else:
            message = f"The best is trial {best.number}: {self.spec.metric} {self.value(best)}."
            self._move("end", "the search is finished", SearchState.FINISHED, message)


def _strategy(book: Book) -> Strategy:
    if book.spec.resource or book.spec.algorithm not in ALGORITHMS:
        return Batches(book)
    if book.spec.algorithm == "pbt":
        return Population(book)
    return Rungs(book) if book.spec.order == "rungs" else Lanes(book)
