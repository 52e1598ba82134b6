"""Panels one below the other over one x axis: the live figure's picture where there is no matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edt_sdk.pictures.parts.look import QUIET, TEXT, Look
from edt_sdk.pictures.parts.paper import document, line, tag, words
from edt_sdk.pictures.parts.scales import Frame, ticks


@dataclass(frozen=True, slots=True)
class PanelLine:
    """One line of a panel: its name ("" for none), its (x, y) points, and whether it is faint or has dots."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    faint: bool = False
    dots: bool = False


def panels(content: Sequence[tuple[str, Sequence[PanelLine]]], x_name: str, *, width: int, height: int) -> str:
    """Draw panels of equal height, one below the other, over one x axis that begins at 0."""
    most = max([1.0, *(x for _, lines in content for each in lines for x, _ in each.points)])
    tall = (height - 40) / max(1, len(content))
    parts: list[str] = []
    for number, (title, lines) in enumerate(content):
        values = [y for each in lines for _, y in each.points]
        low, high = min([0.0, *values]), max([0.0, *values])
        top, bottom = number * tall + 44, (number + 1) * tall - 34
        frame = Frame(80, top, width - 20, bottom, 0, most, low, low + ((high - low) * 1.05 or 1.0))
        parts.append(words(width / 2, number * tall + 26, title, TEXT, size=22, anchor="middle"))
        parts += _axes(frame)
        parts += [part for each in lines for part in _drawn(each, frame)]
        parts += _legend([each for each in lines if each.name and each.points], frame)
    parts.append(_text(width / 2, height - 6, x_name, "middle"))
    return document(Look(width=width), height, " ".join(f"{title}." for title, _ in content), parts)


def _axes(frame: Frame) -> Iterator[str]:
    for value in ticks(frame.y0, frame.y1):
        y = frame.y(value)
        yield line(frame.left, y, frame.right, y, QUIET, opacity="0.3")
        yield _text(frame.left - 8, y + 5, f"{value:.4g}", "end")
    for value in ticks(0, frame.x1):
        yield _text(frame.x(value), frame.bottom + 20, f"{value:.6g}", "middle")
    yield line(frame.left, frame.bottom, frame.right, frame.bottom, QUIET)


def _drawn(drawn: PanelLine, frame: Frame) -> Iterator[str]:
    spots = [(frame.x(x), frame.y(y)) for x, y in drawn.points]
    wide, opacity = (1.0, "0.4") if drawn.faint else (2.5, None)
    if len(spots) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        yield tag("polyline", points=path, fill="none", stroke=drawn.colour, stroke_width=wide, opacity=opacity)
    if drawn.dots:
        yield from (tag("circle", cx=x, cy=y, r=5, fill=drawn.colour) for x, y in spots)


def _legend(lines: Sequence[PanelLine], frame: Frame) -> Iterator[str]:
    left = frame.right - 170
    for number, each in enumerate(lines):
        y = frame.top + 12 + 22 * number
        yield line(left, y, left + 25, y, each.colour, wide=3)
        yield _text(left + 32, y + 5, each.name, "start")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return words(x, y, text, TEXT, size=16, anchor=anchor)
