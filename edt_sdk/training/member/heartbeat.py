"""Send a member's heartbeat, which shows whether the member computes or waits.

The heartbeat wraps the loader, because every micro-batch starts with a call of the loader. A heartbeat costs two stores
into shared memory for each micro-batch, and none for each sample. See `edt_sdk.schemas.wire.pulse`.
"""

from __future__ import annotations

from dataclasses import dataclass

from edt_sdk.schemas.wire.pulse import Phase, Pulse
from edt_sdk.training.sampling.order import BatchKey
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.update import Loader


@dataclass(slots=True)
class Heartbeat:
    """Wraps a loader and sends a heartbeat at the start of each micro-batch, with the number of committed updates."""

    pulse: Pulse
    loader: Loader
    updates: int = 0

    def take(self, key: BatchKey) -> Batch:
        """Send the heartbeat of a computation that starts now, and return the batch of the key."""
        self.computing()
        return self.loader.take(key)

    def computing(self) -> None:
        """Report that this member computes. Without progress from now on, this member is the one that hangs."""
        self.pulse.beat(Phase.COMPUTING, self.updates)

    def waiting(self) -> None:
        """Report that this member waits for others. Without progress from now on, another member hangs."""
        self.pulse.beat(Phase.WAITING, self.updates)
