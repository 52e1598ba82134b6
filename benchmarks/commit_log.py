"""A commit log as the benchmarks read it, ours and that of the torchrun script alike: who committed what, when.

One JSON object a line; only the fields below are read, so both programs may write more. Reading goes on where the last
reading stopped, and half a line waits for its other half.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

POLL = 0.005


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One committed update.

    Attributes:
        update: its number, from 0.
        world: workers that computed it.
        time: when it was committed, seconds since the epoch.
        generation: grows with each change of the members.
    """

    update: int
    world: int
    time: float
    generation: int


_decoder = msgspec.json.Decoder(Commit)


class CommitLog:
    """A log that grows while it is read.

    Attributes:
        commits: what has been read of it, in the order of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.commits: list[Commit] = []

    def read(self) -> list[Commit]:
        """All commits up to now."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return self.commits
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        self.commits += [_decoder.decode(line) for line in data[:whole].splitlines()]
        return self.commits

    def wait(
        self, condition: Callable[[list[Commit]], bool], what: str, trouble: Callable[[], str], limit: float = 180.0
    ) -> None:
        """Return when `condition` holds of the commits.

        Args:
            condition: of all commits so far.
            what: is waited for, for the error.
            trouble: a sentence when it can never hold any more, such as an ended job's; "" otherwise.
            limit: seconds, far beyond what it takes.

        Raises:
            SystemExit: it cannot hold any more, or did not in time.
        """
        deadline = time.monotonic() + limit
        while not condition(self.read()):
            wrong = trouble() or ("" if time.monotonic() < deadline else f"nothing for {limit:.0f} s")
            if wrong:
                raise SystemExit(f"waited in vain for {what}: {wrong}")
            time.sleep(POLL)


def lasted(commits: list[Commit]) -> float:
    """Seconds of the newest update; 0 while there is only one."""
    return commits[-1].time - commits[-2].time if len(commits) > 1 else 0.0


def behind(commits: list[Commit], world: int, since: float) -> int:
    """How many updates in a row, up to the last one, `world` workers have committed after `since`."""
    count = 0
    for commit in reversed(commits):
        if commit.world != world or commit.time <= since:
            break
        count += 1
    return count
