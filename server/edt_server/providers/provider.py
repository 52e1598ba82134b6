"""Define what a provider is: it turns machines of an engine into hosts, and reports what becomes of them.

A provider works on levels. It gets all that is wanted now, compares that with what its engine has, and starts what is
missing. So a lost order, a restart of the server or a repeated wish does no harm. It never decides which host ends: a
smaller wish only withdraws machines that are not up yet, and a machine that is up ends by `release`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

# Seconds between the notice and the end of a machine whose end is known, where the engine lets us choose.
NOTICE = 120


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is wanted of a provider now.

    Attributes:
        hosts: how many machines.
        slots: slots that each offers, 0 for the provider's setting.
    """

    hosts: int
    slots: int = 0


class ProvidedState(StrEnum):
    """How a machine of a provider stands.

    ASKED waits in the engine's queue. STARTING has a machine, but no agent yet. UP runs an agent, which need not have
    joined. DRAINING will be taken away, or was released. GONE is no longer there.
    """

    ASKED = "asked"
    STARTING = "starting"
    UP = "up"
    DRAINING = "draining"
    GONE = "gone"


class Provided(msgspec.Struct, frozen=True):
    """A machine of a provider.

    Attributes:
        id: its name there, which its agent joins with. An id is never used again.
        state: how it stands, and `why` in a sentence, "" where there is nothing to report.
        until: when it will be taken away, in seconds since the epoch, None where that is not known.
    """

    id: str
    state: ProvidedState
    why: str = ""
    until: float | None = None


class Notice(msgspec.Struct, frozen=True):
    """A machine will be taken away in this many seconds. There is one notice for each machine."""

    id: str
    seconds: float
    why: str


class Admission(Protocol):
    """What a provider needs to let a machine join."""

    @property
    def python(self) -> str:
        """The Python of a machine, where the setting `command` names none."""

    async def token(self, provider_id: str) -> str:
        """Return a token with which one machine can join, once. For a machine that is about to start."""


class Provider(Protocol):
    """What the server needs of an engine. For the event loop, and none of the calls waits for the engine.

    `name` is the one in c.EdtApp.providers.
    """

    name: str

    @property
    def trouble(self) -> str:
        """Why the engine cannot be used now, or its last machine did not start. "" where all is well."""

    async def want(self, wish: Wish) -> None:
        """Have as many machines as this from now on. The first call also finds what an earlier server started."""

    async def hosts(self) -> tuple[Provided, ...]:
        """Return the machines as they stand, and those that have gone lately."""

    async def release(self, host_id: str, why: str) -> None:
        """End a machine. Another one takes its place where the wish is not smaller."""

    def notices(self) -> AsyncIterator[Notice]:
        """Return the notices from this call on, until the provider is closed."""

    async def close(self, *, keep: bool) -> None:
        """Look after the machines no longer. With `keep` they go on, otherwise they end."""


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that all providers have.

    Attributes:
        max_hosts: most machines at once.
        min_hosts: machines that are kept without a wish.
        command: the Python on the machine, "" for that of the server.
        slots: slots of a host, 0 for its GPUs or cores.
        folder: the host's data folder there, "" for the agent's choice.
        poll: seconds between two looks at the engine, 0 for the provider's choice.
    """

    max_hosts: int = 1
    min_hosts: int = 0
    command: str = ""
    slots: int = 0
    folder: str = ""
    poll: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_hosts <= self.max_hosts:
            raise ValueError(f"min_hosts is {self.min_hosts} and max_hosts is {self.max_hosts}")


def join_command(
    python: str, provider: str, host_id: str, *, token_file: str | Path = "-", folder: str = "", slots: int = 0
) -> list[str]:
    """Return the command that makes a host of a machine. The token is never part of it.

    With the file "-" the agent reads the token from stdin: one line, after which stdin may end or stay open. On SIGTERM
    it gives up its slots and ends, because the machine will be taken away.
    """
    # -P: modules in the working directory must not be imported.
    command = [python, "-P", "-m", "edt_server.agent", "join", "--token-file", str(token_file), "--name", host_id]
    command += ["--provider", provider, "--provider-id", host_id]
    command += ["--folder", folder] if folder else []
    return command + (["--slots", str(slots)] if slots else [])
