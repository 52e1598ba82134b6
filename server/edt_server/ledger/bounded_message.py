"""Shorten the message of a user's program to a bounded number of bounded lines. Pure.

A message is part of every list of jobs. The log has every character.
"""

from __future__ import annotations

LINE = 500
LINES = 60


def briefly(message: str) -> str:
    """Return the message with long lines cut, and only the first and last lines of very many."""
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
