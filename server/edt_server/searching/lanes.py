"""Decide in the order `clock`: asynchronously, by a virtual clock that runs by declared costs and never by real time.

Imaginary lanes work on segments. A segment takes its epochs × the cost of an epoch, whatever it really takes. Its end
is handled at its turn, by (virtual end, number), and a decision waits for the reports that it is to see. In the order
`free` the same lanes hand over their segments as reports arrive.

The promotion is that of ASHA, Algorithm 2 of Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys
2020). The median rule is that of Golovin et al., "Google Vizier" (KDD 2017, section 3.2.2), in the form that Optuna's
MedianPruner gives it.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

from edt_sdk.schemas.search.cost import cost_of
from edt_sdk.schemas.search.space import rounded
from edt_sdk.schemas.search.views import TrialState
from edt_server.searching.book import Book, Key, Trial
from edt_server.searching.rungs import budgets

_LEAST_FINISHED = 5


class _Rung:
    """The reports of one rung, ranked, and those of them that were not promoted."""

    def __init__(self) -> None:
        self.ranked: list[Key] = []
        self.held: list[Key] = []

    def add(self, key: Key) -> None:
        """Rank a report. One without a finite value is ranked and never promoted."""
        insort(self.ranked, key)
        if key[0] == 0:
            heapq.heappush(self.held, key)

    def best(self, eta: float) -> int | None:
        """Return the best trial in the top 1/eta that was not promoted, None when there is none."""
        if not self.held or bisect_left(self.ranked, self.held[0]) >= int(len(self.ranked) / eta):
            return None
        return self.held[0][2]


class Lanes:
    """The lanes of one search."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._budgets = budgets(book.spec)
        self._rungs = [_Rung() for _ in self._budgets[:-1]]
        self._median = book.spec.algorithm == "median"
        self._finished: list[list[float]] = [[] for _ in self._budgets]  # values of finished trials, by rung
        self._free = book.spec.order == "free"
        self._idle = book.spec.lanes
        self._now = 0.0
        self._queue: list[tuple[float, int]] = []  # virtual ends of segments
        self._arrived: deque[int] = deque()
        self._concluded: set[int] = set()
        self._next = 0
        self._starting: list[int] = []  # new trials, until all of them have their values

    @property
    def done(self) -> bool:
        """True when nothing is left to train."""
        return not (self._queue or self._starting) and self._next >= self._book.wanted

    def start(self) -> None:
        """Give the free lanes work, and handle what has ended, as far as everything needed is there."""
        while not self._starting:
            self._give()
            if self._starting or (trial := self._ended()) is None:
                return
            self._handle(trial)

    raised = start

    def answered(self, trials: Iterable[Trial]) -> None:
        """Let the new trials run when all of them have their values: the clock needs their costs."""
        if all(number in self._book.trials for number in self._starting):
            self._launch()
            self.start()

    def _launch(self) -> None:
        starting, self._starting = self._starting, []
        for number in starting:
            self._run(self._book.trials[number], 0)

    def concluded(self, trial: Trial) -> None:
        """Handle the end of a segment when it is its turn."""
        if self._free:
            self._arrived.append(trial.number)
        else:
            self._concluded.add(trial.number)
        self.start()

    def _ended(self) -> Trial | None:
        """Return the trial with the segment that ends next, None while its report is missing."""
        if self._free:
            if not self._arrived:
                return None
            number = self._arrived.popleft()
            self._queue.remove((self._book.trials[number].due, number))
        else:
            if not self._queue or self._queue[0][1] not in self._concluded:
                return None
            self._now, number = heapq.heappop(self._queue)
            self._concluded.remove(number)
        return self._book.trials[number]

    def _give(self) -> None:
        while self._idle:
            promoted = self._promotable()
            if promoted is not None:
                self._idle -= 1
                self._promote(promoted)
            elif self._next < self._book.wanted and self._has_values():
                self._idle -= 1
                self._starting.append(self._next)
                self._next += 1
            else:
                break
        if self._starting:
            known = self._book.want(self._starting, len(self._book.history))
            if len(known) == len(self._starting):
                self._launch()

    def _has_values(self) -> bool:
        """Return whether there are, or will be, values for one more new trial."""
        return self._book.spec.algorithm != "manual" or len(self._book.guesses) > len(self._starting)

    def _promotable(self) -> Trial | None:
        if not self._median:
            for rung in reversed(self._rungs):
                if (number := rung.best(self._book.spec.eta)) is not None:
                    heapq.heappop(rung.held)
                    return self._book.trials[number]
        return None

    def _promote(self, trial: Trial) -> None:
        ranked = len(self._rungs[trial.rung].ranked)
        why = f": among the best {int(ranked / self._book.spec.eta)} of {ranked}"
        inputs = self._book.seal("promote", trial.number, trial.rung, upto=len(self._book.history))
        self._book.promote(trial, self._budgets[trial.rung + 1], why, inputs, self._due(trial, trial.rung + 1))
        self._queued(trial)

    def _run(self, trial: Trial, rung: int) -> None:
        self._book.open(trial, rung, self._budgets[rung], self._due(trial, rung))
        self._queued(trial)

    def _queued(self, trial: Trial) -> None:
        heapq.heappush(self._queue, (trial.due, trial.number))
        self._book.record(trial, running=True)

    def _due(self, trial: Trial, rung: int) -> float:
        if self._free:
            return float(-rung)
        trained = self._budgets[rung - 1] if rung else 0
        # Without a number of epochs each trial counts as one.
        return rounded(
            self._now + (max(self._budgets[rung], 1) - trained) * cost_of(self._book.spec.cost, trial.values)
        )

    def _handle(self, trial: Trial) -> None:
        if self._median and trial.state is TrialState.HELD and self._goes_on(trial):
            return
        self._idle += 1
        self._book.record(trial)
        if self._median and trial.state is TrialState.FINISHED:
            for rung, at in enumerate(self._budgets):
                insort(self._finished[rung], self._book.signed(trial.reports.get(at)))
        elif not self._median and trial.rung < len(self._rungs):
            self._rungs[trial.rung].add(self._book.key(trial))

    def _goes_on(self, trial: Trial) -> bool:
        """Let a trial train on unless the median rule ends it."""
        book, others = self._book, self._finished[trial.rung]
        least = book.spec.options.get("least_finished", _LEAST_FINISHED)
        value = min(map(book.signed, trial.reports.values()), default=math.inf)
        middle = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2 if others else math.inf
        early = len(others) < int(least) or trial.budget <= int(book.spec.options.get("least_epochs", 0))
        inputs = book.seal("median", trial.number, trial.rung, value, upto=len(book.history))
        if not early and value > middle:
            book.prune(trial, f": its best is worse than the median of {len(others)} finished trials", inputs)
            return False
        why = "" if early else f": its best is no worse than the median of {len(others)} finished trials"
        book.promote(trial, self._budgets[trial.rung + 1], why, inputs, self._due(trial, trial.rung + 1))
        self._queued(trial)
        return True
