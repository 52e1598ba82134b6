"""Define the inputs of a search's core. A row of the log keeps them as JSON, but for reports, which have their own."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.search.space import Value


class SearchStarted(msgspec.Struct, frozen=True, tag=True):
    """The search has started."""


class Answered(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The suggester has answered the question that begins with trial `number`.

    Attributes:
        values: those of its trials, in their order. Fewer than were asked for mean that a plug-in has no more.
        note: a sentence for the user, "" for none.
    """

    number: int
    values: tuple[dict[str, Value], ...]
    note: str = ""


class Reported(msgspec.Struct, frozen=True, tag=True):
    """A trial has trained `budget` epochs, from 1, and validated. None is a metric that is NaN or infinite."""

    number: int
    budget: int
    metrics: dict[str, float | None]


class TrialEnded(msgspec.Struct, frozen=True, tag=True):
    """A trial's job has finished by itself, and all its reports are there."""

    number: int


class TrialFailed(msgspec.Struct, frozen=True, tag=True):
    """A trial's job has failed.

    Attributes:
        message: the error, equal for equal causes.
        outside: the cause is not its code or its values, such as a machine that could not run it.
    """

    number: int
    message: str
    outside: bool = False


class SearchPaused(msgspec.Struct, frozen=True, tag=True):
    """Nothing new shall start. `message` is the reason."""

    message: str = ""


class SearchResumed(msgspec.Struct, frozen=True, tag=True):
    """A paused or stopped search, or one that its time ended, goes on."""


class SearchStopped(msgspec.Struct, frozen=True, tag=True):
    """A person stopped the search."""


class TimeUp(msgspec.Struct, frozen=True, tag=True):
    """The search's `max_time` has passed."""


class PointsAdded(msgspec.Struct, frozen=True, tag=True):
    """A person added values to try next."""

    points: tuple[dict[str, Value], ...]


class TrialsRaised(msgspec.Struct, frozen=True, tag=True):
    """The search shall have this many trials, more than before."""

    trials: int


SearchEvent = (
    SearchStarted
    | Answered
    | Reported
    | TrialEnded
    | TrialFailed
    | SearchPaused
    | SearchResumed
    | SearchStopped
    | TimeUp
    | PointsAdded
    | TrialsRaised
)
