"""Describe deployments: a name under which a version of a model answers requests, on slots like those of trainings.

A deployment has revisions, each a version with settings. One of them answers, or two while one replaces the other. The
replicas of a revision are the workers of a job of the framework `serve`, as many as its load needs, from `replicas[0]`
to `replicas[1]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from edt_sdk.schemas.catalogue import CatalogueName, check_name
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.job import MOST_WORKERS, GroupName, Priority, check_priority
from edt_sdk.schemas.serving.edge_file import Counters
from edt_sdk.schemas.serving.versions import Description, VersionReference, check_description

# Twice a training's: a request waits for its answer, a training does not.
DEFAULT_PRIORITY = 10_000
_MOST_ROWS = 1024
_LONGEST_DEADLINE = 3600.0
_ORIGIN = re.compile(r"(?:https?://[^\s/]+|\*)\Z")


def replicas_of(given: int | str | Iterable[int]) -> tuple[int, int]:
    """Return the fewest and the most replicas from a number, a pair, or a text such as 0:3. Else InvalidRequest."""
    parts: list[Any] = given.split(":") if isinstance(given, str) else [given] if isinstance(given, int) else [*given]
    try:
        least, most = (int(part) for part in (parts if len(parts) > 1 else parts * 2))
    except (TypeError, ValueError):
        raise InvalidRequest(
            f"{given!r} is no number of replicas.", hint="Give one, such as 2, or from and to: 0:3.", field="replicas"
        ) from None
    return least, most


def origins_of(given: Iterable[str] | str) -> tuple[str, ...]:
    """Return origins from a sequence, or from one text with commas."""
    return tuple(each.strip() for each in given.split(",") if each.strip()) if isinstance(given, str) else tuple(given)


Replicas = Annotated[tuple[int, int], Meta(extra={"metavar": "MIN:MAX", "parser": replicas_of})]
VersionText = Annotated[str, Meta(extra={"metavar": "VERSION"})]
Origins = Annotated[tuple[str, ...], Meta(extra={"metavar": "ORIGIN,…", "parser": origins_of})]
Rows = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": _MOST_ROWS}, extra={"metavar": "N"})]
Deadline = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0}, extra={"metavar": "S"})]
Percent = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 99}, extra={"metavar": "PERCENT"})]


class DeploymentState(StrEnum):
    """What a deployment does with a request now.

    Attributes:
        STOPPED: it refuses it.
        STARTING: it lets it wait for a replica that loads.
        WAITING: it lets it wait for a slot.
        READY: it answers.
        IDLE: it has no slot, and starts a replica.
        FAILED: it refuses it, because the version cannot be served.
    """

    STOPPED = "STOPPED"
    STARTING = "STARTING"
    WAITING = "WAITING"
    READY = "READY"
    IDLE = "IDLE"
    FAILED = "FAILED"


class NewRevision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version and how it is served.

    Attributes:
        version: digits/3, digits@champion, or digits for the newest.
        max_batch: most rows that a replica computes at once, 1 to 1,024.
        exact: the bits of an answer do not depend on the load: every batch has max_batch rows.
        deadline: seconds that a request may take.
        canary: percent of the callers that it answers until it is promoted. Without it takes over when it is ready.
    """

    version: VersionText
    max_batch: Rows = 32
    exact: bool = False
    deadline: Deadline = 30.0
    canary: Percent | None = None

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        VersionReference.of(self.version)
        if not 1 <= self.max_batch <= _MOST_ROWS:
            raise Unprocessable(f"max_batch must lie in 1 … {_MOST_ROWS:,}, not {self.max_batch}.", field="max_batch")
        if not 0 < self.deadline <= _LONGEST_DEADLINE:
            raise Unprocessable(
                f"deadline is a number of seconds above 0, at most {_LONGEST_DEADLINE:g}, not {self.deadline:g}.",
                field="deadline",
            )
        if self.canary is not None and not 1 <= self.canary <= 99:
            raise Unprocessable(f"canary must lie in 1 … 99 percent, not {self.canary}.", field="canary")
        return self


class DeploymentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a deployment that may change at any time.

    Attributes:
        replicas: the fewest and the most replicas (default: 1), such as 0:3. With 0 it gives up the last without load.
        priority: weight of its replicas under fair share, twice a training's by itself.
        description: text for people, at most 10,000 characters.
        space: a word that deployments are grouped by, such as production.
        public: everybody who can reach the server may call it, without a key.
        origins: origins whose web pages may call it, with commas; * for all.
        release_after: seconds without need after which it gives up a replica.
        idle_after: seconds without a request after which it gives up the last one, where replicas begin with 0.
    """

    replicas: Replicas = (1, 1)
    priority: Priority = DEFAULT_PRIORITY
    description: Description = ""
    space: str = ""
    public: bool = False
    origins: Origins = ()
    release_after: Deadline = 60.0
    idle_after: Deadline = 300.0

    def check_settings(self) -> None:
        """Raise InvalidRequest or Unprocessable naming the field."""
        least, most = self.replicas
        if not 0 <= least <= most or not 1 <= most <= MOST_WORKERS:
            raise Unprocessable(
                f"replicas must go from 0 or more to at least as many, and 1, not from {least} to {most}.",
                hint="Such as 1:3, or 0:3 to hold no slot while there is no load.",
                field="replicas",
            )
        check_priority(self.priority)
        check_description(self.description)
        if self.space:
            check_name(self.space, "space")
        for origin in self.origins:
            if not _ORIGIN.match(origin):
                raise Unprocessable(
                    f"{origin!r} is no origin.", hint="Such as https://shop.example.com, or * for all.", field="origins"
                )
        for name in ("release_after", "idle_after"):
            if not 0 < getattr(self, name) < float("inf"):
                raise Unprocessable(f"{name} is a number of seconds above 0.", field=name)


class NewDeployment(DeploymentSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A deployment to be made, with its first revision.

    Attributes:
        name: under which it is called, 1 to 100 letters, digits, dots, dashes and underscores (default: the version's).
        instance_group: the queue of its replicas, empty for the server's first.
        version: digits/3, digits@champion, or digits for the newest.
        max_batch: most rows that a replica computes at once, 1 to 1,024.
        exact: the bits of an answer do not depend on the load: every batch has max_batch rows.
        deadline: seconds that a request may take.
    """

    version: VersionText
    name: Annotated[str, Meta(extra={"metavar": "NAME"})] = ""
    instance_group: GroupName = ""
    max_batch: Rows = 32
    exact: bool = False
    deadline: Deadline = 30.0

    @property
    def revision(self) -> NewRevision:
        """Its first revision."""
        same = set(NewRevision.__struct_fields__) & set(self.__struct_fields__)
        return NewRevision(**{name: getattr(self, name) for name in same})

    @property
    def settings(self) -> DeploymentSettings:
        """The settings it starts with."""
        return DeploymentSettings(**{name: getattr(self, name) for name in DeploymentSettings.__struct_fields__})

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        self.revision.check()
        self.check_settings()
        if self.name:
            check_name(self.name, "deployment")
        return self


class DeploymentPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a deployment's settings. None leaves a field as it is.

    Attributes:
        replicas: the fewest and the most replicas, such as 0:3.
        priority: weight of its replicas under fair share.
        description: text for people; empty for none.
        space: a word that deployments are grouped by; empty for none.
        public: everybody who can reach the server may call it, without a key.
        origins: origins whose web pages may call it, with commas; * for all, empty for none.
        release_after: seconds without need after which it gives up a replica.
        idle_after: seconds without a request after which it gives up the last one.
    """

    replicas: Replicas | None = None
    priority: Priority | None = None
    description: Description | None = None
    space: str | None = None
    public: bool | None = None
    origins: Origins | None = None
    release_after: Deadline | None = None
    idle_after: Deadline | None = None

    def changes(self) -> dict[str, Any]:
        """Return the settings that this patch sets, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        if not self.changes():
            raise InvalidRequest("Nothing to change.", hint=f"Give {', '.join(self.__struct_fields__)}.")
        DeploymentSettings(**self.changes()).check_settings()
        return self


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key for callers of a deployment, to be made.

    Attributes:
        name: who it is for, such as shop.
        days: after which it expires (default: never).
    """

    name: CatalogueName
    days: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0}, extra={"metavar": "DAYS"})] | None = None

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        check_name(self.name, "key")
        if self.days is not None and not 0 < self.days < float("inf"):
            raise Unprocessable(
                f"days must be above 0, not {self.days:g}.", hint="Leave it out for ever.", field="days"
            )
        return self


class DeploymentKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is listed.

    Attributes:
        id: the part of it that is no secret.
        name: who it is for.
        created: seconds since the epoch (UTC).
        expires: likewise, None for never.
        key: the key itself, only in the answer that makes it. It is kept nowhere.
    """

    id: str
    name: str
    created: float
    expires: float | None
    key: str = ""


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A version that a deployment has served, serves, or is about to serve.

    Attributes:
        number: from 1.
        version: such as digits/3.
        job: id of the job of its replicas. It may have been deleted since.
        created: seconds since the epoch (UTC).
        by: who made it.
        share: percent of the callers that it answers now.
        outcome: one sentence on what became of it, empty while it answers or starts.
    """

    number: int
    version: str
    job: str
    created: float
    by: str
    share: int
    outcome: str
    max_batch: int
    exact: bool
    deadline: float


class DeploymentView(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment as it is now.

    Attributes:
        created: seconds since the epoch (UTC).
        state: what it does with a request.
        message: a sentence on that, with what it waits for. Empty when it is ready.
        version: that answers most callers, or would when it is started.
        url: where it is called with a key, empty while nothing takes requests. Through Jupyter Server and its login it
            is called at `edt/api/deployments/<name>/predict`.
        wanted: replicas that its load needs.
        slots: that it holds.
        ready: replicas that answer.
        counters: what has been counted of the revisions that answer now, by number, since they do.
        revisions: all, the newest first.
    """

    name: str
    owner: str
    created: float
    state: DeploymentState
    message: str
    version: str
    url: str
    instance_group: str
    replicas: tuple[int, int]
    priority: int
    description: str
    space: str
    public: bool
    origins: tuple[str, ...]
    release_after: float
    idle_after: float
    wanted: int
    slots: int
    ready: int
    keys: tuple[DeploymentKey, ...]
    counters: dict[int, Counters]
    revisions: tuple[Revision, ...]
