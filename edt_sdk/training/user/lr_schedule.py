"""Step the user's learning-rate scheduler identically in every member.

The scheduler arrives in the payload with its optimizer. Its steps depend on its own state and on numbers that all
members know. So every member steps its own copy, and nothing is sent. Its state travels with the model's to joiners and
into checkpoints.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

# torch looks for a wrapper around optimizer.step() that pickling loses. The loop ensures the order of the calls.
_NO_CONCERN = r".*(optimizer\.step\(\)` has been overridden|lr_scheduler\.step\(\)` before `optimizer\.step\(\))"


class LearningRate:
    """Wraps the scheduler of a training in one member.

    Args:
        scheduler: the user's. With None nothing ever happens.
        every: "update" or "epoch", the interval of its steps.
    """

    def __init__(self, scheduler: Any, every: str) -> None:
        self._scheduler = scheduler
        self._every = every

    def updated(self, loss: float, test_loss: float | None) -> None:
        """Step after a committed update, with its mean loss and that of the last validation."""
        if self._every == "update":
            self._step(loss, test_loss)

    def ended_epoch(self, loss: float | None, test_loss: float | None) -> None:
        """Step after an epoch, with the mean loss over its samples and that of the last validation."""
        if self._every == "epoch":
            self._step(loss, test_loss)

    def state(self) -> dict[str, Any] | None:
        """Return the state that another member needs to continue, None without a scheduler."""
        return None if self._scheduler is None else dict(self._scheduler.state_dict())

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continue from `state`."""
        if self._scheduler is not None and state is not None:
            # A copy, because some schedulers modify the dictionary they load or keep its lists.
            self._scheduler.load_state_dict(copy.deepcopy(state))

    def _step(self, loss: float | None, test_loss: float | None) -> None:
        if self._scheduler is None:
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NO_CONCERN, category=UserWarning)
            if isinstance(self._scheduler, ReduceLROnPlateau):
                # The validation loss where there is one: a plateau of the training loss alone would hide overfitting.
                known = loss if test_loss is None else test_loss
                if known is not None:
                    self._scheduler.step(known)
            else:
                self._scheduler.step()
