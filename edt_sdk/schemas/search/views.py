"""A search as the server shows it: its trials, their reports, and the log of everything that was decided."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from edt_sdk.schemas.forecast import Forecast
from edt_sdk.schemas.search.spec import SearchSpec


class SearchState(StrEnum):
    """The states of a search. The last three are final, and a stopped search may go on."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        """True when the search has ended."""
        return self in (SearchState.FINISHED, SearchState.STOPPED, SearchState.FAILED)


class TrialState(StrEnum):
    """The states of a trial: a held one may go on, a finished one has trained all its epochs."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    HELD = "HELD"
    FINISHED = "FINISHED"
    PRUNED = "PRUNED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial reported after some epochs.

    Attributes:
        trial: its number.
        budget: epochs it had trained, or steps as its script counts them, from 1.
        metrics: name → value, null for one that is NaN or infinite.
        seq: place in the log of the search, in the order of arrival.
    """

    trial: int
    budget: int
    metrics: dict[str, float | None]
    seq: int


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a search's log: a decision, or what came from outside.

    Attributes:
        index: place in the log.
        kind: a word for programs, such as suggest, promote, prune, branch, fail or stop.
        trial: number of the trial it is about, null for the whole search.
        rung: the trial's comparison, from 0; null for the whole search.
        inputs: a hash of everything the decision followed from. Equal searches have equal hashes.
        text: one sentence for people.
        outside: it came from a person, a limit or a machine, so an equal search may lack it.
        event: what the core of the search was told, null for an entry that follows from the ones before.
    """

    index: int
    kind: str
    trial: int | None = None
    rung: int | None = None
    inputs: str = ""
    text: str
    outside: bool = False
    event: dict[str, Any] | None = None


class TrialView(msgspec.Struct, frozen=True, kw_only=True):
    """A trial as the server shows it. Times are seconds since the epoch (UTC).

    Attributes:
        search: id of its search.
        number: its number in the search, from 0.
        rung: the comparison it goes to, from 0.
        bracket: the bracket of hyperband that it belongs to.
        params: its values by name.
        value: the metric that is compared, null before the first report and where it is NaN or infinite.
        epochs: epochs of its newest report.
        job: id of its present job, empty before it has one.
        parent: number of the trial whose state it went on from, null for its own.
        message: one sentence about the state, empty when the state needs none.
    """

    search: str
    number: int
    state: TrialState
    rung: int
    bracket: int
    params: dict[str, Any]
    value: float | None
    epochs: int
    job: str
    parent: int | None
    created: float
    ended: float | None
    message: str


class RungView(msgspec.Struct, frozen=True, kw_only=True):
    """How far the trials are that are compared with each other after the same epochs.

    Attributes:
        bracket: the bracket of hyperband, 0 for other algorithms.
        budget: epochs after which they are compared, 0 for the end of their jobs.
        trials: how many have been given this far to train.
        reported: how many have reached it, failed ones included.
        promoted: how many of these were given more.
    """

    bracket: int
    budget: int
    trials: int
    reported: int
    promoted: int


class SearchPreview(msgspec.Struct, frozen=True, kw_only=True):
    """How much a search would train, and when it would begin. Nothing of it exists.

    Attributes:
        text: how many trials and epochs, in a sentence.
        trials: how many there would be.
        epochs: epochs that they would train together, 0 where the script decides.
        rungs: how many would be compared after how many epochs, and how many would go on.
        notes: what is no error but may not be meant, in sentences.
        forecast: when its first trial would start, and on how many slots all would run.
    """

    text: str
    trials: int
    epochs: int
    rungs: tuple[RungView, ...]
    notes: tuple[str, ...]
    forecast: Forecast


class SearchView(msgspec.Struct, frozen=True, kw_only=True):
    """A search as the server shows it, without its trials. Times are seconds since the epoch (UTC).

    Attributes:
        spec: its settings, defaults filled in.
        message: one sentence about the state, empty when the state needs none.
        counts: how many trials are in each state.
        rungs: how far its trials are.
        best: the trial with the best value among those with the most epochs, null before the first report.
        outside: how many entries of its log came from outside. It is repeatable where there are none.
        budgets: epochs at which its trials are compared, and at last those of a whole trial.
        slots: how many its trials hold.
        usable_slots: how many its queue has for it and others.
        expected: how many trials there are to be: those of its settings, and with pbt their branches.
    """

    id: str
    owner: str
    spec: SearchSpec
    state: SearchState
    message: str
    created: float
    ended: float | None
    counts: dict[str, int]
    rungs: tuple[RungView, ...]
    best: TrialView | None
    outside: int
    budgets: tuple[int, ...] = ()
    slots: int = 0
    usable_slots: int = 0
    expected: int = 0
