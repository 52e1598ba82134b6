"""Write to the user's terminal. All output of `edt` passes here, so that nothing a server sends is a command to it.

A pipe or a file gets every character as it is: a terminal interprets them, a program does not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from edt_sdk.formatting.control_characters import visible, visible_log


class VisibleStream:
    """A stream of text to a terminal, which shows control characters instead of passing them on.

    Attributes:
        terminal: the stream below it, for control sequences of our own.
    """

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write the text with its control characters as visible text. Returns its length."""
        # A return at the start is how our own progress lines are drawn again. It harms nothing there.
        start = "\r" if text.startswith("\r") else ""
        self.terminal.write(start + visible(text[len(start) :]))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


@contextmanager
def visible_output() -> Iterator[None]:
    """Let everything that is printed in this block show its control characters, on streams that are terminals."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_guarded, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def command(sequence: str) -> None:
    """Write a control sequence of our own to stdout."""
    stream: Any = sys.stdout
    (stream.terminal if isinstance(stream, VisibleStream) else stream).write(sequence)


def print_log(line: object, *, flush: bool) -> None:
    """Print a line of a job's log. On a terminal it keeps its colours and no other control sequence."""
    text, stream = str(line), cast(Any, sys.stdout)
    if isinstance(stream, VisibleStream):
        text, stream = visible_log(text), stream.terminal
    print(text, file=stream, flush=flush)


def _guarded(stream: TextIO) -> Any:
    # A process that was started without the stream has None.
    return VisibleStream(stream) if stream is not None and stream.isatty() else stream
