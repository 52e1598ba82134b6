"""Decide a search again from its rows: to go on after a restart, and to show that its decisions follow from reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import Decision, TrialReport
from edt_server.searching.core import SearchCore
from edt_server.searching.events import Reported, SearchEvent


def events(reports: Iterable[TrialReport], decisions: Iterable[Decision]) -> list[SearchEvent]:
    """Return the events of a search in their order, from its reports and its log."""
    found: list[tuple[int, SearchEvent]] = [
        (each.seq, Reported(each.trial, each.budget, each.metrics)) for each in reports
    ]
    found += [(each.index, msgspec.convert(each.event, SearchEvent)) for each in decisions if each.event is not None]
    return [event for _, event in sorted(found, key=lambda pair: pair[0])]


def rebuild(spec: SearchSpec, events: Iterable[SearchEvent]) -> tuple[SearchCore, list[Decision]]:
    """Return the core after these events, and its log."""
    core = SearchCore(spec)
    log: list[Decision] = []
    for event in events:
        log += core.apply(event).decisions
    return core, log


def difference(recorded: Sequence[Decision], again: Sequence[Decision]) -> str:
    """Return the first entry in which two logs differ, in a sentence. "" for equal ones."""
    for one, other in zip(recorded, again, strict=False):
        if one != other:
            before, now = (f"{each.text!r} ({each.inputs})" for each in (one, other))
            return f"Entry {one.index} is recorded as {before}, and now {now}."
    if len(recorded) != len(again):
        return f"{len(recorded)} entries are recorded, and now there are {len(again)}."
    return ""
