"""Lay out the figures of several runs in one table, for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from edt_server.simulator.figures import Figures

HEAD = (
    *("policy", "mean JCT", "p50", "p99", "makespan", "GPU-hours", "restarts/job"),
    *("worst ρ", "ρ > 1", "decisions", "p50 ms", "p99 ms"),
)


def table(runs: Mapping[str, Figures]) -> str:
    """Return one line per run, times in seconds, and below it the jobs that could not be counted."""
    rows = [HEAD, *(_row(name, each) for name, each in runs.items())]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    lines = ["  ".join(map(_cell, row, widths, range(len(HEAD)))) for row in rows]
    for name, each in runs.items():
        if each.unfinished:
            lines.append(f"{name}: {each.unfinished} of {each.jobs} jobs never ended; the figures are of the others.")
    return "\n".join(line.rstrip() for line in lines)


def _row(name: str, each: Figures) -> tuple[str, ...]:
    told = (
        f"{each.mean:.0f}",
        f"{each.p50:.0f}",
        f"{each.p99:.0f}",
        f"{each.makespan:.0f}",
        f"{each.gpu_hours:.1f}" if each.gpu_hours >= 10 else f"{each.gpu_hours:.3g}",
        f"{each.restarts:.1f}",
        f"{each.worst_rho:.2f}",
        f"{100 * each.unfair:.1f} %",
    )
    timed = (f"{1000 * each.latency_p50:.3f}", f"{1000 * each.latency_p99:.3f}") if each.latency_max else ("-", "-")
    return (name, *told, str(each.decisions) if each.decisions else "-", *timed)


def _cell(text: str, width: int, at: int) -> str:
    return f"{text:<{width}}" if at == 0 else f"{text:>{width}}"
