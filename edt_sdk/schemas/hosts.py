"""The hosts of a server as people see them: machines that offer slots, the server's own among them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Self

import msgspec

from edt_sdk.schemas.errors import Unprocessable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
LONGEST_TOKEN = 30 * 86400.0  # seconds
MOST_USES = 10_000
MOST_LOG_LINES = 10_000


class HostState(StrEnum):
    """How a host stands.

    STARTING was asked of a provider, or its agent has not connected yet. UP offers its slots. DOUBTFUL has been silent
    for a while: it keeps its jobs and gets no new ones. DRAINING gives up its slots, each at its job's next update.
    LOST has been silent for too long, or its agent has ended: its slots are gone until it is back.
    """

    STARTING = "starting"
    UP = "up"
    DOUBTFUL = "doubtful"
    DRAINING = "draining"
    LOST = "lost"


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """A host.

    Attributes:
        name: as slots and resource groups name it.
        provider: who has started it: "machine" for the server's own, "local", "joined" by a person, or the name of a
            provider in c.EdtApp.providers.
        state: how it stands, and `why` in a sentence, "" where there is nothing to say.
        slots: how many it offers, and `used` how many jobs hold there. While it drains it offers none.
        cores, gpus, memory: what the machine has: cores, indices of GPUs, bytes.
        load, memory_free, disk_free: processes that want to run, bytes that are free. None where it was not told.
        kind: what the bits of a training depend on there. Hosts of one kind compute the same ones.
        wheel: version of the package there.
        address: where its workers are reached.
        since: when it came, or was lost, in seconds since the epoch.
        round_trip: seconds from a beat to its answer, None where it was not told.
        jobs: ids of the jobs that hold slots there.
    """

    name: str
    provider: str
    state: HostState
    why: str = ""
    slots: int = 0
    used: int = 0
    cores: int = 0
    gpus: tuple[int, ...] = ()
    memory: int = 0
    load: float | None = None
    memory_free: int | None = None
    disk_free: int | None = None
    kind: str = ""
    wheel: str = ""
    address: str = ""
    since: float = 0.0
    round_trip: float | None = None
    jobs: tuple[str, ...] = ()


class HostToken(msgspec.Struct, frozen=True, kw_only=True):
    """What lets machines join, shown once.

    Attributes:
        token: the text for `edt host join`. It has the server's key, its addresses, and a key of its own.
        command: the line to run on the machine.
        expires: seconds since the epoch.
        uses: how many machines may join with it.
    """

    token: str
    command: str
    expires: float
    uses: int


class NewHostToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token for machines that are to join.

    Attributes:
        seconds: how long it can be used.
        uses: how many machines may join with it.
    """

    seconds: float = 3600.0
    uses: int = 1

    def check(self) -> Self:
        """Return self, or raise Unprocessable naming the field."""
        if not 0 < self.seconds <= LONGEST_TOKEN:
            raise Unprocessable(
                f"A token cannot be valid for {self.seconds:g} seconds.",
                hint="Give more than 0 and at most 30 days: 2592000 seconds, or 43200 minutes.",
                field="seconds",
            )
        if not 1 <= self.uses <= MOST_USES:
            raise Unprocessable(
                f"A token cannot be for {self.uses} machines.", hint=f"Give 1 to {MOST_USES}.", field="uses"
            )
        return self


class HostDrain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a host gives up its slots.

    Attributes:
        draining: false to let it offer its slots again.
    """

    draining: bool = True

    def check(self) -> Self:
        """Return self: every value can be used."""
        return self


def check_host_name(name: str, field: str = "name") -> None:
    """Raise Unprocessable when this cannot be the name of a host."""
    if not _NAME.match(name):
        raise Unprocessable(
            f"{name!r} cannot be the name of a host.",
            hint="Use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit.",
            field=field,
        )
