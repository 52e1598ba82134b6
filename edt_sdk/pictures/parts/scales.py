"""Scales from values to pixels, and round tick values of axes: numbers, durations, and times of day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from edt_sdk.pictures.parts.lettering import width_of
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import SMALL, line, words

_MOST = 1e150  # beyond it differences overflow
NARROWEST = 1e-300  # a smaller range has no round numbers
_LAST = 2.5e11  # the largest seconds since the epoch that a date can be computed for
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
_DAY = 86400.0
_DAYS = (1, 2, 7, 14, 28, 91, 182, 364)
# A unit in seconds, its name, and the smallest count for which it is used.
_UNITS = ((_DAY, "d", 3), (3600.0, "h", 3), (60.0, "min", 6), (1.0, "s", 0))


@dataclass(frozen=True, slots=True)
class Frame:
    """The area of the data: x from `x0` to `x1` between `left` and `right`, y from `y0` to `y1` from `bottom` to `top`.

    Pixels grow to the right and downwards. With `log` the y axis is logarithmic, and `y0` is above 0.
    """

    left: float
    top: float
    right: float
    bottom: float
    x0: float
    x1: float
    y0: float
    y1: float
    log: bool = False

    @property
    def across(self) -> tuple[float, float, float, float]:
        """The ends of the x axis: left and right in pixels, and the values there."""
        return self.left, self.right, self.x0, self.x1

    def x(self, value: float) -> float:
        """Return the pixel of a value, at the edge for a value outside."""
        return self.left + share(value, self.x0, self.x1) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return the pixel of a value on the y axis."""
        if self.log:
            # Without the lower limit a loss of 0 would have no logarithm.
            at = share(math.log(max(value, self.y0)), math.log(self.y0), math.log(self.y1))
            return self.bottom - at * (self.bottom - self.top)
        return self.bottom - share(value, self.y0, self.y1) * (self.bottom - self.top)


def share(value: float, low: float = 0.0, high: float = 1.0) -> float:
    """Return where a value lies from `low` (0) to `high` (1). NaN lies at `low`."""
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0


def bounded(value: float) -> float:
    """Clamp a number to a range in which differences do not overflow."""
    return min(_MOST, max(-_MOST, value))


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about `about` round numbers from `low` to `high` > `low`, none where these are too close for any."""
    least = (high - low) / about
    if least < NARROWEST:
        return []
    power = 10.0 ** math.floor(math.log10(least))
    # The tolerance accepts a round step that the floating-point power made slightly too small.
    step = next(base * power for base in (1, 2, 5, 10) if least <= base * power * (1 + 1e-9))
    # Multiples and not a running sum, in which rounding errors would add up.
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def whole_ticks(most: float, about: int) -> list[tuple[float, str]]:
    """Return whole round numbers from 0 to `most` with their labels."""
    return [(value, f"{value:g}") for value in ticks(0, most, about) if value == int(value)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten from `low` > 0 to `high`, with 2 and 5 times these where there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    bases = (1, 2, 5) if last - first <= 3 else (1,)
    apart = max(1, (last - first) // 8)
    found = [base * 10.0**power for power in range(first, last + 1, apart) for base in bases]
    return [value for value in found if low <= value <= high]


_LETTERS = ((1e12, ""), (1e9, "G"), (1e6, "M"), (1e4, "k"), (0.0, ""))


def number(value: float) -> str:
    """Format a number in few characters: 0.125, 12.5 k, 3 M, 2e+20."""
    return _with_letter(value, _letter(abs(value)))


def numbers(values: Sequence[float]) -> list[tuple[float, str]]:
    """Pair values with their labels, all in one unit: 0, 5 k, 10 k."""
    letter = _letter(max(map(abs, values), default=0.0))
    return [(value, _with_letter(value, letter)) for value in values]


def _letter(size: float) -> str:
    return next(letter for least, letter in _LETTERS if size >= least)


def _with_letter(value: float, letter: str) -> str:
    scale = {"G": 1e9, "M": 1e6, "k": 1e3}.get(letter)
    return f"{value:.4g}" if scale is None or not value else f"{value / scale:.4g} {letter}"


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the unit for times up to `seconds`, as its length in seconds and its name."""
    return next(((scale, name) for scale, name, least in _UNITS if seconds >= least * scale), (1.0, "s"))


def span(seconds: float) -> str:
    """Format a duration: 4.2 s, 12 min, 3.5 h, 6 days."""
    scale, name = unit_of(seconds)
    return f"{seconds / scale:.3g} {'days' if name == 'd' else name}"


def clock_ticks(start: float, end: float, most: int, zone: tzinfo) -> list[tuple[float, str]]:
    """Return at most `most` round times of day from `start` to `end` (seconds since the epoch) with their labels.

    Steps of a day or more start at midnight in `zone`. The label of midnight is the date.
    """
    wide = max(end - start, 1e-3)
    step = next((float(s) for s in _SECONDS if wide / s <= most), None)
    if step is not None:
        return _times(start, end, step, zone)
    days = next((d for d in _DAYS if wide / (d * _DAY) <= most), math.ceil(wide / _DAY / most))
    return _dates(start, end, days, zone)


def _times(start: float, end: float, step: float, zone: tzinfo) -> list[tuple[float, str]]:
    first = datetime.fromtimestamp(start, zone)
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    seconds = (first - midnight).total_seconds()
    # Counted from local midnight: zones are shifted by half and quarter hours, where hours since the epoch are not
    # round.
    at = start - seconds + math.ceil(seconds / step) * step
    found = []
    while at <= end:
        there = datetime.fromtimestamp(at, zone)
        found.append((at, _time_name(there, step)))
        at += step
    return found


def _time_name(there: datetime, step: float) -> str:
    if step >= 3600 and (there.hour, there.minute) == (0, 0):
        return _date_name(there)
    return there.strftime("%H:%M:%S" if step < 60 else "%H:%M")


def _dates(start: float, end: float, days: int, zone: tzinfo) -> list[tuple[float, str]]:
    day = datetime.fromtimestamp(start, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    found = []
    while (at := day.timestamp()) <= end:
        if at >= start:
            found.append((at, _date_name(day) if days < 182 else f"{day:%b %Y}"))
            # The zone's own calendar: a day with a change of the clocks has 23 or 25 hours.
            day += timedelta(days=days)
        else:
            day += timedelta(days=1)
    return found


def _date_name(there: datetime) -> str:
    return f"{there.day} {there:%b}"


def clock_title(at: float, zone: tzinfo, room: float) -> str:
    """Return the title of a time axis, such as "time, Europe/Berlin", shortened to fit `room` pixels."""
    short = datetime.fromtimestamp(at, zone).tzname() or ""
    name = getattr(zone, "key", None) or short
    return next((text for text in (f"time, {name}", name) if width_of(text, SMALL) <= room), short)


def y_axis(frame: Frame, look: Look, values: Sequence[tuple[float, str]]) -> list[str]:
    """Draw grid lines with labels to the left. A line too close to the one before is left out."""
    parts: list[str] = []
    last = math.inf
    for value, name in values:
        y = frame.y(value)
        if last - y < 14:
            continue
        last = y
        parts.append(line(frame.left, y, frame.right, y, look.ink.line, opacity="0.3"))
        parts.append(words(frame.left - 6, y + 4, name, look.ink.text, anchor="end"))
    return parts


def x_axis(frame: Frame, look: Look, values: Sequence[tuple[float, str]], title: str) -> list[str]:
    """Draw the lower edge, its labels without overlap, and the title at its end."""
    ink = look.ink
    y = frame.bottom
    parts = [line(frame.left, y, frame.right, y, ink.line)]
    last = -math.inf
    end = frame.right - (width_of(title, SMALL) + 10 if title else 0)
    for value, name in values:
        x, half = frame.x(value), width_of(name, SMALL) / 2
        parts.append(line(x, y, x, y + 4, ink.line))
        if x - half < max(last + 6, 2) or x + half > min(end, look.width - 2):
            continue
        parts.append(words(x, y + 16, name, ink.text, anchor="middle"))
        last = x + half
    if title:
        parts.append(words(frame.right, y + 16, title, ink.soft, anchor="end"))
    return parts


def time_axis(frame: Frame, look: Look, *, clock: bool) -> list[str]:
    """Draw an x axis of times. With `clock` x is seconds since the epoch, and the title names the time zone."""
    wide = frame.right - frame.left
    if clock and frame.x0 >= 0 and frame.x1 < _LAST:
        values = clock_ticks(frame.x0, frame.x1, max(3, int(wide // 68)), look.zone)
        return x_axis(frame, look, values, clock_title(frame.x1, look.zone, wide / 4))
    scale, unit = unit_of(frame.x1 - frame.x0)
    rounded = ticks(0, max((frame.x1 - frame.x0) / scale, 1e-9), max(3, int(wide // 70)))
    return x_axis(frame, look, [(frame.x0 + value * scale, f"{value:.4g} {unit}") for value in rounded], "")
