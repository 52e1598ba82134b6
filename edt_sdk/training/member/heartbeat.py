"""Send a member's heartbeat: whether it computes or waits.

It wraps the loader, because every micro-batch begins with a call of it. That is two stores into shared memory for each
micro-batch, and none for each sample. See `edt_sdk.schemas.wire.pulse`.
"""

from __future__ import annotations

from edt_sdk.schemas.wire.pulse import Phase, Pulse
from edt_sdk.training.sampling.order import BatchKey
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.update import Loader


class Heartbeat:
    """A loader that sends a heartbeat at the start of a micro-batch.

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
        """Return the batch of a key, whose computation begins now."""
        self.computing()
        return self._loader.take(key)

    def computing(self) -> None:
        """This member computes: if there is no progress from now on, it hangs itself."""
        self._pulse.beat(Phase.COMPUTING, self.updates)

    def waiting(self) -> None:
        """This member waits for others: if there is no progress from now on, another one hangs."""
        self._pulse.beat(Phase.WAITING, self.updates)
