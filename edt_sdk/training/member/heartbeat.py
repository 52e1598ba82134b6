"""Send a member's heartbeat, which shows whether the member computes or waits.

The heartbeat wraps the loader, because every micro-batch starts with a call of the loader. A heartbeat costs two stores
into shared memory for each micro-batch, and none for each sample. See `edt_sdk.schemas.wire.pulse`.
"""

from __future__ import annotations

from edt_sdk.schemas.wire.pulse import Phase, Pulse
from edt_sdk.training.sampling.order import BatchKey
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.update import Loader


class Heartbeat:
    """Wraps a loader and sends a heartbeat at the start of each micro-batch.

    Args:
        pulse: takes the heartbeats.
        loader: of the batches.

    Attributes:
        updates: number committed so far, part of every heartbeat.
    """

    def __init__(self, pulse: Pulse, loader: Loader) -> None:
        self._pulse = pulse
        self._loader = loader
        self.updates = 0

    def take(self, key: BatchKey) -> Batch:
        """Send the heartbeat of a computation that starts now, and return the batch of the key."""
        self.computing()
        return self._loader.take(key)

    def computing(self) -> None:
        """Report that this member computes. Without progress from now on, this member is the one that hangs."""
        self._pulse.beat(Phase.COMPUTING, self.updates)

    def waiting(self) -> None:
        """Report that this member waits for others. Without progress from now on, another member hangs."""
        self._pulse.beat(Phase.WAITING, self.updates)
