"""Figures, sizes and moments as people read them; one way to say each, on every surface of the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


def lost_words(train: Sequence[Mapping[str, Any]]) -> str:
    """How many points of a training have no loss, and what to do; "" for none."""
    lost = sum(1 for point in train if point["loss"] is None)
    if not lost:
        return ""
    return (
        f"{lost:,} of {len(train):,} training points are no numbers (NaN or infinite): try a smaller learning rate or "
        'clip_grad_norm; train(..., on_nan="stop") ends a training at the first.'
    )


def figures(loss: float | None, accuracy: float | None) -> str:
    """What is known of: loss 0.1234, accuracy 97.2 %."""
    known = []
    if loss is not None:
        known.append(f"loss {loss:.4g}")
    if accuracy is not None:
        known.append(f"accuracy {100 * accuracy:.1f} %")
    return ", ".join(known) or "no figures"


def size(count: float) -> str:
    """Bytes as people say them: "1.2 MB"."""
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if count < 1000:
            break
        count, unit = count / 1000, larger
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def stamp(seconds: float) -> str:
    """Seconds since the epoch as "2026-11-21 14:02:31 CET", on this machine's clock; read later, it needs its date."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def zone() -> str:
    """What this machine's clock is called now, for people: "CET"."""
    return f"{datetime.now().astimezone():%Z}"


def clock(seconds: float) -> str:
    """Seconds since the epoch as "14:02:31", on this machine's clock."""
    return datetime.fromtimestamp(seconds).strftime("%H:%M:%S")
