"""The user's learning-rate scheduler, stepped alike by every member.

It came with the payload and holds the optimizer that came with it. What it does follows from its own state and from
numbers that all members know, so every member steps its own and nothing is sent. Its state travels with the
model's, to joiners and into checkpoints.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

# torch looks for a wrapper around optimizer.step() that does not survive pickling; the order of calls is the loop's.
_NO_CONCERN = r".*(optimizer\.step\(\)` has been overridden|lr_scheduler\.step\(\)` before `optimizer\.step\(\))"


class LearningRate:
    """The scheduler of one training in one member.

    Args:
        scheduler: the user's, or None: then nothing ever happens.
        every: "update" or "epoch": when it steps.
    """

    def __init__(self, scheduler: Any, every: str) -> None:
        self._scheduler = scheduler
        self._every = every

    def updated(self, loss: float, test_loss: float | None) -> None:
        """An update is committed: its mean loss, and that of the last validation."""
        if self._every == "update":
            self._step(loss, test_loss)

    def ended_epoch(self, loss: float | None, test_loss: float | None) -> None:
        """An epoch is over: the mean loss over its samples, and that of the last validation."""
        if self._every == "epoch":
            self._step(loss, test_loss)

    def state(self) -> dict[str, Any] | None:
        """What another member needs to go on; None where there is no scheduler."""
        return None if self._scheduler is None else dict(self._scheduler.state_dict())

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on where `state` was taken."""
        if self._scheduler is not None and state is not None:
            # Some schedulers take their part out of the dictionary they are given, or keep lists of it.
            self._scheduler.load_state_dict(copy.deepcopy(state))

    def _step(self, loss: float | None, test_loss: float | None) -> None:
        if self._scheduler is None:
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NO_CONCERN, category=UserWarning)
            if isinstance(self._scheduler, ReduceLROnPlateau):
                known = loss if test_loss is None else test_loss
                if known is not None:
                    self._scheduler.step(known)
            else:
                self._scheduler.step()
