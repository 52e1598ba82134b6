"""Present the machine and its jobs as one page of a terminal, for `edt top`. A pure function of what the server said.

The slots are the bars of `cluster_view`, and the jobs are the table of `jobs_text`.
"""

from __future__ import annotations

from collections.abc import Sequence

from edt_sdk.display.cluster_view import Answer, letters_of, slot_lines
from edt_sdk.display.jobs_text import WATCHED, jobs_text
from edt_sdk.formatting.number_words import clock
from edt_sdk.schemas.job import JobView
from edt_sdk.schemas.search.views import SearchView

# The page is about the jobs that run. Of those that have ended it shows the newest.
_LAST_ENDED = 5


def top_lines(
    answer: Answer,
    views: Sequence[JobView | SearchView],
    now: float,
    *,
    width: int,
    height: int | None = None,
    trouble: str = "",
) -> list[str]:
    """Return the lines of the page, none wider than `width`.

    Args:
        answer: the server's answer about the machine, see `Cluster`.
        views: jobs and searches, newest first. Those that have not ended are shown first.
        now: when both were fetched, seconds since the epoch.
        width: columns of the terminal.
        height: lines of the terminal, None for as many as there are jobs.
        trouble: why there is nothing newer.
    """
    letters = letters_of(answer)
    live = [view for view in views if not view.state.final]
    waiting = sum(1 for view in live if not view.slots)
    free = sum(group["free"] for group in answer["resource_groups"])
    wanting = sum(1 for view in live if isinstance(view, JobView) and view.slots and view.reason)
    head = f"edt top {clock(now)}   slots: {len(answer['slots'])}, {free} free"
    head += f"   jobs: {len(live) - waiting} with slots, {waiting} waiting, {wanting} wanting more   q quits"
    lines = [head]
    if trouble:
        lines.append(f"Not renewed since then: {' '.join(trouble.split())}")
    lines += slot_lines(answer, letters)
    ended = [view for view in views if view.state.final]
    table = jobs_text([*live, *ended[:_LAST_ENDED]], WATCHED, now, width=width, letters=letters)
    rows = table.splitlines() if views else ["No jobs."]
    if len(ended) > _LAST_ENDED:
        rows.append(f"… and {len(ended) - _LAST_ENDED} that ended before: `edt list` shows them")
    lines += ["", *rows]
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], f"… and {hidden} more lines; a larger window shows them"]
    return [line if len(line) <= width else line[: max(0, width - 1)] + "…" for line in lines]
