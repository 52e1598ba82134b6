"""Decide for runs that cannot be held, in batches: a batch begins when the one before has ended.

This is Hyperband as WMLA runs it: its brackets one after another, and each rung of a bracket by new runs, with numbers
of their own, that get more of the hyper-parameter `resource`. And it is a plug-in, which is asked for a batch with the
results of all batches before. `trials` counts runs; for halving it counts those of the first rung.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.search.spec import brackets
from edt_server.searching.book import Book, Trial, epochs, place
from edt_server.searching.rungs import budgets, compare


class Batches:
    """The runs of a search, `lanes` at a time."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._plan = self._brackets()
        self._bracket = -1
        self._budgets: list[int] = []
        self._waiting: deque[tuple[int, int | None]] = deque()  # rung, and the run that it repeats with more
        self._made: dict[int, tuple[int, int | None]] = {}
        self._rung: list[int] = []  # the runs of the present rung
        self._batch: list[int] = []
        self._busy: set[int] = set()
        self.done = False

    def _brackets(self) -> Iterator[tuple[int, list[int]]]:
        spec = self._book.spec
        if spec.algorithm != "hyperband":
            yield self._book.wanted, budgets(spec)
        while spec.algorithm == "hyperband":
            yield from brackets(spec.epochs, spec.min_epochs, spec.eta)

    def _full(self) -> bool:
        return len(self._made) >= self._book.wanted and self._book.spec.algorithm != "halving"

    def start(self) -> None:
        """Begin the next batch, or find that there is none."""
        while not (self._waiting or self.done):
            self.done = self._full() or not self._refill()
        self._batch = []
        while self._waiting and len(self._batch) < self._book.spec.lanes and not self._full():
            self._batch.append(len(self._made))
            self._made[self._batch[-1]] = self._waiting.popleft()
        self.done = not self._batch
        self._busy = set(self._batch)
        ready = self._book.want([n for n in self._batch if self._made[n][1] is None], len(self._book.history))
        for number in self._batch:
            if (repeated := self._made[number][1]) is not None:
                text = f"repeats trial {repeated} with more epochs"
                ready.append(self._book.add(number, self._book.trials[repeated].values, text))
                ready[-1].parent = repeated
        self.answered(ready)

    def _refill(self) -> bool:
        """Queue the next rung of the bracket, or the next bracket. False when there is none."""
        book, ran = self._book, sorted(self._rung)
        self._rung = []
        rung = self._made[ran[0]][0] + 1 if ran else 0
        if ran and rung < len(self._budgets):
            ranked, best, inputs = compare(book, ran, self._bracket, rung - 1)
            for index, (_, _, number) in enumerate(ranked[:best]):
                why = f"trial {number} is repeated with {epochs(self._budgets[rung])}: {place(index, len(ranked))}"
                book.log("promote", why, book.trials[number], inputs)
                self._waiting.append((rung, number))
            if best:
                return True
        trials, self._budgets = next(self._plan, (0, []))
        self._bracket += 1
        self._waiting.extend((0, None) for _ in range(trials))
        return bool(trials)

    def answered(self, trials: Iterable[Trial]) -> None:
        """Let runs begin that have their values now."""
        resource = self._book.spec.resource
        for trial in trials:
            rung = self._made[trial.number][0]
            if resource:
                trial.values = trial.values | {resource: self._budgets[rung]}
            trial.bracket = self._bracket
            self._rung.append(trial.number)
            self._book.open(trial, rung, 0 if resource else self._budgets[rung])

    def exhausted(self) -> None:
        """End with the runs that there are."""
        self._book.questions.clear()
        for each in [number for number in self._batch if number not in self._book.trials]:
            del self._made[each]
            self._busy.remove(each)
            self._batch.remove(each)
        self._book.wanted = len(self._made)
        self._waiting.clear()
        self._end_batch()

    def raised(self) -> None:
        """Make more runs."""
        if self._book.spec.algorithm == "halving":
            raise Conflict("The number of runs of a halving with resource cannot change.", field="trials")
        if self._book.spec.algorithm != "hyperband":  # whose brackets go on by themselves
            self._waiting.extend((0, None) for _ in range(self._book.wanted - len(self._made) - len(self._waiting)))

    def concluded(self, trial: Trial) -> None:
        """Begin the next batch when the last run of this one has ended."""
        self._busy.discard(trial.number)
        self._end_batch()

    def _end_batch(self) -> None:
        if not self._busy:
            for number in self._batch:
                self._book.record(self._book.trials[number])
            self.start()
