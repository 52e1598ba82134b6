"""Write SVG as text: numbers, elements, a document with a description. It does not know what is drawn."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from xml.sax.saxutils import quoteattr

from edt_sdk.pictures.parts.lettering import clean, shortened, width_of, wrapped
from edt_sdk.pictures.parts.look import Look

FONT = "system-ui, 'DejaVu Sans', sans-serif"
SIZE, SMALL = 12.0, 11.0


def num(value: float) -> str:
    """Format a coordinate with at most one decimal."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def document(
    look: Look,
    height: float,
    says: str,
    parts: Iterable[str],
    *,
    defs: str = "",
    across: tuple[float, float, float, float] | None = None,
) -> str:
    """Return a complete SVG document of the look's width.

    Args:
        look: width and theme.
        height: pixels.
        says: the picture in one sentence, for screen readers.
        parts: elements in drawing order.
        defs: patterns and clips that the parts refer to.
        across: left, right, first and last of the x axis, in pixels and in values. Front ends read them from
            `data-across` to let a person choose a part of the axis.
    """
    place = "" if across is None else f' data-across="{" ".join(f"{value:.15g}" for value in across)}"'
    sentence = clean(says)
    size = f"{look.width} {num(height)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{look.width}" height="{num(height)}" viewBox="0 0 {size}" '
        f'role="img" aria-label={quoteattr(sentence)} font-family="{FONT}"{place}>'
        f"<title>{escape(sentence)}</title>{f'<defs>{defs}</defs>' if defs else ''}{''.join(parts)}</svg>"
    )


def image(svg: str, says: str) -> str:
    """Return an `<img>` of `svg` with `says` as its text, "" for an empty `svg`. Notebooks strip inline `<svg>`."""
    if not svg:
        return ""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(says, quote=True)}"/>'


def hatch(name: str) -> str:
    """Return the definition of a pattern of white stripes, `url(#name)`."""
    return (
        f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="2.5" height="6" fill="#fff" opacity="0.6"/></pattern>'
    )


def tag(name: str, content: str = "", /, **attributes: str | float | None) -> str:
    """Return an element. `stroke_width` means stroke-width, numbers are coordinates, None is left out."""
    # A tenth of a pixel is exact enough, and short numbers keep a picture small (028).
    told_as = (
        f' {key.replace("_", "-")}="{value if isinstance(value, str) else num(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{''.join(told_as)}" + (f">{content}</{name}>" if content else "/>")


def words(
    x: float, y: float, text: str, fill: str, *, size: float = SMALL, anchor: str = "start", bold: bool = False
) -> str:
    """Draw text with its baseline at y. `anchor` is start, middle or end."""
    side, weight = None if anchor == "start" else anchor, "600" if bold else None
    said = escape(clean(text))
    return tag("text", said, x=x, y=y, font_size=size, fill=fill, text_anchor=side, font_weight=weight) if said else ""


def line(
    x1: float, y1: float, x2: float, y2: float, stroke: str, *, wide: float | None = None, opacity: str | None = None
) -> str:
    """Draw a straight line, by default one pixel wide."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_width=wide, opacity=opacity)


def moved(element: str, x: float, y: float) -> str:
    """Move an element that is drawn around 0, 0."""
    return tag("g", element, transform=f"translate({num(x)} {num(y)})")


def told(element: str, title: str) -> str:
    """Give an element a tooltip, which screen readers read too."""
    return f"<g><title>{escape(clean(title))}</title>{element}</g>"


def notice(look: Look, sentence: str) -> str:
    """Draw a sentence in a frame, for a picture that has nothing to show."""
    ink, height = look.ink, 96
    lines = wrapped(sentence, look.width - 32, SIZE)
    first = height / 2 - 8 * (len(lines) - 1) + 4
    box = {"x": 0.5, "y": 0.5, "width": look.width - 1, "height": height - 1}
    frame = tag("rect", **box, rx=4, fill="none", stroke=ink.line, stroke_dasharray="4 4", opacity="0.7")
    middle = look.width / 2
    texts = [
        words(middle, first + 16 * at, text, ink.text, size=SIZE, anchor="middle") for at, text in enumerate(lines)
    ]
    return document(look, height, sentence, [frame, *texts])


def legend(look: Look, left: float, top: float, entries: Sequence[tuple[str, str]]) -> tuple[list[str], float]:
    """Draw legend entries in rows that start at `left`. Returns the elements and their height.

    An entry is a swatch, drawn around 0, 0 within 7 pixels, and its name.
    """
    parts: list[str] = []
    x, row = left, 0
    for swatch, whole in entries:
        name = shortened(whole, look.width - left - 24, SMALL)
        wide = 20 + width_of(name, SMALL) + 14
        if x > left and x + wide - 14 > look.width - 4:
            x, row = left, row + 1
        y = top + 9 + 18 * row
        parts.append(moved(swatch, x + 7, y))
        parts.append(words(x + 20, y + 4, name, look.ink.text))
        x += wide
    return parts, 18.0 * (row + 1) if entries else 0.0
