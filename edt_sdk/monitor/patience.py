"""How a monitor bears a server that does not answer: when it asks again, and when it gives up. Pure."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_PAUSE = 15.0
# As long as the server's machine may take to be restarted.
PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Silence:
    """A server that has not answered since `since`, in `asked` attempts; times in `time.monotonic()` seconds."""

    since: float
    asked: int = 1

    def again(self) -> Silence:
        """The same after one more attempt."""
        return Silence(self.since, self.asked + 1)

    @property
    def pause(self) -> float:
        """Seconds until the next attempt: 1, 2, 4 … 15."""
        return float(min(LONGEST_PAUSE, 2.0 ** min(self.asked - 1, 10)))

    def over(self, now: float) -> bool:
        """True when it has lasted too long."""
        return now - self.since > PATIENCE
