"""What `server_kills` kills: the server alone, or the PostgreSQL that holds its job store."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Protocol

from edt_sdk import EdtError
from edt_sdk.testing import LocalServer
from tests.server.store.cluster import Cluster
from tests.waiting import until

# Seconds that PostgreSQL stays away: a restart, longer than the lease of a leader is valid (1.5 s), longer than a
# client repeats a request, and longer than a transaction may stand still (15 s).
_AWAY = (0.0, 2.0, 6.0, 20.0)
MOST_LINES = 20


class Victim(Protocol):
    """A part that is killed and started again while jobs run.

    Attributes:
        traits: settings of the server.
        plain: the share of jobs that are plain scripts.
    """

    name: str
    traits: dict[str, Any]
    plain: float

    def hit(self, server: LocalServer, dice: random.Random) -> str:
        """Kill it, start it again, and wait until the server answers. Return what was done, in a few words."""
        ...

    def summary(self) -> str:
        """Return what was measured, as the end of a sentence."""
        ...

    def stop(self) -> None:
        """End it for good, after the server."""
        ...


class ServerVictim:
    """The Jupyter Server. Its supervisors go on, and the next server adopts their jobs."""

    name = "server"
    plain = 0.0

    def __init__(self) -> None:
        self.traits: dict[str, Any] = {}

    def hit(self, server: LocalServer, dice: random.Random) -> str:
        server.kill()
        server.start()
        return "killed"

    def summary(self) -> str:
        return ""

    def stop(self) -> None:
        pass


class PostgresVictim:
    """A PostgreSQL of its own, with every one of its processes. The server goes on and must find back by itself.

    Attributes:
        slowest: the longest time from PostgreSQL's first answer to the server's, in seconds.
        lines: the most lines of the server's log from a kill to the first answer after it.
    """

    name = "postgres"
    plain = 0.5

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.traits = {"EdtApp.db_url": self.cluster.new_database()}
        self.slowest = 0.0
        self.lines = 0

    def hit(self, server: LocalServer, dice: random.Random) -> str:
        before = server.log.stat().st_size
        self.cluster.crash()
        away = dice.choice(_AWAY) * dice.uniform(0.5, 1.0)
        time.sleep(away)
        self.cluster.start()
        begun = time.monotonic()
        until(lambda: self._answers(server), "an answer of the server")
        back = time.monotonic() - begun
        self.slowest = max(self.slowest, back)
        said = server.log.read_bytes()[before:].decode().splitlines()
        assert len(said) <= MOST_LINES, "\n".join(said)
        self.lines = max(self.lines, len(said))
        return f"away for {away:.1f} s, the server answers {back:.1f} s later"

    @staticmethod
    def _answers(server: LocalServer) -> bool:
        try:
            with server.client() as client:
                client.jobs()
        except EdtError as refused:
            if refused.status != 503:
                raise
            return False
        return True

    def summary(self) -> str:
        return (
            f", answers at most {self.slowest:.1f} s after PostgreSQL, at most {self.lines} lines in the log each time"
        )

    def stop(self) -> None:
        self.cluster.stop()


VICTIMS: dict[str, Callable[[], Victim]] = {each.name: each for each in (ServerVictim, PostgresVictim)}
