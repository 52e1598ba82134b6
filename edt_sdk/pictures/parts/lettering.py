"""The width of text, and text shortened to fit.

No font can be measured here. The widths are those of DejaVu Sans, per em. System fonts are narrower, so that text which
fits by these widths fits in them too.
"""

from __future__ import annotations

import math
import re

ELLIPSIS = "…"
_MOST_LINES = 4
# Characters that XML 1.0 does not allow.
_UNSPEAKABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NARROW = frozenset("ijl|!.,:;' ·")
_SLIM = frozenset('ftrI-()[]{}/\\"*°')
_BROAD = frozenset("mMwW@%—…✕")


def clean(text: str) -> str:
    """Return `text` on one line, with characters that XML does not allow replaced."""
    return " ".join(_UNSPEAKABLE.sub("\ufffd", text).split())


def width_of(text: str, size: float) -> float:
    """Return an upper limit of the pixels that `text` needs in a font of `size` pixels."""
    return size * sum(map(_em, text))


def shortened(text: str, room: float, size: float) -> str:
    """Return `text` with its middle replaced by … so that it fits into `room` pixels, "" when nothing fits.

    The middle goes because names of jobs start with what they are and end with what makes them different.
    """
    text = clean(text)
    if width_of(text, size) <= room:
        return text
    kept = len(text)
    while kept > 1:
        kept -= 1
        front = text[: math.ceil(kept / 2)].rstrip()
        back = text[len(text) - kept // 2 :].lstrip() if kept > 1 else ""
        if width_of(short := f"{front}{ELLIPSIS}{back}", size) <= room:
            return short
    return ""


def wrapped(text: str, room: float, size: float) -> list[str]:
    """Return `text` as at most four lines that fit. A line that is too long is shortened."""
    lines: list[str] = []
    for word in clean(text).split():
        if lines and (len(lines) == _MOST_LINES or width_of(f"{lines[-1]} {word}", size) <= room):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [line for line in (shortened(line, room, size) for line in lines) if line]


def counted_workers(count: int) -> str:
    """Return "1 worker", "2 workers"."""
    return f"{count} worker{'' if count == 1 else 's'}"


def _em(letter: str) -> float:
    if letter in _NARROW:
        return 0.36
    if letter in _SLIM:
        return 0.42
    if letter in _BROAD:
        return 1.0
    # An upper limit by script: the font is unknown, and text that fits a wide font fits all (028).
    code = ord(letter)
    if code >= 0x1100:  # Hangul, Han, Kana, pictographs: full width
        return 1.05
    return 0.74 if letter.isupper() or code > 0x2FF else 0.64
