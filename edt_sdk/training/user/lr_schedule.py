"""Step the user's learning-rate scheduler identically in every member.

The scheduler arrives in the payload with its optimizer. Its steps depend on its own state and on numbers that all
members know. So every member steps its own copy, and nothing is sent. Its state travels with the model's to joiners and
into checkpoints.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

# torch looks for a wrapper around optimizer.step() that pickling loses. The loop ensures the order of the calls.
_NO_CONCERN = r".*(optimizer\.step\(\)` has been overridden|lr_scheduler\.step\(\)` before `optimizer\.step\(\))"


@dataclass(frozen=True, slots=True)
class LearningRate:
    """Wraps the scheduler of a training in one member. It steps `every` "update" or "epoch", or never if it is None."""

    scheduler: Any
    every: str

    def state(self) -> dict[str, Any] | None:
        """Return the state that another member needs to continue, None without a scheduler."""
        return None if self.scheduler is None else dict(self.scheduler.state_dict())

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continue from `state`."""
        if self.scheduler is not None and state is not None:
            # A copy, because some schedulers modify the dictionary they load or keep its lists.
            self.scheduler.load_state_dict(copy.deepcopy(state))

    def branch(self, state: dict[str, Any] | None) -> None:
        """Continue from the `state` of another training, with the initial rates of this one."""
        schedulers = _with_inner(self.scheduler)
        own = [list(each.base_lrs) for each in schedulers]
        self.restore(state)
        for scheduler, rates in zip(schedulers, own, strict=True):
            scheduler.base_lrs = rates

    def step(self, after: str, loss: float | None, test_loss: float | None) -> None:
        """Step after an "update" or an "epoch", with its mean loss and that of the last validation."""
        if self.scheduler is None or after != self.every:
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NO_CONCERN, category=UserWarning)
            if isinstance(self.scheduler, ReduceLROnPlateau):
                # The validation loss where there is one: a plateau of the training loss alone would hide overfitting.
                known = loss if test_loss is None else test_loss
                if known is not None:
                    self.scheduler.step(known)
            else:
                self.scheduler.step()


def _with_inner(scheduler: Any) -> list[Any]:
    """Return the schedulers in one, such as those of a SequentialLR, and itself, as far as they have initial rates."""
    inner = [each for part in getattr(scheduler, "_schedulers", ()) for each in _with_inner(part)]
    return [scheduler, *inner] if hasattr(scheduler, "base_lrs") else inner
