"""What the store keeps of searches, as immutable values: a search and a trial."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import SearchState, TrialView


def named(search: str) -> str:
    """Return how a sentence that is about jobs names a search of this name."""
    return f"the search {search}"


class SearchRow(msgspec.Struct, frozen=True):
    """One search. Times are seconds since the epoch (UTC).

    Attributes:
        name: unique among the searches of its owner.
        spec: its present settings, defaults filled in.
        best: number of the best trial, None before the first report.
        outside: how many entries of its log came from outside.
        plugin_state: what its plug-in keeps between two questions. Only the plug-in interprets it.
    """

    id: str
    name: str
    owner: str
    spec: SearchSpec
    state: SearchState
    message: str
    created: float
    ended: float | None
    best: int | None = None
    outside: int = 0
    plugin_state: bytes | None = None


class TrialRow(TrialView, frozen=True, kw_only=True):
    """One trial, as its view and what its sampler keeps.

    Attributes:
        sampler_state: what the sampler wants to read again with the trial. Only the suggester interprets it.
    """

    sampler_state: bytes | None = None
