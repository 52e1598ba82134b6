"""Look at the plain variables of a script, which do not travel: a worker that joins may have other values.

At the place where it joins, the functions of its script are at the same lines as those of the others. So their
variables can be compared by name. One that counts or sums up shows here, before it leads the script another way.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

_LONG = 200  # characters, or bits
_OWN = str(Path(__file__).parents[1])
_NAMED = 5


def of_the_script() -> dict[str, str]:
    """Return the plain variables of all functions of the script that run now, by function and name, as Python code."""
    found: dict[str, str] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OWN) and not file.startswith("<"):
            for name, value in frame.f_locals.items():
                if _is_plain(value) and not name.startswith("__"):
                    found[f"{frame.f_code.co_name}.{name}"] = repr(value)
            if frame.f_code.co_name == "<module>":
                break
        frame = frame.f_back
    return found


def _is_plain(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() < _LONG
    return value is None or isinstance(value, float) or (isinstance(value, str) and len(value) < _LONG)


def differing(own: Mapping[str, str], others: Mapping[str, str]) -> str:
    """Return a sentence on variables that have other values in the other workers, "" where there are none."""
    names = [name for name in own if name in others and own[name] != others[name]]
    if not names:
        return ""
    said = [f"{name.removeprefix('<module>.')} is {others[name]:.40}, here {own[name]:.40}" for name in names]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"This worker has joined, and variables of the script are not as in the others: {'; '.join(said[:_NAMED])}"
        f"{more}. If they decide anything, keep them in a dictionary and give it to elastic(), with which it travels."
    )
