"""Decide for a population: its worst members end after each comparison, and branches of its best take their places.

This is Jaderberg et al., "Population Based Training of Neural Networks" (arXiv 1711.09846, 2017), with truncation
selection, and in lockstep: a comparison is decided when all its reports are there. A branch is a trial with a number of
its own. It goes on from the whole state of its parent with other values, which follow from the search's seed alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.search.space import Choice, Parameter, Value
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import TrialState
from edt_server.searching.book import Book, Trial, epochs, place, shown
from edt_server.searching.rungs import budgets

QUANTILE, RESAMPLE = 0.25, 0.25
_LESS, _MORE = 0.8, 1.2


def replaced(spec: SearchSpec) -> int:
    """Return how many members each comparison replaces, if no more of them have failed."""
    quantile = float(spec.options.get("quantile", QUANTILE))
    return max(int(spec.trials * quantile), quantile > 0)


class Population:
    """The members of a search by pbt."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._budgets = budgets(book.spec)
        self._members: list[int] = []
        self._rung = 0
        self._left = 0
        self.done = False

    def start(self) -> None:
        """Begin with the first members."""
        if not self._members:
            self._members = list(range(self._book.wanted))
            self._left = len(self._members)
            self.answered(self._book.want(self._members))

    def answered(self, trials: Iterable[Trial]) -> None:
        """Let members run that have their values now."""
        for trial in trials:
            self._book.open(trial, 0, self._budgets[0])

    def raised(self) -> None:
        """Refuse more members than there were at the start."""
        raise Conflict("The members of a population begin together, so their number cannot change.", field="trials")

    def concluded(self, trial: Trial) -> None:
        """Compare the members when the last of them has its report."""
        self._left -= 1
        if self._left:
            return
        if self._rung + 1 < len(self._budgets):
            self._decide()
        else:
            self.done = True

    def _decide(self) -> None:
        book = self._book
        ranked = sorted(book.key(book.trials[number]) for number in self._members)
        inputs = book.seal("compare", self._rung, ranked)
        healthy = [number for lost, _, number in ranked if not lost]
        if not healthy:
            self.done = True
            return
        self._rung += 1
        # At most half of the members, or all that have failed: a parent is never among those that it replaces.
        stay = len(ranked) - max(replaced(book.spec), len(ranked) - len(healthy))
        self._members = [number for _, _, number in ranked[:stay]]
        for index, number in enumerate(self._members):
            book.promote(
                book.trials[number],
                self._budgets[self._rung],
                f": {place(index, len(ranked))}",
                inputs,
                float(-self._rung),
            )
        for index, (_, _, number) in enumerate(reversed(ranked[stay:])):
            parent, rank = book.trials[healthy[index % len(healthy)]], place(len(ranked) - 1 - index, len(ranked))
            self._members.append(self._branch(parent, book.trials[number], rank, inputs))
        self._left = len(self._members)

    def _branch(self, parent: Trial, worst: Trial, rank: str, inputs: str) -> int:
        """Begin a branch of `parent` in the place of a member, and return its number."""
        book, at = self._book, self._budgets[self._rung - 1]
        values = varied(book.spec, parent.values, self._rung, worst.number)
        number = len(book.trials)
        text = f"goes on from trial {parent.number} after {epochs(at)} with {shown(values)}"
        branch = book.add(number, values, text, inputs, "branch")
        branch.parent, branch.branched = parent.number, at
        if worst.state is TrialState.HELD:
            book.prune(worst, f": {rank}, and trial {number} takes its place", inputs)
        # Before its parent, which does not go on until the branch has its state.
        book.open(branch, self._rung, self._budgets[self._rung], -self._rung - 0.5)
        return number


def varied(spec: SearchSpec, values: dict[str, Value], generation: int, member: int) -> dict[str, Value]:
    """Return the values of a branch: each drawn anew or a little less or more. They follow from these arguments."""
    resample = float(spec.options.get("resample", RESAMPLE))
    found: dict[str, Value] = {}
    for name, value in values.items():
        digest = sha256(f"{spec.seed}:{generation}:{member}:{name}".encode()).digest()
        fresh, where, more = (int.from_bytes(digest[at : at + 8], "big") / 2**64 for at in (0, 8, 16))
        parameter = spec.space[name]
        found[name] = parameter.between(where) if fresh < resample else _beside(parameter, value, more < 0.5)
    return found


def _beside(parameter: Parameter, value: Value, more: bool) -> Value:
    """Return a value somewhat larger or smaller, at least by one step. Choices have no order, and stay."""
    if isinstance(parameter, Choice) or isinstance(value, str):
        return value
    found = parameter.fitted(value * (_MORE if more else _LESS))
    if found == value and parameter.step is not None:
        found = parameter.fitted(value + (parameter.step if more else -parameter.step))
    return found
