"""Write control characters as visible text. Pure.

A terminal obeys some characters instead of showing them: they move the cursor, change the window's title or write to
the clipboard. Names, tags and error messages come from other users, and older stores have names with such characters.
"""

from __future__ import annotations

import re

# ASCII and Latin-1 controls without tab and line break, and what reverses the direction of the text after it.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Colours, and the return to the start of the line by which a progress bar draws itself again.
_OF_A_LOG = re.compile(r"(\x1b\[[\d;:]*m|\r)")
_RESET = "\x1b[m"


def visible(text: str) -> str:
    """Return the text with every control character as an escape such as `\\x1b`. Tabs and line breaks stay."""
    return _CONTROLS.sub(_escape, text)


def one_line(text: str) -> str:
    """Return the text as `visible` does, with tabs and line breaks as escapes too, for a cell of a table."""
    return visible(text).replace("\t", "\\t").replace("\n", "\\n")


def visible_log(line: str) -> str:
    """Return a line of a log as `visible` does, but with its colours, and with the returns of a progress bar."""
    parts = _OF_A_LOG.split(line)
    parts[::2] = map(visible, parts[::2])
    # A colour ends with its line, so that it cannot hide the line of another worker.
    return "".join(parts) + (_RESET if "\x1b" in line else "")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    # JSON has the first ones escaped already. For the others it reads only this form, so JSON stays JSON.
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"
