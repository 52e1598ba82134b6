"""How much room words need, and words made to fit: no font can be asked here, so widths are those of a wide one.

The widths are DejaVu Sans's, per em; system fonts are narrower, so that what fits here fits there.
"""

from __future__ import annotations

import math
import re

ELLIPSIS = "…"
# What XML 1.0 has no place for.
_UNSPEAKABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NARROW = frozenset("ijl|!.,:;' ·")
_SLIM = frozenset('ftrI-()[]{}/\\"*°')
_BROAD = frozenset("mMwW@%—…✕")


def clean(text: str) -> str:
    """`text` on one line, with what XML cannot hold replaced."""
    return " ".join(_UNSPEAKABLE.sub("\ufffd", text).split())


def width_of(text: str, size: float) -> float:
    """Pixels that `text` needs at most in a font of `size` pixels."""
    return size * sum(map(_em, text))


def shortened(text: str, room: float, size: float) -> str:
    """`text`, or its beginning and end with … between, so that it fits into `room` pixels; "" when nothing does.

    The middle goes because names of jobs begin with what they are and end with what tells them apart.
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


def wrapped(text: str, room: float, size: float, most: int = 4) -> list[str]:
    """`text` as at most so many lines of words that fit; what does not fit is shortened."""
    lines: list[str] = []
    for word in clean(text).split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        elif len(lines) < most:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return [line for line in (shortened(line, room, size) for line in lines) if line]


def _em(letter: str) -> float:
    if letter in _NARROW:
        return 0.36
    if letter in _SLIM:
        return 0.42
    if letter in _BROAD:
        return 1.0
    code = ord(letter)
    if code >= 0x1100:  # Hangul, Han, Kana, pictographs: full width
        return 1.05
    return 0.74 if letter.isupper() or code > 0x2FF else 0.64
