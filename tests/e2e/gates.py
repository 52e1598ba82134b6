"""Hold a job of `jobs/cnn.py` at the begin of its epochs, and let it through one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.hosts import running
from tests.waiting import until


class Gates:
    """Holds a job of so many epochs at the begin of each but the first. Its script gets `--gates folder`."""

    def __init__(self, folder: Path, epochs: int) -> None:
        folder.mkdir()
        self.folder = folder
        self._closed = list(range(1, epochs))
        for epoch in self._closed:
            (folder / f"hold-{epoch}").touch()

    def ready(self) -> int:
        """Return how many living workers have opened the data set, which is the last thing before they are ready."""
        path = self.folder / "opened"
        return len(running({int(pid) for pid in path.read_text().split()})) if path.exists() else 0

    def open_until(self, condition: Callable[[], Any], what: str, *, ready: int = 1) -> None:
        """Let the job through one epoch at a time until the condition holds. Start with `ready` workers or more."""
        until(lambda: self.ready() >= ready, f"{ready} workers that have opened the data set")

        def holds() -> bool:
            if condition():
                return True
            assert self._closed, f"the job came to its end before {what}"
            # The next epoch only once the job waits for it: what it does in this one may be what the condition asks.
            if self._waiting():
                self._open()
            return False

        until(holds, what)

    def reached(self) -> None:
        """Wait until the job is held."""
        until(self._waiting, "a job at the begin of an epoch")

    def open_all(self) -> None:
        """Hold the job no longer."""
        while self._closed:
            self._open()

    def _waiting(self) -> bool:
        return (self.folder / f"at-{self._closed[0]}").exists()

    def _open(self) -> None:
        (self.folder / f"hold-{self._closed.pop(0)}").unlink()
