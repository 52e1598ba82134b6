"""What a search asks the suggester for, and what the answer may see of its trials."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from edt_sdk.schemas.search.space import Value
from edt_sdk.schemas.search.views import TrialState


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
    """A question for the values of these trials, in this order, each taking the ones before it as running.

    The answer may see exactly `SearchCore.past(upto)`, the first `upto` entries of a history that only grows. The
    question before could see the first `since` of them. A plug-in is told the others alone.
    """

    numbers: tuple[int, ...]
    upto: int
    since: int = 0
