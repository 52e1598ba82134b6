"""A member's signs of life: what it begins to do, said by whoever begins it.

Wraps the loader, because every micro-batch begins with taking it: two stores into shared memory each, never one a
sample. See `edt_sdk.schemas.wire.pulse`.
"""

from __future__ import annotations

from edt_sdk.schemas.wire.pulse import Phase, Pulse
from edt_sdk.training.sampling.order import BatchKey
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.update import Loader


class Heartbeat:
    """A loader that says so when a micro-batch is begun.

    Args:
        pulse: where it is said.
        loader: of the batches.

    Attributes:
        updates: committed so far; told with every beat.
    """

    def __init__(self, pulse: Pulse, loader: Loader) -> None:
        self._pulse = pulse
        self._loader = loader
        self.updates = 0

    def take(self, key: BatchKey) -> Batch:
        """The batch of a key; its computation begins."""
        self.computing()
        return self._loader.take(key)

    def computing(self) -> None:
        """From now on nobody else is to blame when it does not go on."""
        self._pulse.beat(Phase.COMPUTING, self.updates)

    def waiting(self) -> None:
        """From now on it is for others to go on."""
        self._pulse.beat(Phase.WAITING, self.updates)
