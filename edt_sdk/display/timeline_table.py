"""Format the allocation timeline as text: the slots of each job over time, and the cause of each change.

A pure function of the rows that `/timeline` returns. One line per change: time since the first, slots of each job, a
letter per slot in the order of the jobs (lower case while the slot is being released), and the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Letters instead of shades: the bar can be read without colours and by a screen reader.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FREE = "·"
_WIDEST_BAR = 64


def timeline_table(
    rows: Sequence[Mapping[str, Any]],
    names: Mapping[str, str] | None = None,
    *,
    settled_only: bool = False,
) -> str:
    """Return a table of `rows`.

    Args:
        rows: `{"time", "slots": {job: n}, "leaving": {job: n}, "free", "capacity", "cause", "text", "settled"}`, times
            in seconds. `leaving` counts the slots that a job must release.
        names: job id → name. A job without a name is shown by its id.
        settled_only: leave out rows in which a slot was still in transfer between jobs. They are marked with `~`
            otherwise.
    """
    shown = [row for row in rows if row.get("settled", True) or not settled_only]
    if not shown:
        return "No slot has been given to a job yet."
    jobs = list(dict.fromkeys(job for row in shown for job, held in row["slots"].items() if held or len(shown) == 1))
    labels = _labels(jobs, names or {})
    # The first of all rows and not of the shown rows, so that a time means the same with `settled_only`.
    start = rows[0]["time"]
    bars = [_bar(row, jobs) for row in shown]
    bar_width = max(len("slots"), *(len(bar) for bar in bars))
    head = ["     time", *labels, "free", f"{'slots':<{bar_width}}", "cause"]
    lines = ["  ".join(head)]
    for row, bar in zip(shown, bars, strict=True):
        counts = [f"{row['slots'].get(job) or '-':>{len(label)}}" for job, label in zip(jobs, labels, strict=True)]
        mark = " " if row.get("settled", True) else "~"
        cells = [f"{mark}{_since(row['time'] - start):>8}", *counts, f"{row['free']:>4}", f"{bar:<{bar_width}}"]
        lines.append("  ".join([*cells, str(row.get("text") or row.get("cause") or "")]).rstrip())
    return "\n".join(lines)


def _labels(jobs: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return column heads: letter and name, cut to stay narrow. Equal names get the end of the id."""
    called = [names.get(job) or job for job in jobs]
    labels = []
    for at, (job, name) in enumerate(zip(jobs, called, strict=True)):
        twice = called.count(name) > 1 and name != job
        name = f"{name[:10]}…{job[-4:]}" if twice else name
        labels.append(f"{_letter(at)} {name if len(name) <= 16 else name[:15] + '…'}")
    return labels


def _letter(at: int) -> str:
    return _LETTERS[at % len(_LETTERS)]


def _bar(row: Mapping[str, Any], jobs: Sequence[str]) -> str:
    bar = ""
    for at, job in enumerate(jobs):
        held, leaving = int(row["slots"].get(job, 0)), int(row.get("leaving", {}).get(job, 0))
        bar += _letter(at) * (held - leaving) + _letter(at).lower() * leaving
    bar += _FREE * int(row["free"])
    # A longer bar would wrap. The columns have its numbers anyway.
    return bar if len(bar) <= _WIDEST_BAR else ""


def _since(seconds: float) -> str:
    """Format like 0:07.4 below an hour, 1:02:09 above."""
    # Rounded before the split: 59.96 s is 1:00.0 and not 0:60.0.
    tenths = round(max(0.0, seconds) * 10)
    minutes, rest = divmod(tenths, 600)
    if minutes < 60:
        return f"{minutes}:{rest // 10:02d}.{rest % 10}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest // 10:02d}"
