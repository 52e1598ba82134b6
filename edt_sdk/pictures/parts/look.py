"""How a picture looks: its theme, its width, the time zone of its clock, and each job's colour.

Theme "auto" has mid-tones that are legible on white and on black, because an `<img>` in a notebook cannot know its
background. No theme paints a background. Colours of jobs stay distinct with any of the three kinds of colour blindness,
and have a contrast of 3 against white and against #111. A test computes both.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, tzinfo

THEMES = ("auto", "light", "dark")
NARROWEST, WIDEST = 200, 4000

ACCENT = "#4a8fd4"
ORANGE = "#d9822b"
GREEN = "#2e9e5b"
QUIET = "#8a8a8a"
TEXT = "#7f7f7f"

JOB_COLOURS = ("#5c95ea", "#b58f24", "#ab2b90", "#82995b", "#a3461f", "#5c5eeb", "#e0618e", "#89534f")
OTHERS_COLOUR = "#868686"


@dataclass(frozen=True, slots=True)
class Ink:
    """The colours in a theme.

    Attributes:
        text, soft: text, and less important text.
        line: axes, and grid lines with less opacity.
        edge: the border between two areas.
        train, test: the two curves, in every picture.
        good, bad, warn: gains, losses, and warnings.
    """

    text: str
    soft: str
    line: str
    edge: str
    train: str
    test: str
    good: str
    bad: str
    warn: str


AUTO = Ink("#767676", "#7f7f7f", QUIET, "#808080", ACCENT, ORANGE, GREEN, "#d1495b", "#b8860b")
LIGHT = Ink("#1f2328", "#59636e", "#8c959f", "#ffffff", "#1f6fc0", "#b85c00", "#1a7f42", "#c0283d", "#8a6100")
DARK = Ink("#e6edf3", "#9da7b3", "#6e7681", "#111111", "#5ba6ee", "#ec9a4b", "#4cc27d", "#f0707f", "#d9a520")
_INKS = {"auto": AUTO, "light": LIGHT, "dark": DARK}


@dataclass(frozen=True, slots=True)
class Look:
    """How a picture is to look.

    Args:
        theme: one of `THEMES`.
        width: pixels. Everything but the text scales with the width.
        zone: of clock times.

    Raises:
        ValueError: no such theme, or a width outside `NARROWEST` … `WIDEST`.
    """

    theme: str = "auto"
    width: int = 720
    zone: tzinfo = UTC

    def __post_init__(self) -> None:
        if self.theme not in THEMES:
            raise ValueError(f"theme is one of {', '.join(THEMES)}, not {self.theme!r}")
        if not NARROWEST <= self.width <= WIDEST:
            raise ValueError(f"width is from {NARROWEST} to {WIDEST} pixels, not {self.width}")

    @property
    def ink(self) -> Ink:
        """The theme's colours."""
        return _INKS[self.theme]

    def height(self, share: float, low: int, high: int) -> int:
        """A height that is this share of the width, between these."""
        return round(min(high, max(low, share * self.width)))


def on_colour(colour: str) -> str:
    """White or nearly black, whichever is easier to read on a colour such as #5c95ea."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    # Relative luminance as WCAG 2 defines it, from linear components.
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.22 else "#111111"


def job_colour(job: str) -> str:
    """The colour of a job, from its id: the same in every picture, on every server."""
    # Not hash(), which differs between processes: the colour has to be the same on every surface (028).
    return JOB_COLOURS[zlib.crc32(job.encode(errors="replace")) % len(JOB_COLOURS)]
