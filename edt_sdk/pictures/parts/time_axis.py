"""An x axis of times of day, or of times since a start."""

from __future__ import annotations

from edt_sdk.pictures.parts import scales
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.scales import Frame

_LAST = 2.5e11  # the largest seconds since the epoch that a date can be computed for


def time_axis(frame: Frame, look: Look, *, clock: bool) -> list[str]:
    """Draw the axis below a frame. With `clock` x is seconds since the epoch, and the title names the time zone."""
    wide = frame.right - frame.left
    if clock and frame.x0 >= 0 and frame.x1 < _LAST:
        values = scales.clock_ticks(frame.x0, frame.x1, max(3, int(wide // 68)), look.zone)
        return scales.x_axis(frame, look, values, scales.clock_title(frame.x1, look.zone, wide / 4))
    scale, unit = scales.unit_of(frame.x1 - frame.x0)
    rounded = scales.ticks(0, max((frame.x1 - frame.x0) / scale, 1e-9), max(3, int(wide // 70)))
    return scales.x_axis(frame, look, [(frame.x0 + value * scale, f"{value:.4g} {unit}") for value in rounded], "")
