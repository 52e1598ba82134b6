"""What a driver's call of `train()` means to a job that may have heard of it before. Pure.

A driver that was killed is started again and runs its whole script once more, so that its k-th call comes a second
time: the k-th training is done, or under way, or next. Anything else is a script that trains in two threads.
"""

from __future__ import annotations

from enum import Enum


class Answer(Enum):
    """What to do about the call."""

    DONE = "it was done before: the call returns at once"
    ATTACH = "it is under way: the call waits for it"
    BEGIN = "it is the next one"
    REFUSE = "it is out of turn"


def answer(training: int, *, done: int, running: int | None) -> Answer:
    """About the `training`-th call (from 0), after `done` finished trainings; `running` is the one under way."""
    if 0 <= training < done:
        return Answer.DONE
    if training == running:
        return Answer.ATTACH
    return Answer.BEGIN if running is None and training == done else Answer.REFUSE
