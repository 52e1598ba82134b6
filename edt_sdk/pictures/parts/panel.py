"""Panels one below the other over one x axis: the live figure's picture where there is no matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from edt_sdk.pictures.parts.boxes import bare
from edt_sdk.pictures.parts.look import QUIET, TEXT
from edt_sdk.pictures.parts.scales import ticks


@dataclass(frozen=True, slots=True)
class PanelLine:
    """One line of a panel: its name ("" for none), its (x, y) points, and whether it is faint or has dots."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    faint: bool = False
    dots: bool = False


def panels(
    content: Sequence[tuple[str, Sequence[PanelLine]]], x_name: str, *, width: int = 1200, height: int = 800
) -> str:
    """Draw panels of equal height, one below the other, over one x axis that begins at 0."""
    most = max([1.0, *(x for _, lines in content for line in lines for x, _ in line.points)])
    tall = (height - 40) / max(1, len(content))
    parts: list[str] = []
    for number, (title, lines) in enumerate(content):
        values = [y for line in lines for _, y in line.points]
        low, high = min([0.0, *values]), max([0.0, *values])
        frame = _Frame(
            most, low, low + ((high - low) * 1.05 or 1.0), number * tall + 44, (number + 1) * tall - 34, width
        )
        parts.append(_text(width / 2, number * tall + 26, title, size=22, anchor="middle"))
        parts += _axes(frame)
        parts += [part for line in lines for part in _drawn(line, frame)]
        parts += _legend([line for line in lines if line.name and line.points], frame)
    parts.append(_text(width / 2, height - 6, x_name, anchor="middle"))
    return bare(width, height, parts)


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where a panel's data lie: x from 0 to `most`, y from `low` to `high`, on the picture from `top` to `bottom`."""

    most: float
    low: float
    high: float
    top: float
    bottom: float
    width: int
    left: int = 80
    right: int = 20

    def x(self, value: float) -> float:
        return self.left + value / self.most * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        return self.bottom - (value - self.low) / (self.high - self.low) * (self.bottom - self.top)


def _axes(frame: _Frame) -> Iterator[str]:
    ends = f'x1="{frame.left}" x2="{frame.width - frame.right}" stroke="{QUIET}"'
    for value in ticks(frame.low, frame.high):
        y = frame.y(value)
        yield f'<line {ends} y1="{y:.1f}" y2="{y:.1f}" opacity="0.3"/>'
        yield _text(frame.left - 8, y + 5, f"{value:.4g}", anchor="end")
    for value in ticks(0, frame.most):
        yield _text(frame.x(value), frame.bottom + 20, f"{value:.6g}", anchor="middle")
    yield f'<line {ends} y1="{frame.bottom:.1f}" y2="{frame.bottom:.1f}"/>'


def _drawn(line: PanelLine, frame: _Frame) -> Iterator[str]:
    spots = [(frame.x(x), frame.y(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    look = 'stroke-width="1" opacity="0.4"' if line.faint else 'stroke-width="2.5"'
    if len(spots) > 1:
        yield f'<polyline points="{path}" fill="none" stroke="{line.colour}" {look}/>'
    if line.dots:
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{line.colour}"/>' for x, y in spots)


def _legend(lines: Sequence[PanelLine], frame: _Frame) -> Iterator[str]:
    left = frame.width - 190
    for number, line in enumerate(lines):
        y = frame.top + 12 + 22 * number
        yield f'<line x1="{left}" y1="{y}" x2="{left + 25}" y2="{y}" stroke="{line.colour}" stroke-width="3"/>'
        yield _text(left + 32, y + 5, line.name)


def _text(x: float, y: float, text: str, *, size: int = 16, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="sans-serif" font-size="{size}" fill="{TEXT}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
