"""Draw the server's pictures as text for a terminal, with the same figures. Pure.

The description of the picture (`Picture.says`) stands below it. Times are in `zone`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

from edt_sdk.display.card import done_share
from edt_sdk.display.readings import Metrics, Timeline
from edt_sdk.formatting.control_characters import one_line
from edt_sdk.formatting.tables import text_table
from edt_sdk.formatting.text_chart import NO_NUMBER, SPOT, bar, blocks, chart, levels, over_time
from edt_sdk.pictures.efficiency import Efficiency, MeasuredSpeed
from edt_sdk.pictures.parts.scales import number, span
from edt_sdk.schemas.job import JobView

_HEIGHT = 14
_NAME = 20
_MOST_JOBS = 24
_FREE = "free"


def loss_text(metrics: Metrics, *, width: int) -> str:
    """Draw the training loss over updates, and the validations. "" before the first update."""
    train = [(float(point["update"] + 1), point["loss"]) for point in metrics.train]
    test = [(float(point["update"] + 1), point["loss"]) for point in metrics.test if point.get("drawn", True)]
    lines = chart(train, test, width=width, height=_HEIGHT, x_name="updates")
    if not lines:
        return ""
    legend = ["⠉⠒⠤⣀ training"]
    legend += [f"{SPOT} validation"] if test else []
    legend += [f"{NO_NUMBER} not a number"] if any(loss is None for _, loss in train) else []
    return "\n".join(["loss", *lines, "", "  ".join(legend)])


def spark_text(view: JobView, metrics: Metrics, *, width: int) -> str:
    """Draw a job in three lines: its loss, its progress and its slots."""
    wide = max(10, min(60, width - 32))
    losses = [point["loss"] for point in metrics.train]
    progress = view.progress
    updates, total = (progress.update, progress.total_updates) if progress is not None else (0, 0)
    lines = []
    if known := [loss for loss in losses if loss is not None]:
        shown = blocks(_few(losses, wide), min(known), max(known))
        lines.append(f"loss   {shown:<{wide + 2}} {number(known[-1])}")
    lines.append(f"done   {_in_frame(bar(done_share(view), wide))} {updates} of {total or '?'} updates")
    lines.append(f"slots  {_in_frame(bar(view.slots / view.usable_slots, wide))} {view.slots} of {view.usable_slots}")
    return "\n".join(lines)


def slots_over_time(timeline: Timeline, *, width: int, zone: tzinfo | None = None, mine: str = "") -> str:
    """Draw a row per job, as high as its share of all slots. "" when no job held any.

    `zone` is that of the times below, by default the machine's. The job `mine` comes first, with a mark.
    """
    if not timeline.rows:
        return ""
    rows = [(row["time"], {**row["slots"], _FREE: row["free"]}) for row in timeline.rows]
    columns = max(10, width - _NAME - 12)
    held = over_time(rows, timeline.until, columns)
    # The free slots are counted as if they were a job, so that both have the same time steps.
    free = held.pop(_FREE)
    most = sorted(held, key=lambda job: -sum(held[job]))
    jobs = [*([mine] if mine in held else []), *(job for job in most if job != mine)]
    shown, rest = jobs[:_MOST_JOBS], jobs[_MOST_JOBS:]
    now = timeline.rows[-1]["slots"]
    # A machine can have no slots, and heights are shares of this number.
    whole = max(1, timeline.capacity)
    lines = [
        _row(("▸ " if job == mine else "  ") + timeline.names.get(job, job), held[job], now.get(job, 0), whole)
        for job in shown
    ]
    if rest:
        together = [sum(values) for values in zip(*(held[job] for job in rest), strict=True)]
        last = sum(now.get(job, 0) for job in rest)
        lines.append(_row(f"  {len(rest)} more jobs", together, last, whole))
    lines.append(_row("  free", free, timeline.rows[-1]["free"], whole))
    return "\n".join(["slots", *lines, *_times(timeline.rows[0]["time"], timeline.until, columns, zone)])


def efficiency_text(metrics: Metrics, *, width: int) -> str:
    """Return samples per second and efficiency for each number of workers, "" for none."""
    known = [speed for speed in metrics.speeds if speed["seconds"] > 0]
    measured = [MeasuredSpeed(s["workers"], s["samples"] / s["seconds"], s["seconds"]) for s in known]
    efficiency = Efficiency("", tuple(measured))
    if not (speeds := efficiency.usable):
        return ""
    most = max(speed.rate for speed in speeds)
    wide = max(10, min(50, width - 62))
    rows = [
        (s.workers, bar(s.rate / most, wide), number(s.rate), f"{100 * efficiency.share(s):.0f} %", span(s.seconds))
        for s in speeds
    ]
    return text_table(("WORKERS", "", "SAMPLES PER SECOND", "OF IDEAL", "MEASURED OVER"), rows)


def shares_text(cluster: Mapping[str, Any], *, width: int) -> str:
    """Return what each instance group holds and is entitled to, "" where there is no group."""
    groups = [group for group in cluster["groups"] if group["held"] or group["entitled"] or group["own"]]
    if not groups:
        return ""
    whole = {each["name"]: max(1, each["slots"]) for each in cluster["resource_groups"]}
    wide = max(10, min(50, width - 60))
    rows = []
    for group in groups:
        slots = whole.get(group["resource_group"], 1)
        shown = _in_frame(bar(group["held"] / slots, wide))
        # Slots without an owner are no loan.
        loans = {"borrowed": sum(group["lenders"].values()), "lent": group["lent"]}
        exchanged = ", ".join(f"{count} {what}" for what, count in loans.items() if count)
        rows.append((group["name"], shown, f"{group['held']} of {slots}", group["entitled"], exchanged))
    return text_table(("GROUP", "", "HELD", "DUE", ""), rows)


def comparison_text(jobs: Sequence[tuple[JobView, Metrics]], *, width: int) -> str:
    """Draw the loss of each job as a row, all on the same scale. "" when none has a loss yet."""
    wide = max(10, min(60, width - _NAME - 38))
    # All curves share one scale. With a scale of their own, rows could not be compared.
    curves = [[point["loss"] for point in metrics.train] for _, metrics in jobs]
    known = [loss for curve in curves for loss in curve if loss is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    rows = [
        (_cut(view.name), blocks(_few(curve, wide), low, high), *_figures(curve), _figure(metrics.test_loss))
        for (view, metrics), curve in zip(jobs, curves, strict=True)
    ]
    scale = f"▁ is {number(low)}, █ is {number(high)}; from the first update to the last of each."
    return f"{text_table(('JOB', 'TRAINING LOSS', 'LAST', 'LEAST', 'VALIDATION'), rows)}\n{scale}"


def _figures(curve: Sequence[float | None]) -> tuple[str, str]:
    """Return the last and the least value."""
    known = [loss for loss in curve if loss is not None]
    return (_figure(curve[-1]), _figure(min(known))) if known else ("-", "-")


def _figure(loss: float | None) -> str:
    return "-" if loss is None else number(loss)


def _few(values: Sequence[float | None], most: int) -> list[float | None]:
    """Reduce to at most `most` values: the mean of each interval, None for one without a number."""
    if len(values) <= most:
        return list(values)
    found: list[float | None] = []
    for at in range(most):
        part = values[at * len(values) // most : (at + 1) * len(values) // most]
        known = [value for value in part if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found


def _row(name: str, held: Sequence[float], now: float, whole: int) -> str:
    return f"{_cut(name):<{_NAME}} {_in_frame(levels([value / whole for value in held]))} {now:g}"


def _times(start: float, until: float, columns: int, zone: tzinfo | None) -> list[str]:
    first, last = (datetime.fromtimestamp(at).astimezone(zone) for at in (start, until))
    # Over midnight a time of day alone would be ambiguous.
    form = "%H:%M:%S" if first.date() == last.date() else "%d %b %H:%M"
    begins, ends = first.strftime(form), last.strftime(form) + f" {last.tzname()}"
    return [f"{'':<{_NAME}}  {begins}{ends:>{max(len(ends) + 1, columns - len(begins))}}"]


def _in_frame(text: str) -> str:
    return f"▕{text}▏"


def _cut(name: str) -> str:
    name = one_line(name)
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
