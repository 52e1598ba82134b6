"""The user's `scaleup_function`: before each epoch, how many workers it may have at most. Pure but for that function.

It is asked `(epoch, most)`, the epoch counted from 0 and V, the most workers that the training can use, and answers a
number of workers; more than V is V. One that raises or answers something else is ignored from then on with a line in
the log, as in WMLA, and V holds again. Workers come and go at the boundaries of updates, so a new epoch's first updates
may still be computed by those of the old one; the result has the same bits in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ScaleUp:
    """The maximum of one training from epoch to epoch.

    Args:
        function: the user's; None for none.
        most: V.
        epochs: of the training.
        tell: says a sentence in the log.
    """

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
        """The new maximum, None where it stays what it is; asks once an epoch, and for later ones only."""
        if self._function is None or not self._epoch < epoch < self._epochs:
            return None
        self._epoch = epoch
        before, self._now = self._now, self._ask(self._function, epoch)
        return None if self._now == before else self._now

    def _ask(self, function: Callable[..., Any], epoch: int) -> int:
        try:
            answer = function(epoch, self._most)
        except Exception as error:  # the user's, who would rather have a trained model
            return self._ignore(f"it raised {type(error).__name__}: {error}")
        if isinstance(answer, bool) or not hasattr(answer, "__index__") or int(answer) < 1:
            return self._ignore(f"it returned {answer!r} for epoch {epoch}, not a number of workers from 1 on")
        return min(int(answer), self._most)

    def _ignore(self, why: str) -> int:
        self._function = None
        self._tell(f"scaleup_function is ignored: {why}.")
        return self._most
