"""Define what a search's core wants done. The service commits it to the store before it acts on it.

What is still open is also state of the core (`asks()`, `runnable()`), so a restarted server needs no old instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from edt_sdk.schemas.search.space import Value
from edt_sdk.schemas.search.views import SearchState, TrialState


class PastTrial(msgspec.Struct, frozen=True, array_like=True):
    """One entry of the history: how a trial stood, with its reports up to then. A later entry of it replaces it.

    Attributes:
        state: RUNNING also where a trial runs by the virtual clock only. A held one is HELD or PRUNED.
        value: the last or the best of its reports, None where there is none or it is NaN or infinite.
        reports: epochs → the metric that is compared.
        sampler_state: what came with its suggestion, which the service adds. b"" keeps what an earlier entry had.
    """

    number: int
    values: dict[str, Value]
    state: TrialState
    value: float | None = None
    reports: dict[int, float | None] = {}
    sampler_state: bytes = b""


@dataclass(frozen=True, slots=True)
class AskValues:
    """Ask the suggester for the values of these trials, in this order, each taking the ones before it as running.

    The answer may see exactly `SearchCore.past(upto)`, the first `upto` entries of a history that only grows.
    """

    numbers: tuple[int, ...]
    upto: int


@dataclass(frozen=True, slots=True)
class Run:
    """A trial may start, and train `budget` epochs; 0 for until its job ends."""

    number: int
    rung: int
    budget: int


@dataclass(frozen=True, slots=True)
class Promote:
    """A held trial may go on to `budget` epochs."""

    number: int
    rung: int
    budget: int


@dataclass(frozen=True, slots=True)
class MoveTrial:
    """A trial has this state now: HELD, FINISHED, PRUNED or FAILED. All but a held one have ended."""

    number: int
    state: TrialState
    message: str = ""


@dataclass(frozen=True, slots=True)
class MoveSearch:
    """The search has this state now."""

    state: SearchState
    message: str = ""


Instruction = AskValues | Run | Promote | MoveTrial | MoveSearch
