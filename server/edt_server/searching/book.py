"""Keep the trials of a search, and write what is decided about them. `rungs.py` and `lanes.py` decide.

A trial is *open* while a segment of it may run. The history lists what became known of trials in the order in which
decisions may see it, so that a number of its entries says exactly what a decision saw.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from edt_sdk.schemas.search.space import Value, on_grid, rounded
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import Decision, RungView, TrialState
from edt_server.searching.past import AskValues, PastTrial

MOST_ASKED = 256
# What is no part of a decision, or may change while the search runs.
_NOT_DECISIVE = ("job", "trials", "parallel", "max_time", "fail_fast", "deterministic", "job_seed")
Key = tuple[int, float, int]


@dataclass(slots=True)
class Trial:
    """One trial.

    Attributes:
        budget: epochs at which its present or last segment ends, 0 for the end of its job.
        due: open trials with a lower one are more urgent.
        reports: epochs → the metric that is compared, None where it is NaN or infinite.
        taken: epochs of its newest report, with that metric or without.
        compared: epochs after which it was compared last, 1 for the end of its job, 0 before its first comparison.
        score: the value that it had then.
        parent: the trial whose values or state it has, None for values of its own.
        branched: epochs after which it goes on from the state of its parent, 0 where it begins from nothing.
    """

    number: int
    values: dict[str, Value]
    bracket: int = 0
    rung: int = 0
    budget: int = 0
    due: float = 0.0
    state: TrialState = TrialState.WAITING
    reports: dict[int, float | None] = field(default_factory=dict)
    taken: int = 0
    compared: int = 0
    score: float | None = None
    message: str = ""
    parent: int | None = None
    branched: int = 0

    @property
    def open(self) -> bool:
        """True while a segment of it may run."""
        return self.state is TrialState.WAITING

    @property
    def epochs(self) -> int:
        """The epochs of its newest value."""
        return max(self.reports, default=0)


class Book:
    """The trials of one search, with defaults resolved in `spec`."""

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec
        self.wanted = spec.trials
        self.trials: dict[int, Trial] = {}
        self.guesses = deque(spec.point(each) for each in spec.points)
        self.questions: list[AskValues] = []  # those without an answer
        self._asked_upto = 0
        self.history: list[tuple[int, int, TrialState]] = []
        self.metrics: set[str] = set()
        self.best: int | None = None
        self.changed: list[int] = []
        self.decisions: list[Decision] = []
        self.seq = 0
        self._event: dict[str, Any] | None = None
        self._open: list[tuple[float, int]] = []
        self._rungs: dict[tuple[int, int], list[int]] = {}  # (bracket, rung) → budget, trials, reported, promoted
        fields = {name: getattr(spec, name) for name in spec.__struct_fields__ if name not in _NOT_DECISIVE}
        self._seals: list[tuple[str, int]] = [(_hash(msgspec.json.encode(fields, order="deterministic")), 0)]

    # --- one event ----------------------------------------------------------------------------------------------------

    def begin_event(self, event: msgspec.Struct | None) -> None:
        """Forget what the last event led to. This one goes into the first entry of the log; None takes a number."""
        # As it is read from a row, where a tuple is a list.
        data = None if event is None else msgspec.json.decode(msgspec.json.encode(event))
        self.changed, self.decisions, self._event = [], [], data
        self.seq += event is None

    def log(self, kind: str, text: str, trial: Trial | None = None, inputs: str = "", outside: bool = False) -> None:
        """Write an entry of the log."""
        self.seq += 1
        number, rung = (None, None) if trial is None else (trial.number, trial.rung)
        self.decisions.append(
            Decision(
                index=self.seq, kind=kind, trial=number, rung=rung, inputs=inputs, text=text, outside=outside,
                event=self._event,
            )
        )  # fmt: skip
        self._event = None

    # --- reading it ---------------------------------------------------------------------------------------------------

    def key(self, trial: Trial) -> Key:
        """Return what trials are ranked by, the best first: failed ones last, NaN before them, ties by number."""
        if trial.state is TrialState.FAILED:
            return 2, 0.0, trial.number
        value = self.compared(trial)
        return (1, 0.0, trial.number) if value is None else (0, self.signed(value), trial.number)

    def standing(self, trial: Trial) -> tuple[bool, int, float, int]:
        """Return by what trials are listed, the best first: those compared after the most epochs, then by value.

        Values after different numbers of epochs cannot be compared. What a trial reports after its last comparison
        counts at the next one. Failed trials and those without a value come last.
        """
        value = trial.score if trial.compared else self.value(trial.reports)
        lost = value is None or trial.state is TrialState.FAILED
        return lost, -trial.compared, self.signed(value), trial.number

    def signed(self, value: float | None) -> float:
        """Return a value as less is better, to 12 digits; infinite for none."""
        return math.inf if value is None else rounded(-value if self.spec.direction == "maximize" else value)

    def compared(self, trial: Trial) -> float | None:
        """Return the value that its comparison sees: the report at the rung, or its value where it ends there."""
        if self.spec.kind.rungs and trial.budget in trial.reports:
            return trial.reports[trial.budget]
        return self.value(trial.reports)

    def value(self, reports: Mapping[int, float | None]) -> float | None:
        """Return the value of a trial with these reports: the last or the best."""
        if self.spec.value == "last" or not reports:
            return reports[max(reports)] if reports else None
        return min(reports.values(), key=self.signed)

    def past(self, upto: int, since: int = 0) -> list[PastTrial]:
        """Return the entries of the history from `since` to `upto`: a later one of a trial replaces an earlier one."""
        found = []
        for number, budget, state in self.history[since:upto]:
            trial = self.trials[number]
            # A trial that is not held counts steps as it likes, and its reports are seen together when it has ended.
            whole = not trial.budget and state is not TrialState.RUNNING
            seen = {at: value for at, value in trial.reports.items() if at <= budget or whole}
            found.append(PastTrial(number, trial.values, state, self.value(seen), seen))
        return found

    def seal(self, *facts: Any, upto: int = 0) -> str:
        """Return a hash of the search's settings, of the first `upto` entries of the history, and of these facts."""
        return _hash(self._seals[upto][0].encode(), repr(facts).encode())

    def runnable(self, most: int) -> list[Trial]:
        """Return the open trials that come first, at most so many."""
        return [self.trials[number] for _, number in self._open[:most]]

    def rungs(self) -> tuple[RungView, ...]:
        """Return how far the trials are."""
        return tuple(
            RungView(bracket=bracket, budget=counts[0], trials=counts[1], reported=counts[2], promoted=counts[3])
            for (bracket, _), counts in sorted(self._rungs.items())
        )

    # --- writing it ---------------------------------------------------------------------------------------------------

    def want(self, numbers: Iterable[int], upto: int = 0) -> list[Trial]:
        """Ask for the values of new trials, and return those of which the values are known already."""
        known, unknown = [], []
        for number in numbers:
            if (values := self._given(number)) is None:
                unknown.append(number)
            else:
                known.append(self.add(number, values, f"tries {shown(values)}, as it was given"))
        for at in range(0, len(unknown), MOST_ASKED):
            self.questions.append(AskValues(tuple(unknown[at : at + MOST_ASKED]), upto, self._asked_upto))
            self._asked_upto = upto
        return known

    def _given(self, number: int) -> dict[str, Value] | None:
        if self.guesses:
            return self.guesses.popleft()
        return on_grid(self.spec.space, number) if self.spec.algorithm == "grid" else None

    def asked(self, number: int) -> AskValues | None:
        """Return the open question that begins with this trial, None where there is none."""
        return next((each for each in self.questions if each.numbers[0] == number), None)

    def answer(self, question: AskValues, values: Iterable[dict[str, Value]]) -> list[Trial]:
        """Add the first trials of an open question, as many as there are values."""
        self.questions.remove(question)
        upto, seen = question.upto, self._seals[question.upto][1]
        how = f"{self.spec.sampler or self.spec.algorithm} suggested it" + (f" after {seen} reports" if seen else "")
        return [
            self.add(number, each, f"tries {shown(each)}: {how}", self.seal("suggest", number, upto=upto), "suggest")
            for number, each in zip(question.numbers, values, strict=False)
        ]

    def add(self, number: int, values: dict[str, Value], text: str, inputs: str = "", kind: str = "start") -> Trial:
        """Add a trial that does not run yet."""
        trial = self.trials[number] = Trial(number, values, state=TrialState.HELD)
        self.changed.append(number)
        self.log(kind, f"trial {number} {text}", trial, inputs)
        return trial

    def open(self, trial: Trial, rung: int, budget: int, due: float = 0.0) -> None:
        """Let a trial train up to `budget`. Those with the lowest `due` run first."""
        trial.state, trial.rung, trial.budget, trial.due = TrialState.WAITING, rung, budget, due
        insort(self._open, (due, trial.number))
        self._rungs.setdefault((trial.bracket, rung), [budget, 0, 0, 0])[1] += 1
        self.changed.append(trial.number)

    def promote(self, trial: Trial, budget: int, why: str, inputs: str, due: float = 0.0) -> None:
        """Let a held trial train on."""
        self._rungs[trial.bracket, trial.rung][3] += 1
        self.log("promote", f"trial {trial.number} goes on to {epochs(budget)}{why}", trial, inputs)
        self.open(trial, trial.rung + 1, budget, due)

    def conclude(self, trial: Trial, state: TrialState, message: str = "") -> None:
        """End a segment: the trial has reached its budget, or it failed."""
        del self._open[bisect_left(self._open, (trial.due, trial.number))]
        self._rungs[trial.bracket, trial.rung][2] += 1
        self.move(trial, state, message)
        if state is not TrialState.FAILED:
            # With `resource` a run compares with those that had as much of it.
            resource = trial.values.get(self.spec.resource)
            trial.compared = trial.budget or (resource if isinstance(resource, int) else 1)
            trial.score = self.value(trial.reports)
        if self.best is None:
            rivals = [trial]
        else:  # which may itself have failed now, or have no value any more
            rivals = [*self.trials.values()] if self.best == trial.number else [trial, self.trials[self.best]]
        best = min(rivals, key=self.standing)
        self.best = best.number if best.compared and not self.standing(best)[0] else None

    def move(self, trial: Trial, state: TrialState, message: str = "") -> None:
        """Give a trial a state."""
        trial.state, trial.message = state, message
        self.changed.append(trial.number)

    def prune(self, trial: Trial, why: str, inputs: str) -> None:
        """End a held trial."""
        text = f"trial {trial.number} ends after {epochs(trial.budget)}{why}"
        self.log("prune", text, trial, inputs)
        self.move(trial, TrialState.PRUNED, f"{text[0].upper()}{text[1:]}.")

    def record(self, trial: Trial, *, running: bool = False) -> None:
        """Let later decisions see the trial as it is; `running` if they are to see that a segment of it runs."""
        state, upto = (TrialState.RUNNING, trial.epochs) if running else (trial.state, trial.budget)
        self.history.append((trial.number, upto, state))
        seal, reports = self._seals[-1]
        seen = [] if running else sorted((at, value) for at, value in trial.reports.items() if at <= upto or not upto)
        fact = repr((trial.number, upto, state.value, seen)).encode()
        self._seals.append((_hash(seal.encode(), fact), reports + (not running)))


def shown(values: Mapping[str, Value]) -> str:
    """Return values as people write them."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def epochs(number: int) -> str:
    """Return a number of epochs in words."""
    return f"{number} epoch{'s' * (number != 1)}" if number else "its end"


def place(index: int, of: int) -> str:
    """Return a rank from 0 in words: 3rd of 27."""
    number = index + 1
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending} of {of}"


def _hash(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
