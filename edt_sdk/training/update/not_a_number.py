"""Check the losses of an update: log a loss that is not finite, or stop the training before it spoils the model.

All ranks know all losses before any rank changes its model, so all ranks decide alike.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.header import ShardStats
from edt_sdk.training.sampling.order import TrainStep

log = logging.getLogger(__name__)

_SAID_AT_FIRST = 5
_THEN_EVERY = 100


class LossGuard:
    """Checks the losses of each update. Infinity counts as not a number.

    With `stop` it raises Unprocessable. Otherwise it writes a log line, the first 5 times and then every 100th.
    """

    def __init__(self, *, stop: bool) -> None:
        self._stop = stop
        self._times = 0

    def check(self, step: TrainStep, shards: Sequence[ShardStats], *, speaker: bool) -> None:
        """Check the shards of all ranks before an update is applied. The rank that is `speaker` writes the log line."""
        bad = [shard for shard in shards if not math.isfinite(shard.loss)]
        if not bad:
            return
        self._times += 1
        losses = ", ".join(f"{shard.loss} in shard {shard.shard}" for shard in bad)
        text = f"The loss is not a finite number in update {step.update} (epoch {step.epoch}): {losses}."
        if self._stop:
            raise Unprocessable(
                f"{text} The update was not applied.",
                hint="Lower the learning rate, give clip_grad_norm=, or look at the shard's samples in the commit log. "
                "on_nan='warn' continues instead.",
                field="on_nan",
                update=step.update,
                epoch=step.epoch,
                shards=[shard.shard for shard in bad],
            )
        if speaker and (self._times <= _SAID_AT_FIRST or self._times % _THEN_EVERY == 0):
            log.warning("%s The training goes on.", text)
