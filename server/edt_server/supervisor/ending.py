"""How a job is brought to its end, and whom its message names when it failed. Pure.

When one worker dies, the others fail a moment later because of it, and which is heard first is chance. The message is
therefore composed when all workers are gone: a process that died without a word outranks one that could still say what
went wrong, and among equals the first counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edt_sdk.schemas.job import JobState


@dataclass(slots=True)
class Ending:
    """The end a job is coming to.

    Attributes:
        state: FINISHED, KILLED, FAILED or ERROR.
        reported: False when the server refused this supervisor.
        driver_told: the driver was asked to end.
    """

    state: JobState
    reported: bool = True
    driver_told: bool = False
    _messages: list[tuple[int, str]] = field(default_factory=list)

    def blame(self, message: str, *, silent: bool = False) -> None:
        """Add a possible message; `silent`: its process died without a word."""
        self._messages.append((0 if silent else 1, message))

    @property
    def message(self) -> str:
        """The message that counts."""
        return min(self._messages, key=lambda entry: entry[0])[1] if self._messages else ""
