"""Format figures, sizes and times, in the same way on every surface of the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


def lost_words(train: Sequence[Mapping[str, Any]]) -> str:
    """Return how many points of a training have no loss, with advice, or "" for none."""
    lost = sum(1 for point in train if point["loss"] is None)
    if not lost:
        return ""
    return (
        f"{lost:,} of {len(train):,} training points are no numbers (NaN or infinite): try a smaller learning rate or "
        'clip_grad_norm; train(..., on_nan="stop") ends a training at the first.'
    )


def figures(loss: float | None, accuracy: float | None, metrics: Mapping[str, float | None] | None = None) -> str:
    """Return the known figures, such as "loss 0.1234, accuracy 97.2 %", and further metrics."""
    known = []
    if loss is not None:
        known.append(f"loss {loss:.4g}")
    if accuracy is not None:
        known.append(f"accuracy {100 * accuracy:.1f} %")
    known += [f"{name} {value:.4g}" for name, value in (metrics or {}).items() if value is not None]
    return ", ".join(known) or "no figures"


def size(count: float) -> str:
    """Return a size in bytes such as "1.2 MB"."""
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if count < 1000:
            break
        count, unit = count / 1000, larger
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def duration(seconds: float) -> str:
    """Return a length of time in one unit: "45 s", "3 min", "2.5 h", "4 d"."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f}".removesuffix(".0") + " h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"


def stamp(seconds: float) -> str:
    """Return seconds since the epoch as "2026-11-21 14:02:31 CET", in this machine's time zone."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def zone() -> str:
    """Return the current name of this machine's time zone for people, such as "CET"."""
    return f"{datetime.now().astimezone():%Z}"


def clock(seconds: float) -> str:
    """Return seconds since the epoch as "14:02:31", in this machine's time zone."""
    return datetime.fromtimestamp(seconds).strftime("%H:%M:%S")
