"""Decide in the order `rungs`: a comparison is decided when all its reports are there, in whatever order they came.

Successive halving is Algorithm 1 of Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
Optimization" (AISTATS 2016); Hyperband is Algorithm 1 of Li et al., "Hyperband" (JMLR 18, 2018). Random search, grids
and lists are one comparison at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.search.spec import BLIND, SearchSpec, brackets
from edt_sdk.schemas.search.views import TrialState
from edt_server.searching.book import Book, Key, Trial, place


def budgets(spec: SearchSpec) -> list[int]:
    """Return the epochs at which trials are compared, and at last the epochs of a whole trial."""
    if not spec.kind.rungs:
        return [spec.epochs]
    if spec.algorithm in ("median", "pbt"):
        return [*range(spec.min_epochs, spec.epochs, spec.min_epochs), spec.epochs]
    found = [spec.min_epochs]
    while (following := int(spec.min_epochs * spec.eta ** len(found) + 1e-9)) < spec.epochs:
        found.append(following)
    return [*found, spec.epochs] if found[-1] < spec.epochs else found


def kept(ranked: Sequence[Key], eta: float) -> int:
    """Return how many of the trials of a comparison go on: those without a finite value never do."""
    return sum(key[0] == 0 for key in ranked[: max(1, int(len(ranked) / eta))])


@dataclass(slots=True)
class Bracket:
    """Trials that are compared with each other. `left` counts those that have not reached the present rung."""

    index: int
    budgets: list[int]
    numbers: list[int] = field(default_factory=list)
    entrants: list[int] = field(default_factory=list)
    rung: int = 0
    left: int = 0
    done: bool = False


class Rungs:
    """Brackets of held trials. Hyperband's brackets of one iteration are a wave, and run at once.

    A sampler that learns suggests the trials of a wave from the waves up to the last but one, which then are complete.
    So two waves overlap, and what a suggestion sees does not depend on which of them is ahead.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._brackets: list[Bracket] = []
        self._bracket_of: dict[int, Bracket] = {}
        self._waves: list[list[Bracket]] = []
        self._complete = [0]  # entries of the history after each complete wave; before the first there is none
        self._decided = False

    @property
    def done(self) -> bool:
        """True when nothing is left to train."""
        return len(self._complete) > len(self._waves) and len(self._bracket_of) >= self._book.wanted

    def start(self) -> None:
        """Open the first waves."""
        spec = self._book.spec
        blind = spec.sampler in ("", *BLIND)
        while len(self._bracket_of) < self._book.wanted and (blind or len(self._waves) < len(self._complete) + 1):
            upto = 0 if blind else self._complete[max(len(self._waves) - 1, 0)]
            wave: list[Bracket] = []
            self._waves.append(wave)
            if spec.algorithm == "hyperband":
                shape = brackets(spec.epochs, spec.min_epochs, spec.eta)
            else:
                shape = [(self._book.wanted, budgets(spec))]
            for trials, at in shape:
                wave.append(Bracket(len(self._brackets), at))
                self._brackets.append(wave[-1])
                self._fill(wave[-1], trials, upto)

    def _fill(self, bracket: Bracket, trials: int, upto: int) -> None:
        first = len(self._bracket_of)
        numbers = range(first, min(first + trials, self._book.wanted))
        bracket.numbers += numbers
        bracket.entrants += numbers
        bracket.left += len(numbers)
        bracket.done = not bracket.entrants
        self._bracket_of |= dict.fromkeys(numbers, bracket)
        self.answered(self._book.want(numbers, upto))

    def answered(self, trials: Iterable[Trial]) -> None:
        """Let trials run that have their values now."""
        for trial in trials:
            bracket = self._bracket_of[trial.number]
            trial.bracket = bracket.index
            self._book.open(trial, 0, bracket.budgets[0])

    def raised(self) -> None:
        """Make more trials. Conflict once a comparison has been decided."""
        if self._decided:
            raise Conflict("The first comparison is decided, and more trials would have changed it.", field="trials")
        if self._book.spec.algorithm == "hyperband":
            self.start()
        else:
            self._fill(self._brackets[0], self._book.wanted, 0)

    def concluded(self, trial: Trial) -> None:
        """Compare the trials of a bracket when the last of them has its report."""
        bracket = self._bracket_of[trial.number]
        bracket.left -= 1
        if bracket.left:
            return
        if bracket.rung + 1 < len(bracket.budgets):
            self._decide(bracket)
        else:
            bracket.done = True
        if bracket.done:
            self._end_waves()

    def _decide(self, bracket: Bracket) -> None:
        self._decided = True
        book = self._book
        ranked, best, inputs = compare(book, bracket.entrants, bracket.index, bracket.rung)
        following = bracket.budgets[bracket.rung + 1]
        bracket.entrants = sorted(number for _, _, number in ranked[:best])
        bracket.rung, bracket.left, bracket.done = bracket.rung + 1, best, not best
        for index, (_, _, number) in enumerate(ranked):
            trial = book.trials[number]
            if index < best:
                why = (
                    f": {place(index, len(ranked))}, the best {best} do" if best > 1 else f": the best of {len(ranked)}"
                )
                book.promote(trial, following, why, inputs, float(-bracket.rung))
            elif trial.state is TrialState.HELD:
                book.prune(trial, f": {place(index, len(ranked))}, the best {best} go on", inputs)

    def _end_waves(self) -> None:
        while len(self._complete) <= len(self._waves) and all(
            each.done for each in self._waves[len(self._complete) - 1]
        ):
            for number in (each for bracket in self._waves[len(self._complete) - 1] for each in bracket.numbers):
                self._book.record(self._book.trials[number])
            self._complete.append(len(self._book.history))
            self.start()


def compare(book: Book, numbers: Sequence[int], bracket: int, rung: int) -> tuple[list[Key], int, str]:
    """Return trials ranked, how many of them go on by halving, and a hash of what was compared."""
    ranked = sorted(book.key(book.trials[number]) for number in numbers)
    return ranked, kept(ranked, book.spec.eta), book.seal("compare", bracket, rung, ranked)
