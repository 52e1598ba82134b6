"""What is kept of a message that people's own code has made: its lines bounded, whatever was in them. Pure.

A message goes with its job wherever that is shown, and into every list; the log has every character.
"""

from __future__ import annotations

LINE = 500
LINES = 60


def briefly(message: str) -> str:
    """The message with long lines cut, and of very many the first and the last; most have neither."""
    lines = message.splitlines()
    if len(message) <= LINE and len(lines) <= LINES:
        return message
    if len(lines) > LINES:
        left_out = len(lines) - LINES
        lines = [
            *lines[: LINES // 2],
            f"… {left_out:,} lines are left out here; the log has them …",
            *lines[-LINES // 2 :],
        ]
    return "\n".join(map(_cut, lines))


def _cut(line: str) -> str:
    if len(line) <= LINE:
        return line
    return f"{line[:LINE]} … (cut; the log has all {len(line):,} characters)"
