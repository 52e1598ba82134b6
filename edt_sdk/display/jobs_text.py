"""Present jobs in a terminal: the table of several jobs, and the sheet of one. Pure functions of JobViews.

The table is the same in `edt list` and `edt top`, which choose its columns by name. A search is a row of it, in place
of its trials.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edt_sdk.display.card import done_share, experiment_words, progress_words, why_words
from edt_sdk.display.search_view import ended, headline
from edt_sdk.formatting.control_characters import one_line
from edt_sdk.formatting.number_words import duration, stamp
from edt_sdk.formatting.tables import text_table, with_sentences
from edt_sdk.formatting.text_chart import bar
from edt_sdk.schemas.job import JobPatch, JobState, JobView
from edt_sdk.schemas.search.views import SearchState, SearchView

_BAR = 10
_LABEL = 12
_MOST_WORKERS = 8
_PER_CENT = "{:.0f} %"
# From the first to go to the last when a terminal is narrow.
DROPPED = ("OWNER", "PRIORITY", "TAGS", "ARGS", "ACCURACY", "SAMPLES/S", "AGE", "NAME", "LOSS", "DONE")


def _share(view: JobView | SearchView) -> float | None:
    if isinstance(view, SearchView):
        return ended(view) / view.expected
    return done_share(view) if view.progress is not None and view.progress.total_updates else None


def _percent(view: JobView | SearchView) -> str:
    share = _share(view)
    return "-" if share is None else _PER_CENT.format(100 * share)


def _bar(view: JobView | SearchView) -> str:
    share = _share(view)
    return "-" if share is None else f"│{bar(share, _BAR)}│ {_percent(view):>5}"


def _loss(view: JobView) -> str:
    p = view.progress
    if p is None or (p.loss is None and not p.not_a_number):
        return "-"
    return "nan" if p.loss is None else f"{p.loss:.4g}"


def _accuracy(view: JobView) -> str:
    p = view.progress
    known = None if p is None else p.accuracy if p.test_accuracy is None else p.test_accuracy
    return "-" if known is None else f"{100 * known:.1f} %"


def _speed(view: JobView) -> str:
    p = view.progress
    trains = p is not None and p.samples_per_second is not None and not view.state.final
    return f"{p.samples_per_second:,.0f}" if trains and p is not None else "-"


def _why(view: JobView | SearchView) -> str:
    if isinstance(view, SearchView):
        # A message may quote a traceback. That of a finished search only names the best trial again.
        said = "" if view.state is SearchState.FINISHED else view.message.partition("\n")[0]
        return " · ".join(filter(None, ["search", headline(view), said]))
    return " ".join(why_words(view).split())


_OF_BOTH: dict[str, Callable[[JobView | SearchView, float], object]] = {
    "ID": lambda view, now: view.id,
    "SLOTS": lambda view, now: "-" if view.state.final else f"{view.slots}/{view.usable_slots}",
    "DONE": lambda view, now: _percent(view),
    "PROGRESS": lambda view, now: _bar(view),
    "OWNER": lambda view, now: view.owner,
    "AGE": lambda view, now: duration(now - view.created),
    "WHY": lambda view, now: _why(view) or "-",
}
_OF_SEARCHES: dict[str, Callable[[SearchView, float], object]] = {
    **_OF_BOTH,
    "NAME": lambda view, now: view.spec.job.name,
    "STATE": lambda view, now: view.state.value,
    "PRIORITY": lambda view, now: view.spec.job.priority,
    "TAGS": lambda view, now: ", ".join(view.spec.job.tags) or "-",
}
_OF_JOBS: dict[str, Callable[[JobView, float], object]] = {
    **_OF_BOTH,
    "NAME": lambda view, now: view.name,
    "STATE": lambda view, now: view.state.shown,
    "PRIORITY": lambda view, now: view.priority,
    "LOSS": lambda view, now: _loss(view),
    "ACCURACY": lambda view, now: _accuracy(view),
    "SAMPLES/S": lambda view, now: _speed(view),
    "ARGS": lambda view, now: shlex.join(view.args) or "-",
    "TAGS": lambda view, now: ", ".join(view.tags) or "-",
}
LISTED = (
    *("ID", "NAME", "STATE", "SLOTS", "DONE", "PRIORITY", "OWNER"),
    *("AGE", "LOSS", "ACCURACY", "ARGS", "TAGS", "WHY"),
)
WATCHED = ("ID", "NAME", "STATE", "SLOTS", "PROGRESS", "LOSS", "SAMPLES/S", "AGE", "OWNER", "WHY")


def _cell(view: JobView | SearchView, column: str, now: float) -> object:
    if isinstance(view, SearchView):
        return _OF_SEARCHES[column](view, now) if column in _OF_SEARCHES else "-"
    return _OF_JOBS[column](view, now)


def jobs_text(
    views: Sequence[JobView | SearchView],
    columns: Sequence[str],
    now: float,
    *,
    width: int | None = None,
    letters: Mapping[str, str] | None = None,
) -> str:
    """Return the table of these jobs.

    Args:
        views: the jobs and searches, in the order of the rows.
        columns: heads of the columns, such as `LISTED` or `WATCHED`.
        now: the time, seconds since the epoch.
        width: columns of the terminal, into which the table is made to fit: columns without a value go first, then
            those of `DROPPED`. WHY is a sentence below its job then. None for the whole table, the same for any
            terminal.
        letters: the letter of each job in a bar of slots, for a first column.
    """
    rows = [[_cell(view, column, now) for column in columns] for view in views]
    explained = False
    if width is not None:
        there = [
            at
            for at, column in enumerate(columns)
            if column == "ID" or (column != "WHY" and {row[at] for row in rows} != {"-"})
        ]
        explained = "WHY" in columns
        columns, rows = [columns[at] for at in there], [[row[at] for at in there] for row in rows]
    if letters is not None:
        columns = ["", *columns]
        rows = [[letters.get(view.id, ""), *row] for view, row in zip(views, rows, strict=True)]
    table = text_table(columns, rows, width=width, dropped=DROPPED)
    return with_sentences(table, [_why(view) for view in views], width) if explained and width else table


def changes_text(before: JobView, after: JobView) -> str:
    """Return the settings in which two views of a job differ: "priority 10000 (was 5000)". Notes are only named."""
    changed = []
    for name in JobPatch.__struct_fields__:
        old, new = (getattr(view, name) for view in (before, after))
        if isinstance(new, tuple):
            old, new = ", ".join(old) or "none", ", ".join(new) or "none"
        if old != new:
            changed.append("notes" if name == "notes" else f"{name} {new or 'none'} (was {old or 'none'})")
    return ", ".join(changed) or "nothing, it had these settings already"


def sheet(
    view: JobView,
    now: float,
    *,
    workers: Sequence[Mapping[str, Any]] = (),
    checkpoints: Sequence[Mapping[str, Any]] = (),
    width: int = 100,
) -> str:
    """Return everything about a job, a line or some for each value that it has.

    Args:
        view: the job.
        now: the time, seconds since the epoch.
        workers: its running workers, as `Job.workers` returns them.
        checkpoints: its checkpoints, as `Job.checkpoints` returns them.
        width: columns of the terminal. The paths and the message about a failure are not wrapped.
    """
    slots = "" if view.state.final else f", {view.slots} of at most {view.usable_slots} slots"
    lines = [f"Job {view.id} ({one_line(view.name)}): {view.state.word}{slots}."]
    for label, text, as_it_is in _facts(view, now, workers, checkpoints):
        for number, line in enumerate(text.splitlines()):
            parts = [line] if as_it_is else textwrap.wrap(line, max(20, width - _LABEL - 2)) or [""]
            for at, part in enumerate(parts):
                lines.append(f"  {label if not number and not at else '':<{_LABEL}}{part}".rstrip())
    return "\n".join(lines)


def _facts(
    view: JobView, now: float, workers: Sequence[Mapping[str, Any]], checkpoints: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str, bool]]:
    """Return the label, the text and whether it stays unwrapped, for each fact that has a text."""
    failed = view.state in (JobState.FAILED, JobState.ERROR)
    speed = _speed(view)
    sizes = [f"{view.slots if not view.state.final else 0} held", f"at most {view.max_workers}"]
    sizes += [f"at least {view.min_workers}"] if view.min_workers > 1 else []
    sizes += [f"{view.slots_per_unit} at a time"] if view.slots_per_unit > 1 else []
    bits = f"{view.mode}, seed {view.seed}" + (f", {view.shards} shards" if view.shards else "")
    wrapped = (
        ("State", f"{view.state.shown} since {stamp(view.state_since)} ({duration(now - view.state_since)})"),
        ("Why", "" if failed else why_words(view)),
        ("Computed", "" if view.reason is None or view.state.final else view.reason.details),
        ("Progress", progress_words(view)),
        ("Not exact", "" if view.progress is None else view.progress.inexact),
        ("Speed", "" if speed == "-" else f"{speed} samples/s"),
        ("Slots", ", ".join(sizes)),
        ("Workers", _workers(workers)),
        ("Hosts", ", ".join(dict.fromkeys(str(worker["host"]) for worker in workers))),
        ("Group", view.instance_group),
        ("Priority", str(view.priority)),
        ("Owner", view.owner),
        ("Submitted", f"{stamp(view.created)} ({duration(now - view.created)} ago)"),
        ("Started", _after("waited", view.started, view.created)),
        ("Ended", _after("ran", view.ended, view.started)),
        ("Main", f"{view.main} ({view.framework})" if view.main else view.framework),
        ("Numbers", bits),
        ("Dataset", view.dataset),
        ("Model", view.model),
        ("Weights of", view.warm_start),
        ("Validates", view.validates),
        ("Experiment", experiment_words(view)),
        ("Tags", ", ".join(view.tags)),
        ("Notes", view.notes),
        ("Checkpoint", _checkpoint(checkpoints)),
    )
    whole = (
        ("Arguments", shlex.join(view.args)),
        ("Directory", view.result_dir),
        ("Error", view.message.strip() if failed else ""),
    )
    facts = [(*fact, False) for fact in wrapped] + [(*fact, True) for fact in whole]
    return [fact for fact in facts if fact[1]]


def _after(what: str, then: float | None, before: float | None) -> str:
    if then is None:
        return ""
    return stamp(then) + ("" if before is None else f" ({what} {duration(then - before)})")


def _workers(workers: Sequence[Mapping[str, Any]]) -> str:
    named = [f"{each['worker']} in slot {each['slot']} (pid {each['pid']})" for each in workers[:_MOST_WORKERS]]
    more = len(workers) - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])])


def _checkpoint(checkpoints: Sequence[Mapping[str, Any]]) -> str:
    if not checkpoints:
        return ""
    newest = max(checkpoints, key=lambda each: float(each["time"]))
    return f"{newest['name']} of {stamp(newest['time'])}, the newest of {len(checkpoints)}"
