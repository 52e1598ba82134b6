"""Display searches, their trials and their logs: a sentence, or tables in a notebook and at a shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import msgspec

from edt_sdk.display.picture import Picture
from edt_sdk.formatting.number_words import stamp
from edt_sdk.formatting.tables import html_table, left_out, note, text_table
from edt_sdk.schemas.search.views import Decision, SearchPreview, SearchView, TrialState, TrialView

# The MIME type from which our front end shows the current state of the search without a kernel.
MIME = "application/vnd.edt.search+json"
SEARCH_HEAD = ("NAME", "STATE", "TRIALS", "BEST", "ALGORITHM", "ID")
TRIAL_HEAD = ("TRIAL", "STATE", "VALUE", "EPOCHS", "JOB", "VALUES")
_MOST = 100  # rows at the end of a cell
_OVER = (TrialState.FINISHED, TrialState.PRUNED, TrialState.FAILED, TrialState.STOPPED)


def ended(view: SearchView) -> int:
    """Return how many of its trials have ended."""
    return sum(view.counts.get(state.value, 0) for state in _OVER)


def values_text(values: Mapping[str, Any]) -> str:
    """Return the values of a trial, such as "lr=0.01 width=64"."""
    return " ".join(f"{name}={value}" for name, value in values.items())


class SearchOutlook(SearchPreview, frozen=True, kw_only=True):
    """Holds a `SearchPreview` with sentences and a table of its comparisons as its repr. See there for its fields."""

    def __repr__(self) -> str:
        rows = [(each.bracket, each.budget, each.trials, each.promoted) for each in self.rungs]
        table = text_table(("BRACKET", "EPOCHS", "TRIALS", "GO ON"), rows) if len(rows) > 1 else ""
        return "\n".join(filter(None, (self.text, table, *self.notes, self.forecast.text)))


def search_cells(view: SearchView) -> tuple[str, ...]:
    """Return the columns of a search."""
    best = "-" if view.best is None else f"{value_text(view.best)} (trial {view.best.number})"
    return (view.spec.job.name, view.state.value, _progress(view), best, view.spec.algorithm, view.id)


def trial_cells(view: TrialView) -> tuple[str, ...]:
    """Return the columns of a trial."""
    epochs = str(view.epochs or "-")
    return (
        str(view.number), view.state.value, value_text(view), epochs, view.job or "-", values_text(view.params)
    )  # fmt: skip


def value_text(view: TrialView) -> str:
    """Return the value that is compared in four digits, "-" for none."""
    return "-" if view.value is None else f"{view.value:.4g}"


def after_text(view: TrialView) -> str:
    """Return after how many epochs it has its value, with a blank before it, "" for a trial without a report."""
    return f" after {view.epochs} epoch{'s' * (view.epochs != 1)}" if view.epochs else ""


def search_sentence(view: SearchView) -> str:
    """Return the present state of a search in a sentence."""
    metric = view.spec.metric
    best = view.best
    if best is None:
        words = f"no {metric} yet"
    else:
        after = after_text(best) if view.spec.epochs else ""
        words = f"best {metric} {value_text(best)}{after} by trial {best.number} ({values_text(best.params)})"
    said = f" {view.message}" if view.message and not view.state.final else ""
    return f"Search {view.spec.job.name} is {view.state.value}: {_progress(view)} trials have ended, {words}.{said}"


def trials_table(views: list[TrialView]) -> str:
    """Return trials as a text table."""
    return text_table(TRIAL_HEAD, [trial_cells(each) for each in views]) if views else "No trials yet."


def trials_html(views: list[TrialView]) -> str:
    """Return trials as a table of HTML, the first hundred."""
    rows = [trial_cells(each) for each in views[:_MOST]]
    return html_table(TRIAL_HEAD, rows, empty="No trials yet.") + note(left_out(len(views), _MOST))


def headline(view: SearchView) -> str:
    """Return how far a search is, such as "37 of 81 trials · rung 2 of 4 · best 0.9871 (trial 17) · 6 of 8 slots"."""
    parts = [f"{_progress(view)} trials"]
    reached = max(
        (view.budgets.index(rung.budget) + 1 for rung in view.rungs if rung.budget in view.budgets), default=0
    )
    if view.spec.kind.rungs and reached:
        parts.append(f"rung {reached} of {len(view.budgets)}")
    if view.best is not None:
        parts.append(f"best {value_text(view.best)} (trial {view.best.number})")
    if not view.state.final:
        parts.append(f"{view.slots} of {view.usable_slots} slots")
    return " · ".join(parts)


def bundle(
    view: SearchView,
    taken: float,
    origin: str,
    *,
    pictures: Sequence[Picture] = (),
    best: Sequence[TrialView] = (),
    trouble: str = "",
) -> dict[str, Any]:
    """Return the card of a search as a MIME bundle, with the value of `MIME`, HTML and text.

    Args:
        view: the search.
        taken: when the view was fetched, seconds since the epoch.
        origin: base URL of its server.
        pictures: of the search.
        best: its best trials.
        trouble: why the view could not be renewed.
    """
    age = f"Last seen {stamp(taken)}. {trouble}" if trouble else f"Snapshot of {stamp(taken)}."
    name, message = escape(view.spec.job.name), "" if view.state.final else view.message
    lines = [f"<b>{name}</b> &nbsp; {view.state.value.lower()} · {escape(headline(view))}"]
    lines += [escape(message)] if message else []
    lines += [each._repr_html_() for each in pictures] + ([trials_html(list(best))] if best else [])
    html = "<br/>".join([*lines, note(age)])
    return {
        MIME: {
            "version": 1,
            "id": view.id,
            "taken": taken,
            "view": msgspec.json.decode(msgspec.json.encode(view)),
            "origin": origin,
        },
        "text/html": f'<div role="group" aria-label="{escape(search_sentence(view), quote=True)}">{html}</div>',
        "text/plain": f"{search_sentence(view)} ({age})",
    }


class DecisionLog(list[Decision]):
    """Lists what a search decided, and what came from outside, each with its reason."""

    def __repr__(self) -> str:
        return "\n".join(f"{each.index}  {each.text}" for each in self) or "Nothing is decided yet."


def _progress(view: SearchView) -> str:
    return f"{ended(view)} of {view.expected}"
