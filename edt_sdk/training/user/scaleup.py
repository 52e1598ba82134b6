"""Call the user's `scaleup_function` before each epoch for the most workers it may have. Pure except for that function.

Its arguments are `(epoch, most)`: the epoch, counted from 0, and V, the most workers the training can use. The result
is a number of workers, capped at V. A function that raises or returns anything else is ignored from then on with a log
line, as in WMLA, and the limit is V again. Workers join and leave at update boundaries, so the first updates of an
epoch may still use the workers of the previous one. The bits of the result do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ScaleUp:
    """Tracks the maximum number of workers of a training from epoch to epoch. `most` is V, `tell` writes to the log."""

    def __init__(
        self, function: Callable[..., Any] | None, most: int, epochs: int, tell: Callable[[str], None]
    ) -> None:
        self._function = function
        self._most = most
        self._epochs = epochs
        self._tell = tell
        self._now = most
        self._epoch = -1

    def begin(self, epoch: int) -> int | None:
        """Return the new maximum, None if it did not change. Call the function once per epoch, never for past ones."""
        # The line of the last update leads to an epoch after the last one, which does not exist.
        if self._function is None or not self._epoch < epoch < self._epochs:
            return None
        self._epoch = epoch
        before, self._now = self._now, self._ask(self._function, epoch)
        return None if self._now == before else self._now

    def _ask(self, function: Callable[..., Any], epoch: int) -> int:
        try:
            answer = function(epoch, self._most)
        except Exception as error:  # a failing user function must not cost the trained model
            return self._ignore(f"it raised {type(error).__name__}: {error}")
        # A bool is an int in Python, but surely a mistake. numpy integers have __index__.
        if isinstance(answer, bool) or not hasattr(answer, "__index__") or int(answer) < 1:
            return self._ignore(f"it returned {answer!r} for epoch {epoch}, not a number of workers from 1 on")
        return min(int(answer), self._most)

    def _ignore(self, why: str) -> int:
        self._function = None
        self._tell(f"scaleup_function is ignored: {why}.")
        return self._most
